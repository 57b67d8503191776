# SPDX-License-Identifier: Apache-2.0
"""Hosts as network namespaces: one per host, joined by a bridge in a namespace of its own."""

import os
import re
import shutil
import subprocess


class NetworkError(Exception):
    """The namespaces could not be made; the message says which command failed."""


DEVICE = "eth0"  # inside every host
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"
CONGESTION_HELP = ("control of all that goes by TCP between hosts, as the kernel names it; system: "
                   "the system's; auto: that, but reno where it is bbr, which leaves links idle "
                   "between near hosts, whoever uses it (auto)")


class Namespaces:
    """A context manager. Names carry the process id, so that several may run side by side.

    `mbit`: what a link carries each way, in Mbit/s; None for as much as it can. `congestion`: see
    CONGESTION_HELP; then what they have."""

    def __init__(self, hosts, mbit=None, congestion="auto"):
        self.mbit = mbit
        self.congestion = congestion
        self.tag = f"plx{os.getpid() % 1000000}"
        self.bridge = f"{self.tag}br"
        self.hosts = [f"{self.tag}h{i}" for i in range(hosts)]
        self.made = []

    def __enter__(self):
        if os.geteuid() != 0:
            raise NetworkError("--netns needs root: it makes network namespaces. Run it with sudo, "
                               "or without --netns")
        if shutil.which("ip") is None:
            raise NetworkError("--netns needs the command `ip` (Debian package iproute2)")
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # A namespace takes its interfaces, and a veth its other end, along.
        for name in reversed(self.made):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        self.made = []

    def _ip(self, *words, inside=None):
        self._run(["ip"] + (["-n", inside] if inside else []) + [str(word) for word in words])

    @staticmethod
    def _run(command):
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        if result.returncode != 0:
            raise NetworkError(f"`{' '.join(command)}` failed: {result.stderr.strip()}")
        return result.stdout

    def _add(self, name):
        self._ip("netns", "add", name)
        self.made.append(name)
        self._ip("link", "set", "lo", "up", inside=name)

    def _make(self):
        self._add(self.bridge)
        self._ip("link", "add", "br0", "type", "bridge", inside=self.bridge)
        self._ip("link", "set", "br0", "up", inside=self.bridge)
        for i, name in enumerate(self.hosts):
            self._add(name)
            self._ip("link", "add", DEVICE, "type", "veth", "peer", "name", f"p{i}",
                     "netns", self.bridge, inside=name)
            self._ip("link", "set", f"p{i}", "master", "br0", "up", inside=self.bridge)
            self._ip("address", "add", f"{self.address(i)}/16", "dev", DEVICE, inside=name)
            self._ip("link", "set", DEVICE, "up", inside=name)
            if self.mbit is not None:
                self._limit(name, DEVICE)
                self._limit(self.bridge, f"p{i}")
        self._control_congestion()

    def _control_congestion(self):
        asked = self.congestion
        inside = ["ip", "netns", "exec"]
        self.congestion = self._run(inside + [self.hosts[0], "cat", CONGESTION]).strip()
        if asked == "system" or (asked == "auto" and not self.congestion.startswith("bbr")):
            return
        self.congestion = "reno" if asked == "auto" else asked
        for name in self.hosts:
            self._run(inside + [name, "sh", "-c", 'echo "$0" > "$1"', self.congestion, CONGESTION])

    def _limit(self, inside, device):
        # The bucket holds 2 ms of the link: timers of the kernel are coarse.
        burst = max(65536, int(self.mbit * 250))
        self._run(["ip", "netns", "exec", inside, "tc", "qdisc", "add", "dev", device, "root",
                   "tbf", "rate", f"{self.mbit}mbit", "burst", str(burst), "latency", "50ms"])

    def sent_bytes(self):
        """What all hosts have sent so far: by their interfaces, and by the queues of these, which
        count every packet's headers."""
        interface = queue = 0
        for name in self.hosts:
            inside = ["ip", "netns", "exec", name]
            interface += int(self._run(
                inside + ["cat", f"/sys/class/net/{DEVICE}/statistics/tx_bytes"]))
            text = self._run(inside + ["tc", "-s", "qdisc", "show", "dev", DEVICE])
            queue += int(re.search(r"Sent (\d+) bytes", text).group(1))
        return interface, queue

    @staticmethod
    def address(host):
        # 10.213/16 exists in these namespaces only.
        return f"10.213.{host // 250}.{host % 250 + 1}"

    def command(self, host, command):
        """`command`, run on the host of this index."""
        return ["ip", "netns", "exec", self.hosts[host]] + command
