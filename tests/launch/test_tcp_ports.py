# SPDX-License-Identifier: Apache-2.0
"""The ports of transport tcp, in processes: 10,000 strangers while ranks connect, and as many in
mid-run, silent, slow, noisy, or with the beginning of a handshake. The job ends right, a rank keeps
few of them, and takes no memory for more."""

import collections
import contextlib
import os
import random
import resource
import socket
import struct
import threading
import time
import unittest

from support import LaunchTest, free_port, keeping_nothing_freed, listeners

STRANGERS = 10000
STRANGERS_KEPT = 64       # kStrangersMax of tcp_strangers.h
OPEN_AT_ONCE = 300        # of those that stay
PORTS_TRIED = 32          # for six ranks, and others that may be there
RESIDENT_KIB = 16 * 1024  # what they may cost a rank, with room: 64 of 2 KiB, and OpenSSL's state
KINDS = (
    lambda source: b"",
    lambda source: b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n",
    # A TLS record that promises more than comes, or more than is taken.
    lambda source: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + source.randbytes(40),
    lambda source: b"\x16\x03\x01" + struct.pack(">H", 16384) + source.randbytes(3000),
    # A whole record of a handshake that is none.
    lambda source: b"\x16\x03\x03\x00\x40\x01\x00\x00\x3c" + source.randbytes(60),
    # A frame as members send it, without a handshake.
    lambda source: struct.pack("<IBxxx", 400, 1) + source.randbytes(416),
    lambda source: source.randbytes(source.randrange(1, 4000)),
)


def facts(pid):
    """(open descriptors, resident KiB) of a process; None once it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            resident = [int(line.split()[1]) for line in file if line.startswith("VmRSS")]
        return (len(os.listdir(f"/proc/{pid}/fd")), resident[0]) if resident else None
    except (FileNotFoundError, ProcessLookupError):
        return None


class Crowd(threading.Thread):
    """Strangers at some ports, one after the other until the crowd is told to go: every third stays
    and, now and then, says one byte more."""

    def __init__(self, ports, count=STRANGERS):
        super().__init__(daemon=True)
        self.ports = ports
        self.count = count
        self.came = 0
        self.gone = threading.Event()

    def run(self):
        source = random.Random(1)
        staying = collections.deque()
        while self.came < self.count and not self.gone.is_set():
            stranger = socket.socket()
            stranger.settimeout(1)
            try:
                stranger.connect(("127.0.0.1", source.choice(self.ports)))
                stranger.sendall(source.choice(KINDS)(source))
                self.came += 1
            except OSError:
                stranger.close()  # no rank listens yet, or it was shown out
                time.sleep(0.001)  # the ranks need the core
                continue
            if self.came % 3 != 0:
                stranger.close()
                continue
            staying.append(stranger)
            with contextlib.suppress(OSError):
                source.choice(staying).sendall(b"\x16")
            if len(staying) > OPEN_AT_ONCE:
                staying.popleft().close()
        for stranger in staying:
            stranger.close()

    def leave(self):
        self.gone.set()
        self.join()


class TcpPorts(LaunchTest):
    def setUp(self):
        super().setUp()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def start_job(self, *arguments, hosts=2, **environment):
        """Hosts of one rank on this machine."""
        self.meeting = free_port()
        return [self.start_rank("--rank", rank, "--world", hosts, "--rendezvous",
                                f"tcp:127.0.0.1:{self.meeting}", "--host", f"h{rank}",
                                *arguments, **keeping_nothing_freed(), **environment)
                for rank in range(hosts)]

    def ports_of(self, rank):
        """Of the transport alone: that of the rendezvous may still be on its way out."""
        return [(host, port) for host, port in listeners(rank.pid) if port != self.meeting]

    def crowd(self, ports):
        crowd = Crowd(ports)
        self.addCleanup(crowd.leave)
        crowd.start()
        return crowd

    def test_one_port_a_rank_on_loopback(self):
        ranks = self.start_job("--steps", 300, "--pace-ms", 5)
        for rank in ranks:
            rank.await_line("open")
            self.assertEqual([host for host, _ in self.ports_of(rank)], ["127.0.0.1"])
        self.assert_all_ok(ranks)

    def test_strangers_while_ranks_connect(self):
        """They are there before the ranks are, at every port that these may take, one of which the
        rendezvous may have."""
        first = free_port()  # below those that the system gives out, as those after it
        last = first + PORTS_TRIED - 1
        crowd = self.crowd(range(first, last + 1))
        for _ in range(3):
            self.assert_all_ok(self.start_job("--steps", 3, hosts=6,
                                              PARALLAX_TCP_PORTS=f"{first}-{last}"))
        crowd.leave()
        print(f"\nreport: {crowd.came} strangers while six ranks opened three jobs")

    def test_strangers_in_mid_run(self):
        ranks = self.start_job("--steps", 1000, "--pace-ms", 5)
        for rank in ranks:
            rank.await_line("open")
        before = [facts(rank.pid) for rank in ranks]
        crowd = self.crowd([port for rank in ranks for _, port in self.ports_of(rank)])
        most = [[0, 0], [0, 0]]
        while crowd.is_alive():
            for rank, seen in zip(ranks, most):
                if now := facts(rank.pid):
                    seen[:] = map(max, seen, now)
            if facts(ranks[0].pid) is None:
                break
            time.sleep(0.02)
        crowd.leave()
        self.assert_all_ok(ranks)
        for (descriptors, resident), seen in zip(before, most):
            self.assertLessEqual(seen[0], descriptors + STRANGERS_KEPT + 2)
            self.assertLess(seen[1], resident + RESIDENT_KIB)
        print(f"\nreport: {crowd.came} strangers in mid-run cost a rank at most "
              f"{max(seen[0] - old[0] for old, seen in zip(before, most))} descriptors and "
              f"{max(seen[1] - old[1] for old, seen in zip(before, most))} KiB")


if __name__ == "__main__":
    unittest.main()
