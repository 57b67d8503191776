"""parallax doctor: each finding is provoked by breaking what it looks at. With a rank that is lost
or held in the middle of a rendezvous: doctor_rendezvous_test.py; launchers:
doctor_launch_test.py."""

import os
import shutil
import subprocess
import sys

import support
from doctor_case import FAKE_CLOCK, OTHER_VERSION, REBUILT, DoctorCase, limited, verdicts
from support import PARALLAX, environment, need_root, parallax

YEAR_S = 365 * 24 * 3600


class Machine(DoctorCase):
    def doctor(self, prefix=(), preexec_fn=None, tool=PARALLAX, **variables):
        said = support.run(*prefix, tool, "doctor", "--json", env=environment(**variables),
                           preexec_fn=preexec_fn)
        found = verdicts(said.stdout)
        failed = any(v[0] == "FAIL" for all_ in found.values() for v in all_)
        self.assertEqual(said.returncode, 1 if failed else 0, said.stdout + said.stderr)
        for all_ in found.values():
            for verdict, _, remedy in all_:
                self.assertEqual(verdict == "OK", remedy == "")
        return found

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

    def test_a_lone_setting_of_a_rendezvous(self):
        self.expect(self.doctor(PARALLAX_RENDEZVOUS="env"), "launcher", "OK", "one rank alone")
        self.expect(self.doctor(PARALLAX_RENDEZVOUS="env", MASTER_PORT="1"), "launcher", "FAIL",
                    "MASTER_PORT is set", "that of no launcher", "--world 1")

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

    def test_dev_shm_that_is_missing(self):
        need_root(self)
        # Another /dev, with the null device alone.
        script = ("touch $FOLDER/null && mount --bind /dev/null $FOLDER/null && "
                  "mount --rbind $FOLDER /dev && exec \"$@\"")
        found = self.doctor(("unshare", "-m", "sh", "-c", script, "sh"), FOLDER=self.folder())
        self.expect(found, "/dev/shm", "WARN", "is not there: No such file",
                    "mount -t tmpfs tmpfs /dev/shm")
        self.expect(found, "memfd", "OK")

    def test_a_build_without_ucx(self):
        """The module is where the tool does not look: nothing but the tool was installed."""
        alone = shutil.copy(PARALLAX, self.folder())
        found = self.doctor(tool=alone)
        self.expect(found, "ucx", "WARN", "libparallax_ucx.so: no such file",
                    "only needed for transport ucx or rdma; build libparallax with UCX")

    def test_module(self):
        found = self.doctor(PARALLAX_MODULE_DIR="/nonexistent")
        self.expect(found, "ucx", "FAIL", "no such file", "environment PARALLAX_MODULE_DIR")
        folder = os.path.dirname(self.write("no library", "libparallax_ucx.so"))
        self.expect(self.doctor(PARALLAX_MODULE_DIR=folder), "ucx", "FAIL", "libparallax_ucx.so")

    def test_what_other_machines_take(self):
        self.expect(self.doctor(), "tcp", "OK", "would find this one at", "there is none")
        self.expect(self.doctor(PARALLAX_SECRET="0123456789abcdef" * 2), "tcp", "OK",
                    "by the secret")
        self.expect(self.doctor(PARALLAX_TCP_CONGESTION="renoo"), "congestion", "FAIL",
                    "tcp_congestion is 'renoo'", "reno")
        self.expect(self.doctor(PARALLAX_SECRET="short"), "tcp", "FAIL", "PARALLAX_SECRET",
                    "openssl rand")

    def test_loopback(self):
        need_root(self)
        found = self.doctor(("unshare", "-n"))
        self.expect(found, "interface lo", "FAIL", "ip link set lo up")
        self.expect(found, "ucx", "FAIL", "is not usable")
        found = self.doctor(("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"))
        self.expect(found, "interface lo", "OK")
        self.expect(found, "interfaces", "WARN", "only loopback is up")

    def test_an_interface_that_refuses_tcp(self):
        """As a firewall would: of all that goes to loopback's address, TCP is refused."""
        need_root(self)
        script = ("ip link set lo up && ip rule add pref 10 lookup local && ip rule del pref 0 && "
                  "ip rule add pref 5 to 127.0.0.1 ipproto tcp prohibit && exec \"$@\"")
        probe = support.run("unshare", "-n", "sh", "-c", script, "sh", "true")
        if probe.returncode != 0:
            self.skipTest(f"rules of routing cannot be set here: {probe.stderr.strip()}")
        found = self.doctor(("unshare", "-n", "sh", "-c", script, "sh"))
        self.expect(found, "interface lo", "FAIL", "127.0.0.1:", "Permission denied",
                    "allow TCP on lo in the firewall")

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

    def test_a_clock_that_stands_still(self):
        found = self.doctor(LD_PRELOAD=FAKE_CLOCK, FAKE_CLOCK_STILL="1")
        self.expect(found, "clock", "FAIL", "stands still", "clocksource")

    def test_log_file(self):
        self.expect(self.doctor(PARALLAX_DEBUG_FILE="/nonexistent/%p.log"), "debug_file", "WARN",
                    "No such file", "correct debug_file (environment PARALLAX_DEBUG_FILE)")
        self.expect(self.doctor(PARALLAX_DEBUG_FILE=self.folder() + "/%p.log"), "debug_file", "OK")

    def test_log_file_in_a_read_only_folder(self):
        prefix, folder = support.read_only_folder(self)
        self.expect(self.doctor(prefix, PARALLAX_DEBUG_FILE=folder + "/log"), "debug_file", "WARN",
                    "Read-only file system", "correct debug_file")


