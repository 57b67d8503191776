"""parallax doctor: each finding is provoked by breaking what it looks at."""

import json
import os
import resource
import subprocess
import sys
import unittest

import support
from support import PARALLAX, environment, need_root, parallax, start

OTHER_VERSION = os.path.join(support.BIN, "parallax_tool_other")
FAKE_CLOCK = os.path.join(support.BIN, "..", "lib", "libparallax_fake_clock.so")
YEAR_S = 365 * 24 * 3600


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


class Machine(support.Case):
    def doctor(self, prefix=(), status=None, preexec_fn=None, **variables):
        said = support.run(*prefix, PARALLAX, "doctor", "--json", env=environment(**variables),
                           preexec_fn=preexec_fn)
        found = verdicts(said.stdout)
        failed = any(v[0] == "FAIL" for all_ in found.values() for v in all_)
        self.assertEqual(said.returncode, 1 if failed else 0, said.stdout + said.stderr)
        for all_ in found.values():
            for verdict, _, remedy in all_:
                self.assertEqual(verdict == "OK", remedy == "")
        return found

    def expect(self, found, check, verdict, *words):
        self.assertIn(check, found)
        matching = [f for f in found[check] if f[0] == verdict]
        self.assertTrue(matching, found[check])
        for word in words:
            self.assertIn(word, " ".join(matching[0]))

    def test_a_sound_machine(self):
        found = self.doctor()
        for check in ("settings", "descriptors", "memfd", "ucx", "interface lo", "clock",
                      "memlock"):
            self.expect(found, check, "OK")

    def test_text_has_a_line_a_finding(self):
        said = parallax("doctor", env=environment(PARALLAX_MODULE_DIR="/nonexistent"))
        self.assertEqual(said.returncode, 1)
        self.assertRegex(said.stdout, r"(?m)^OK    memfd: .+$")
        self.assertRegex(said.stdout, r"(?m)^FAIL  ucx: .*no such file.* -> correct or unset .+$")

    def test_settings(self):
        self.expect(self.doctor(PARALLAX_LEASE_MS="x"), "settings", "FAIL", "PARALLAX_LEASE_MS")
        self.expect(self.doctor(PARALLAX_LEASE="1"), "settings", "WARN", "PARALLAX_LEASE")

    def test_memlock(self):
        low = limited(MEMLOCK=65536)
        self.expect(self.doctor(preexec_fn=low, PARALLAX_NET_DEVICE="mlx9_0:1"), "memlock", "FAIL",
                    "64 KiB", "ulimit -l unlimited")
        self.expect(self.doctor(preexec_fn=low, PARALLAX_NET_DEVICE="lo"), "memlock", "OK")

    def test_net_device(self):
        self.expect(self.doctor(PARALLAX_NET_DEVICE="wat0"), "net_device", "FAIL", "wat0",
                    "environment PARALLAX_NET_DEVICE")
        self.expect(self.doctor(PARALLAX_NET_DEVICE="wat0"), "ucx", "FAIL", "no such interface")

    def test_descriptors(self):
        self.expect(self.doctor(preexec_fn=limited(NOFILE=64)), "descriptors", "FAIL",
                    "64 descriptors", "ulimit -n 65536")
        self.expect(self.doctor(preexec_fn=limited(NOFILE=512)), "descriptors", "WARN", "512")

    def test_shared_memory(self):
        self.expect(self.doctor(preexec_fn=limited(FSIZE=65536)), "memfd", "FAIL", "ulimit -f")

    def test_dev_shm(self):
        need_root(self)
        script = "mount -t tmpfs -o size=1m tmpfs /dev/shm && exec \"$@\""
        found = self.doctor(("unshare", "-m", "sh", "-c", script, "sh"))
        self.expect(found, "/dev/shm", "WARN", "of 1 MiB", "--shm-size")

    def test_module(self):
        found = self.doctor(PARALLAX_MODULE_DIR="/nonexistent")
        self.expect(found, "ucx", "FAIL", "no such file", "environment PARALLAX_MODULE_DIR")
        folder = os.path.dirname(self.write("no library", "libparallax_ucx.so"))
        self.expect(self.doctor(PARALLAX_MODULE_DIR=folder), "ucx", "FAIL", "libparallax_ucx.so")

    def test_loopback(self):
        need_root(self)
        found = self.doctor(("unshare", "-n"))
        self.expect(found, "interface lo", "FAIL", "ip link set lo up")
        self.expect(found, "ucx", "FAIL", "is not usable")
        found = self.doctor(("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"))
        self.expect(found, "interface lo", "OK")
        self.expect(found, "interfaces", "WARN", "only loopback is up")

    def test_ports(self):
        need_root(self)
        script = ("ip link set lo up && echo 50000 %d > /proc/sys/net/ipv4/ip_local_port_range "
                  '&& exec "$@"')
        probe = support.run("unshare", "-n", "sh", "-c", script % 50999, "sh", "true")
        if probe.returncode != 0:
            self.skipTest(f"the range of ports cannot be set here: {probe.stderr.strip()}")
        found = self.doctor(("unshare", "-n", "sh", "-c", script % 50003, "sh"))
        self.expect(found, "ports", "FAIL", "50000..50003", "1 rank may need 20",
                    "sysctl -w net.ipv4.ip_local_port_range")
        found = self.doctor(("unshare", "-n", "sh", "-c", script % 50999, "sh"))
        self.expect(found, "ports", "OK", "50000..50999")

    def test_ports_that_are_taken(self):
        need_root(self)
        hold = ("import os, socket, sys\n"
                "held = [socket.socket() for _ in range(30)]\n"
                "for i, each in enumerate(held): each.bind(('127.0.0.1', 50000 + i))\n"
                "for each in held: os.set_inheritable(each.fileno(), True)\n"
                "os.execv(sys.argv[1], sys.argv[1:])\n")
        script = ("ip link set lo up && echo 50000 50031 > /proc/sys/net/ipv4/ip_local_port_range "
                  '&& exec "$@"')
        probe = support.run("unshare", "-n", "sh", "-c", script, "sh", "true")
        if probe.returncode != 0:
            self.skipTest(f"the range of ports cannot be set here: {probe.stderr.strip()}")
        found = self.doctor(("unshare", "-n", "sh", "-c", script, "sh", sys.executable, "-c", hold))
        self.expect(found, "ports", "FAIL", "after 2 there was none", "Address already in use",
                    "ss -tanp")

    def test_clock(self):
        found = self.doctor(LD_PRELOAD=FAKE_CLOCK, FAKE_CLOCK_SECONDS=str(-40 * YEAR_S))
        self.expect(found, "clock", "WARN", "chronyc")

    def test_log_file(self):
        self.expect(self.doctor(PARALLAX_DEBUG_FILE="/nonexistent/%p.log"), "debug_file", "WARN",
                    "No such file", "correct debug_file (environment PARALLAX_DEBUG_FILE)")
        self.expect(self.doctor(PARALLAX_DEBUG_FILE=self.folder() + "/%p.log"), "debug_file", "OK")

    def test_log_file_in_a_read_only_folder(self):
        prefix, folder = support.read_only_folder(self)
        self.expect(self.doctor(prefix, PARALLAX_DEBUG_FILE=folder + "/log"), "debug_file", "WARN",
                    "Read-only file system", "correct debug_file")


