"""parallax doctor and info on RDMA: port tables of machines that are broken, recorded as `parallax
info --json -t` writes them, and limits, files and links that are broken here. On real devices:
tests/rdma."""

import json
import os
import subprocess

import support
from doctor_case import DoctorCase, limited, verdicts
from support import PARALLAX, environment, need_root, parallax

IB_FOLDER = "/usr/lib/x86_64-linux-gnu/ucx"


def gid(index, address, kind, device="eth2", mtu=9000):
    return {"index": index, "address": address, "type": kind, "net_device": device,
            "net_mtu_bytes": mtu}


def port(**changes):
    """As a port of a ConnectX on Ethernet."""
    sound = {"number": 1, "state": "active", "link_layer": "ethernet",
             "physical_state": "link_up", "rate_mbit_s": 100000, "mtu_bytes": 4096,
             "mtu_bytes_max": 4096, "lid": 0,
             "gids": [gid(0, "fe80::1", "roce_v1"), gid(1, "fe80::1", "roce_v2"),
                      gid(2, "::ffff:10.0.0.3", "roce_v1"), gid(3, "::ffff:10.0.0.3", "roce_v2")]}
    return {**sound, **changes}


def table(*ports):
    return {"nics": [{"name": f"mlx5_{i}", "pci_bus_id": f"0000:{i}b:00.0", "numa_node": 0,
                      "ports": [each], "firmware": "28.39.1002", "error": ""}
                     for i, each in enumerate(ports)]}