class Ranks(DoctorCase):
    """Several doctors that meet."""

    def test_all_is_well(self):
        same = {"variables": {"PARALLAX_HOST": "a"}}
        for status, found in self.ranks(same, same, {}, {}):
            self.assertEqual(status, 0, found)
            for check in ("rendezvous", "versions", "hosts", "reach", "clock skew", "job"):
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
        self.expect(found, "rendezvous", "FAIL", "rank 1", "same --world and --rendezvous",
                    "--world 1 checks this machine alone")

    def test_versions_that_differ(self):
        first, second = self.ranks({}, {"tool": OTHER_VERSION})
        self.assertEqual((first[0], second[0]), (1, 1))
        self.expect(first[1], "versions", "FAIL", "rank 1 (host host1) has libparallax 9.8.7")
        self.expect(second[1], "versions", "FAIL", "this rank 9.8.7")
        self.assertNotIn("job", first[1])

    def test_builds_that_differ(self):
        first, second = self.ranks({}, {"tool": REBUILT})
        self.assertEqual((first[0], second[0]), (0, 0), first)
        self.expect(first[1], "versions", "WARN",
                    "rank 1 (host host1) was built from another commit",
                    "install one build on every host")
        self.expect(second[1], "versions", "WARN", "this rank from another commit")
        self.expect(first[1], "job", "OK")

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

    def test_hosts_joined_by_a_network(self):
        a, b = self.namespaces(joined=True)
        for variables, network in (
                ({"PARALLAX_SECRET": "0123456789abcdef" * 2}, " on plx0, security encrypt"),
                ({"PARALLAX_TRANSPORT": "ucx"}, "tcp on plx0")):
            rank = {"variables": {"PARALLAX_NET_DEVICE": "plx0", **variables}}
            for status, found in self.ranks({"prefix": a, **rank}, {"prefix": b, **rank}):
                self.assertEqual(status, 0, found)
                self.expect(found, "reach", "OK", "at 10.78.0.")
                self.expect(found, "job", "OK", network)

    def test_hosts_without_a_secret(self):
        a, b = self.namespaces(joined=True)
        for status, found in self.ranks({"prefix": a}, {"prefix": b}):
            self.assertEqual(status, 1)
            self.expect(found, "reach", "OK", "at 10.78.0.")
            self.expect(found, "job", "FAIL", "there is no secret", "PARALLAX_SECRET_FILE")

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

    def test_a_host_without_a_network(self):
        """The second host has loopback alone: there is no address that another could reach."""
        need_root(self)
        lonely = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
        first, second = self.ranks({}, {"prefix": lonely})
        self.assertEqual((first[0], second[0]), (1, 1))
        self.expect(first[1], "reach", "FAIL", "rank 1 (host host1)", "no address to listen at",
                    "PARALLAX_NET_DEVICE")
        self.expect(second[1], "interfaces", "WARN", "only loopback is up")

    def test_no_port_to_listen_at(self):
        """Another program holds every port that the system gives out."""
        need_root(self)
        hold = ("import os, socket, sys, time\n"
                "held = [socket.socket() for _ in range(32)]\n"
                "for i, each in enumerate(held): each.bind(('127.0.0.1', 50000 + i))\n"
                "print('held', flush=True)\n"
                "time.sleep(600)\n")
        a, _ = self.namespaces(joined=True)
        narrow = "echo 50000 50031 > /proc/sys/net/ipv4/ip_local_port_range"
        probe = support.run(*a, "sh", "-c", narrow)
        if probe.returncode != 0:
            self.skipTest(f"the range of ports cannot be set here: {probe.stderr.strip()}")
        holder = support.start(*a, sys.executable, "-c", hold)
        self.addCleanup(support.end, holder)
        self.assertEqual(holder.stdout.readline(), "held\n")
        for status, found in self.ranks({"prefix": a}, {"prefix": a}):
            self.assertEqual(status, 1)
            self.expect(found, "reach", "FAIL", "listening on 127.0.0.1: Address already in use",
                        "free a port")
            self.expect(found, "ports", "FAIL", "after 0 there was none", "ss -tanp")
            self.expect(found, "interface lo", "FAIL", "Address already in use", "free a port")
            self.expect(found, "ucx", "WARN", "not tried", "see ports")

    def test_a_job_that_does_not_open(self):
        """All is well between the ranks, but they would not train together: leases differ."""
        ranks = self.ranks({}, {"variables": {"PARALLAX_LEASE_MS": "7000"}})
        for status, found in ranks:
            self.assertEqual(status, 1)
            self.expect(found, "job", "FAIL", "option lease_ms: rank 0 has 5000, rank 1 has 7000",
                        "PARALLAX_DEBUG=info")
            self.assertEqual([v for all_ in found.values() for v, _, _ in all_].count("FAIL"), 1)

    def test_a_clock_that_stands_still_behind_a_firewall(self):
        """Waits end although the clock by which they are measured does not move."""
        a, b = self.namespaces(joined=True)
        subprocess.run([*b, "ip", "route", "add", "blackhole", "10.78.0.1/32"], check=True)
        still = {"LD_PRELOAD": FAKE_CLOCK, "FAKE_CLOCK_STILL": "1"}
        first, second = self.ranks({"prefix": a, "variables": still}, {"prefix": b})
        self.assertEqual((first[0], second[0]), (1, 1))
        self.expect(first[1], "clock", "FAIL", "stands still")
        self.expect(first[1], "reach", "FAIL", "no answer after 2000 ms")

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