class Ranks(support.Case):
    """Several doctors that meet."""

    def ranks(self, *plans, timeout_ms=20000):
        """Each plan: {tool, prefix, preexec_fn, variables}. Gives (status, verdicts) by rank."""
        meeting = "file:" + os.path.join(self.folder(), "meeting")
        processes = []
        for rank, plan in enumerate(plans):
            env = environment(PARALLAX_HOST=f"host{rank}", **plan.get("variables", {})) \
                if "PARALLAX_HOST" not in plan.get("variables", {}) \
                else environment(**plan["variables"])
            processes.append(start(
                *plan.get("prefix", ()), plan.get("tool", PARALLAX), "doctor", "--json", "--rank",
                rank, "--world", plan.get("world", len(plans)), "--rendezvous", meeting,
                "--timeout-ms", timeout_ms, env=env, preexec_fn=plan.get("preexec_fn")))
        found = []
        for process in processes:
            out, err = process.communicate(timeout=support.PATIENCE_S)
            self.assertIn(process.returncode, (0, 1), err)
            found.append((process.returncode, verdicts(out)))
        return found

    def expect(self, found, check, verdict, *words):
        self.assertIn(check, found, found)
        matching = [f for f in found[check] if f[0] == verdict]
        self.assertTrue(matching, found[check])
        for word in words:
            self.assertIn(word, " ".join(matching[0]))

    def test_all_is_well(self):
        same = {"variables": {"PARALLAX_HOST": "a"}}
        for status, found in self.ranks(same, same, {}, {}):
            self.assertEqual(status, 0, found)
            for check in ("meeting", "versions", "hosts", "reach", "clock skew", "job"):
                self.expect(found, check, "OK")

    def test_under_run(self):
        said = parallax("run", "-n", 2, "--", PARALLAX, "doctor")
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        self.assertIn("[0] OK    shared memory: attached to 1 rank of this host", said.stdout)
        self.assertIn("[0] OK    job: opened, passed a barrier and closed over shared memory",
                      said.stdout)

    def test_who_does_not_come(self):
        [(status, found)] = self.ranks({"world": 2}, timeout_ms=300)
        self.assertEqual(status, 1)
        self.expect(found, "meeting", "FAIL", "rank 1", "same --world and --rendezvous")

    def test_versions_that_differ(self):
        first, second = self.ranks({}, {"tool": OTHER_VERSION})
        self.assertEqual((first[0], second[0]), (1, 1))
        self.expect(first[1], "versions", "FAIL", "rank 1 (host host1) has libparallax 9.8.7")
        self.expect(second[1], "versions", "FAIL", "this rank 9.8.7")
        self.assertNotIn("job", first[1])

    def test_clocks_that_differ(self):
        first, second = self.ranks({}, {"variables": {"LD_PRELOAD": FAKE_CLOCK,
                                                      "FAKE_CLOCK_SECONDS": "3600"}})
        self.expect(first[1], "clock skew", "WARN", "rank 1", "ahead", "chrony")
        self.expect(second[1], "clock skew", "WARN", "rank 0", "behind")
        self.assertEqual((first[0], second[0]), (0, 0))

    def test_memory_that_cannot_be_shared(self):
        same = {"variables": {"PARALLAX_HOST": "a"}}
        first, second = self.ranks(same, {**same, "preexec_fn": limited(FSIZE=65536)})
        self.assertEqual(first[0], 1)
        self.assertEqual(second[0], 1)
        self.expect(second[1], "shared memory", "FAIL", "ulimit -f")

    def test_one_failure_stops_the_job_everywhere(self):
        first, second = self.ranks({}, {"preexec_fn": limited(FSIZE=65536)})
        self.assertEqual((first[0], second[0]), (0, 1))
        self.expect(first[1], "job", "WARN", "rank 1 (host host1) failed")

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

    def test_hosts_joined_by_a_network(self):
        a, b = self.namespaces(joined=True)
        device = {"variables": {"PARALLAX_NET_DEVICE": "plx0"}}
        for status, found in self.ranks({"prefix": a, **device}, {"prefix": b, **device}):
            self.assertEqual(status, 0, found)
            self.expect(found, "reach", "OK", "at 10.78.0.")
            self.expect(found, "job", "OK", "tcp on plx0")

    def test_hosts_without_a_route(self):
        a, b = self.namespaces(joined=False)
        first, second = self.ranks({"prefix": a}, {"prefix": b})
        self.assertEqual((first[0], second[0]), (1, 1))
        self.expect(first[1], "reach", "FAIL", "rank 1 (host host1)", "10.78.1.2",
                    "Network is unreachable", "route and firewall")
        self.expect(second[1], "reach", "FAIL", "rank 0 (host host0)")

    def test_hosts_behind_a_firewall(self):
        # As behind a firewall that drops: the second host answers nothing that the first asks.
        a, b = self.namespaces(joined=True)
        subprocess.run([*b, "ip", "route", "add", "blackhole", "10.78.0.1/32"], check=True)
        first, second = self.ranks({"prefix": a}, {"prefix": b})
        self.assertEqual((first[0], second[0]), (1, 1))
        self.expect(first[1], "reach", "FAIL", "rank 1 (host host1)", "10.78.0.2",
                    "no answer after 2000 ms", "route and firewall")
        self.expect(second[1], "reach", "FAIL", "rank 0 (host host0)")
        self.assertNotIn("OK", [verdict for verdict, _, _ in first[1].get("job", [])])

    def test_hosts_of_one_name(self):
        a, b = self.namespaces(joined=True)
        same = {"variables": {"PARALLAX_HOST": "a"}}
        first, second = self.ranks({"prefix": a, **same}, {"prefix": b, **same})
        self.assertEqual((first[0], second[0]), (1, 1))
        self.expect(first[1], "hosts", "FAIL", "rank 1 (host a)", "PARALLAX_HOST")

    def test_usage(self):
        said = parallax("doctor", "--rank", 2, "--world", 2)
        self.assertEqual(said.returncode, 2)
        self.assertIn("--rank 2 is not among --world 2", said.stderr)


if __name__ == "__main__":
    support.main()
