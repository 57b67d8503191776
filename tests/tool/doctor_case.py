"""What the tests of the doctor share: doctors started as ranks, their findings, and namespaces."""

import json
import os
import resource
import subprocess

import support
from support import PARALLAX, environment, need_root, start

OTHER_VERSION = os.path.join(support.BIN, "parallax_tool_other")
REBUILT = os.path.join(support.BIN, "parallax_tool_rebuilt")
LIB = os.path.join(support.BIN, "..", "lib")
FAKE_CLOCK = os.path.join(LIB, "libparallax_fake_clock.so")
HOLD = os.path.join(LIB, "libparallax_hold.so")


def verdicts(text):
    """{check: [(verdict, text, remedy)]} of one doctor's JSON."""
    found = {}
    for each in json.loads(text)["findings"]:
        found.setdefault(each["check"], []).append((each["verdict"], each["text"], each["remedy"]))
    return found


def limited(**limits):
    """For preexec_fn: soft limits by name; the hard ones stay."""
    def lower():
        for name, value in limits.items():
            kind = getattr(resource, "RLIMIT_" + name)
            resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
    return lower


class DoctorCase(support.Case):
    def expect(self, found, check, verdict, *words):
        self.assertIn(check, found, found)
        matching = [f for f in found[check] if f[0] == verdict]
        self.assertTrue(matching, found[check])
        for word in words:
            self.assertIn(word, " ".join(matching[0]))

    def start_ranks(self, *plans, rendezvous=None, timeout_ms=20000):
        """Each plan: {tool, prefix, preexec_fn, variables}. The processes, by rank."""
        rendezvous = "file:" + (rendezvous or os.path.join(self.folder(), "rendezvous"))
        processes = []
        for rank, plan in enumerate(plans):
            env = environment(PARALLAX_HOST=f"host{rank}", **plan.get("variables", {})) \
                if "PARALLAX_HOST" not in plan.get("variables", {}) \
                else environment(**plan["variables"])
            processes.append(start(
                *plan.get("prefix", ()), plan.get("tool", PARALLAX), "doctor", "--json", "--rank",
                rank, "--world", plan.get("world", len(plans)), "--rendezvous", rendezvous,
                "--timeout-ms", timeout_ms, env=env, preexec_fn=plan.get("preexec_fn")))
            self.addCleanup(support.end, processes[-1])
        return processes

    def ranks(self, *plans, **kwargs):
        """As start_ranks, to their ends: (status, verdicts) by rank."""
        return self.findings(self.start_ranks(*plans, **kwargs))

    def findings(self, processes):
        found = []
        for process in processes:
            out, err = process.communicate(timeout=support.PATIENCE_S)
            self.assertIn(process.returncode, (0, 1), err)
            found.append((process.returncode, verdicts(out)))
        return found

    def namespaces(self, joined):
        """Two network namespaces, with a link between them or each with its own."""
        need_root(self)
        names = [f"plxd{os.getpid()}{i}" for i in range(2)]
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            self.addCleanup(subprocess.run, ["ip", "netns", "del", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        peer = ["peer", "name", "plx0", "netns", names[1]] if joined else ["peer", "name", "plx1"]
        subprocess.run(["ip", "-n", names[0], "link", "add", "plx0", "type", "veth", *peer],
                       check=True)
        if not joined:
            subprocess.run(["ip", "-n", names[0], "link", "set", "plx1", "up"], check=True)
            subprocess.run(["ip", "-n", names[1], "link", "add", "plx0", "type", "veth", "peer",
                            "name", "plx1"], check=True)
            subprocess.run(["ip", "-n", names[1], "link", "set", "plx1", "up"], check=True)
        for i, name in enumerate(names):
            subprocess.run(["ip", "-n", name, "addr", "add", f"10.78.{0 if joined else i}.{i + 1}"
                            "/24", "dev", "plx0"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "plx0", "up"], check=True)
        for name in names:
            support.wait_until(lambda n=name: "LOWER_UP" in subprocess.run(
                ["ip", "-n", n, "link", "show", "plx0"], capture_output=True, text=True,
                check=True).stdout, "the link is up")
        return [("ip", "netns", "exec", name) for name in names]
