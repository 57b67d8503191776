# SPDX-License-Identifier: Apache-2.0
"""What `parallax doctor` finds of RDMA, by breaking what each check looks at."""

import json
import unittest

from support import BIN, DEVICE, GuestTest

UCX_MODULES = "/usr/lib/x86_64-linux-gnu/ucx"
ADDRESS = "10.9.0.1/24"


class Doctor(GuestTest):
    def found(self, environment="", prefix=""):
        """Verdict and text by check; of several findings of one check the worst."""
        output = self.guest.run(
            f"{environment} {prefix} {BIN}/parallax doctor --json 2>/dev/null; true", 120)
        worst = {}
        for each in json.loads(output.strip().splitlines()[-1])["findings"]:
            verdict = each["verdict"]
            rank = ("OK", "WARN", "FAIL").index(verdict)
            if each["check"] not in worst or rank > worst[each["check"]][0]:
                worst[each["check"]] = (rank, verdict, each["text"], each["remedy"])
        return {check: one[1:] for check, one in worst.items()}

    def assert_found(self, findings, check, verdict, *words):
        self.assertIn(check, findings)
        self.assertEqual(findings[check][0], verdict, findings[check])
        for word in words:
            self.assertIn(word, findings[check][1] + " -> " + findings[check][2])

    def broken(self, breaks, mends, **more):
        self.guest.run(breaks)
        try:
            return self.found(**more)
        finally:
            self.guest.run(mends)

    def test_a_sound_machine(self):
        findings = self.found()
        for check in ("rdma_port", "rdma_gid", "rdma_mtu", "rdma_permission", "rdma_ucx"):
            self.assert_found(findings, check, "OK")
        self.assert_found(findings, "rdma", "OK", DEVICE)

    def test_no_device(self):
        breaks = f"rdma link delete {DEVICE}"
        mends = f"rdma link add {DEVICE} type rxe netdev wire0"
        self.assert_found(self.broken(breaks, mends), "rdma", "OK", "Ethernet")
        self.assert_found(self.broken(breaks, mends, environment="PARALLAX_TRANSPORT=rdma"),
                          "rdma", "FAIL")

    def test_a_port_that_is_down(self):
        down, up = "ip link set wire0 down", "ip link set wire0 up"
        self.assert_found(self.broken(down, up), "rdma_port", "WARN", "down", "ip link set")
        wanted = self.broken(down, up, environment=f"PARALLAX_NET_DEVICE={DEVICE}")
        self.assert_found(wanted, "rdma_port", "FAIL")
        self.assert_found(wanted, "rdma", "FAIL")

    def test_a_port_without_an_address(self):
        findings = self.broken(f"ip addr del {ADDRESS} dev wire0",
                               f"ip addr add {ADDRESS} dev wire0")
        self.assert_found(findings, "rdma_gid", "WARN", "IPv4")

    def test_an_address_that_was_set(self):
        self.assert_found(self.found(environment="UCX_IB_GID_INDEX=0"), "rdma_gid", "WARN",
                          "UCX_IB_GID_INDEX")

    def test_a_small_mtu_is_told(self):
        findings = self.broken("ip link set wire0 mtu 1500", "ip link set wire0 mtu 4200")
        self.assert_found(findings, "rdma_mtu", "OK", "1024", "1500")

    def test_locked_memory(self):
        limited = "setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock prlimit --memlock=65536"
        findings = self.found(prefix=limited)
        self.assertNotEqual(findings["memlock"][0], "OK", findings["memlock"])
        self.assertIn("ulimit -l", findings["memlock"][2] + findings["memlock"][1])

    def test_files_that_are_closed_to_this_user(self):
        nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups"
        findings = self.broken("chmod 600 /dev/infiniband/uverbs0",
                               "chmod 666 /dev/infiniband/uverbs0", prefix=nobody)
        self.assertNotEqual(findings["rdma_permission"][0], "OK", findings["rdma_permission"])

    def test_ucx_without_verbs(self):
        findings = self.broken(f"mkdir -p /run/none; mount --bind /run/none {UCX_MODULES}",
                               f"umount {UCX_MODULES}")
        self.assertNotEqual(findings["rdma_ucx"][0], "OK", findings["rdma_ucx"])


if __name__ == "__main__":
    unittest.main()