class Recorded(DoctorCase):
    def doctor(self, nics, *arguments, prefix=(), preexec_fn=None, **variables):
        path = self.write(json.dumps(nics), "nics.json")
        os.chmod(os.path.dirname(path), 0o755)
        said = support.run(*prefix, PARALLAX, "doctor", "--json", "--nics", path, *arguments,
                           env=environment(**variables), preexec_fn=preexec_fn)
        self.assertIn(said.returncode, (0, 1), said.stderr)
        return verdicts(said.stdout)

    def test_sound_ports(self):
        found = self.doctor(table(port(), port()))
        for check in ("rdma", "rdma_port", "rdma_gid", "rdma_mtu"):
            self.expect(found, check, "OK", "mlx5_0:1")
        self.expect(found, "rdma_pfc_ecn", "WARN", "unknown", "mlnx_qos -i eth2")

    def test_a_port_that_is_down(self):
        down = port(state="down", physical_state="disabled")
        found = self.doctor(table(down, port()))
        self.expect(found, "rdma_port", "WARN", "mlx5_0:1: down (disabled)", "ip link set eth2 up")
        self.expect(found, "rdma", "OK", "mlx5_1:1")
        found = self.doctor(table(down, port()), PARALLAX_NET_DEVICE="mlx5_0:1")
        self.expect(found, "rdma_port", "FAIL", "mlx5_0:1: down")
        self.expect(found, "rdma", "FAIL", "no port of an RDMA device works: mlx5_0:1: it is down")

    def test_addresses(self):
        old = [g for g in port()["gids"] if g["type"] == "roce_v1"]
        self.expect(self.doctor(table(port(gids=old))), "rdma_gid", "WARN", "RoCE v1 alone")
        local = port()["gids"][:2]
        self.expect(self.doctor(table(port(gids=local))), "rdma_gid", "WARN", "link-local",
                    "ip addr add")
        self.expect(self.doctor(table(port(gids=[]))), "rdma_gid", "WARN", "no RoCE address")

    def test_an_index_that_ucx_would_not_take(self):
        found = self.doctor(table(port()), UCX_IB_GID_INDEX="2")
        self.expect(found, "rdma_gid", "WARN", "UCX_IB_GID_INDEX is 2", "unset UCX_IB_GID_INDEX")
        found = self.doctor(table(port()), UCX_IB_GID_INDEX="12", PARALLAX_NET_DEVICE="mlx5_0")
        self.expect(found, "rdma_gid", "FAIL", "has nothing there")

    def test_mtus(self):
        small = [gid(3, "::ffff:10.0.0.3", "roce_v2", mtu=1500)]
        found = self.doctor(table(port(gids=small)))
        self.expect(found, "rdma_mtu", "FAIL", "MTU 4096, but eth2 has 1500", "mtu 9000")
        found = self.doctor(table(port(mtu_bytes=1024)))
        self.expect(found, "rdma_mtu", "WARN", "though eth2 has 9000, which allows 4096")

    def test_memory_that_may_be_locked(self):
        found = self.doctor(table(port()), preexec_fn=limited(MEMLOCK=65536))
        self.expect(found, "memlock", "FAIL", "64 KiB", "ulimit -l unlimited")

    def test_no_device(self):
        found = self.doctor({"nics": []})
        self.expect(found, "rdma", "OK", "lists none", "ranks use Ethernet")

    def test_a_file_that_is_no_table(self):
        for text, words in (("{}", "is not what `parallax info --json -t` writes"),
                            ("[1]", "is not what"), ("", "is not what")):
            path = self.write(text)
            for subcommand, status in (("doctor", 2), ("info", 1)):
                said = parallax(subcommand, "--nics", path)
                self.assertEqual(said.returncode, status, (text, subcommand))
                self.assertIn(f"--nics: {path}: ", said.stderr)
                self.assertIn(words, said.stderr)
        said = parallax("doctor", "--nics", "/no/such")
        self.assertEqual(said.returncode, 2)
        self.assertIn("/no/such cannot be read: No such file", said.stderr)

    def test_ranks_whose_ports_do_not_fit(self):
        other = port(mtu_bytes=1024, gids=[gid(2, "::ffff:10.0.0.4", "roce_v1", mtu=1500)])
        plans = []
        for each in (port(), other):
            plans.append(self.write(json.dumps(table(each))))
        ranks = [support.start(PARALLAX, "doctor", "--json", "--nics", path, "--rank", rank,
                               "--world", 2, "--rendezvous", f"file:{os.path.dirname(plans[0])}/m",
                               env=environment(PARALLAX_HOST=f"host{rank}"))
                 for rank, path in enumerate(plans)]
        for rank in ranks:
            self.addCleanup(support.end, rank)
        (_, first), (_, second) = self.findings(ranks)
        self.expect(first, "rdma_ranks", "WARN", "rank 1 (host host1) has mlx5_0:1",
                    "addresses are roce_v1 IPv4 there, roce_v2 IPv4 here")
        texts = [text for _, text, _ in first["rdma_ranks"]]
        self.assertTrue(any("MTU 1024 there, 4096 here" in text for text in texts), texts)
        self.expect(second, "rdma_ranks", "WARN", "rank 0 (host host0)")


class Here(DoctorCase):
    """Broken on this machine."""

    def test_what_info_writes_is_what_the_doctor_reads(self):
        said = parallax("info", "--json", "-t")
        whole = json.loads(said.stdout)
        nics = whole["topology"]["nics"]
        self.assertEqual(nics == [], bool(whole["topology"]["no_nics_why"]))
        path = self.write(json.dumps(table(port())))
        again = json.loads(parallax("info", "--json", "-t", "--nics", path).stdout)
        self.assertEqual(again["topology"]["nics"], table(port())["nics"])
        folder = self.write(json.dumps(again))
        third = json.loads(parallax("info", "--json", "-t", "--nics", folder).stdout)
        self.assertEqual(third["topology"]["nics"], again["topology"]["nics"])

    def test_info_draws_ports_and_addresses(self):
        path = self.write(json.dumps(table(port())))
        said = parallax("info", "-d", "-t", "--nics", path)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stdout, r"rdma +mlx5_0 +open +mlx5_0:1 active, Ethernet, 100 Gbit/s")
        self.assertIn("GID 3: ::ffff:10.0.0.3 (RoCE v2, IPv4, eth2), the one that UCX takes",
                      said.stdout)
        self.assertRegex(said.stdout, r"(?m)^Rails, with a rank for each (GPU|NUMA node)\n")

    def test_why_there_is_no_device(self):
        if os.path.exists("/sys/class/infiniband"):
            self.skipTest("this machine has RDMA devices, or their drivers")
        for options in ("-d", "-t"):
            self.assertIn("the kernel has no RDMA device (/sys/class/infiniband is missing)",
                          parallax("info", options).stdout)
        devices = json.loads(parallax("info", "--json", "-d").stdout)
        [rdma] = [d for d in devices["devices"] if d["kind"] == "rdma"]
        self.assertIn("no such NIC, or its driver is not loaded", rdma["why"])
        found = verdicts(parallax("doctor", "--json").stdout)
        self.expect(found, "rdma", "OK", "no RDMA device: the kernel has no RDMA device")
        said = parallax("doctor", "--json", env=environment(PARALLAX_NET_DEVICE="mlx5_0:1"))
        self.expect(verdicts(said.stdout), "rdma", "FAIL", "no RDMA device")

    def test_mtus_of_interfaces_that_differ(self):
        a, b = self.namespaces(joined=True)
        subprocess.run([*b, "ip", "link", "set", "plx0", "mtu", "1400"], check=True)
        (_, first), (_, second) = self.ranks({"prefix": a}, {"prefix": b})
        self.expect(first, "mtu", "WARN", "rank 1 (host host1) has 1400, this rank 1500",
                    "ip link set DEVICE mtu 1400")
        self.expect(second, "mtu", "WARN", "rank 0 (host host0) has 1500, this rank 1400")

    def test_mtus_alike(self):
        a, b = self.namespaces(joined=True)
        for _, found in self.ranks({"prefix": a}, {"prefix": b}):
            self.expect(found, "mtu", "OK", "has 1500, this rank 1500")
            self.expect(found, "firewall", "OK", "4 of 4 tried")

    def test_a_firewall_that_lets_some_ports_through(self):
        """To the second host's ports from 7/8 of the range on TCP is refused, as by a firewall."""
        a, b = self.namespaces(joined=True)
        said = support.run(*b, "cat", "/proc/sys/net/ipv4/ip_local_port_range")
        first, last = map(int, said.stdout.split())
        blocked = first + (last - first) * 7 // 8
        rules = ("ip rule add pref 10 lookup local && ip rule del pref 0 && "
                 f"ip rule add pref 5 to 10.78.0.2 ipproto tcp dport {blocked}-{blocked + 7} "
                 "prohibit")
        probe = support.run(*a, "sh", "-c", rules)
        if probe.returncode != 0:
            self.skipTest(f"rules of routing cannot be set here: {probe.stderr.strip()}")
        (status, found), _ = self.ranks({"prefix": a}, {"prefix": b})
        self.assertEqual(status, 1)
        self.expect(found, "reach", "OK", "rank 1 (host host1)")
        self.expect(found, "firewall", "FAIL", "rank 1 (host host1) can be reached at 10.78.0.2:",
                    f"10.78.0.2:{blocked}", "Permission denied", "ip_local_port_range")

    def test_ucx_without_verbs(self):
        """Only where there is a device does the doctor ask; its part is taken away."""
        if not os.path.exists("/sys/class/infiniband") or not os.path.isdir(IB_FOLDER):
            self.skipTest("this machine has no RDMA device")
        need_root(self)
        script = f"mount -t tmpfs tmpfs {IB_FOLDER} && exec \"$@\""
        said = support.run("unshare", "-m", "sh", "-c", script, "sh", PARALLAX, "doctor", "--json")
        self.expect(verdicts(said.stdout), "rdma_ucx", "WARN", "libuct_ib.so.0", "install UCX")


if __name__ == "__main__":
    support.main()
