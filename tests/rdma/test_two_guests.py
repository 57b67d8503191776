# SPDX-License-Identifier: Apache-2.0
"""Two machines joined by a virtual wire, a rank each; they meet over tcp, by a secret, and train
over RDMA, also where the wire loses packets."""

import os
import re
import shutil
import tempfile
import unittest

from support import BIN, DEVICE, PEER_LOST, UD, MachineTest

PORT = 7000
# 2% of what each machine sends. The wire's MTU leaves room for RoCE's own of 1024.
LOSS = "tc qdisc replace dev eth0 root netem loss 2%"


class TwoGuests(MachineTest):
    @classmethod
    def boot_all(cls):
        folder = tempfile.mkdtemp(prefix="parallax-wire-")
        cls.addClassCleanup(shutil.rmtree, folder, True)
        wire = os.path.join(folder, "wire")
        cls.guests = []
        for host, kind in enumerate(("listen", "connect")):
            guest = cls.boot(cpus=1, memory_mib=768, link=f"{kind}:{wire}")
            cls.guests.append(guest)
            guest.run(f"set -e; ip addr add 10.9.0.{host + 1}/24 dev eth0; ip link set eth0 up; "
                      f"rdma link add {DEVICE} type rxe netdev eth0")
        cls.guests[0].run("ping -c 1 -w 20 10.9.0.2 || busybox ping -c 1 -w 20 10.9.0.2")

    def start(self, port, steps, options="", environment=""):
        command = (f"PARALLAX_SECRET=of-this-test-alone {UD} {environment} exec "
                   f"{BIN}/parallax_net_trainer --transport rdma --rendezvous tcp:10.9.0.1:{port} "
                   f"--hosts 0,1 --lease-ms 20000 --plan-after 3 --steps {steps} {options}")
        return [guest.start(f"{command} --rank {rank}", 90)
                for rank, guest in enumerate(self.guests)]

    def assert_trained(self, ranks):
        sums = [[line for line in rank.check().splitlines() if line.startswith("checksum")]
                for rank in ranks]
        self.assertEqual(len(sums[0]), 1)
        self.assertEqual(sums[0], sums[1])

    def counter(self, guest, name):
        return int(guest.run(
            f"cat /sys/class/infiniband/{DEVICE}/ports/1/hw_counters/{name}"))

    def test_train(self):
        before = self.counter(self.guests[0], "sent_pkts")
        self.assert_trained(self.start(PORT, 8))
        self.assertGreater(self.counter(self.guests[0], "sent_pkts"), before + 100)

    def test_train_while_packets_are_lost(self):
        for guest in self.guests:
            guest.run(LOSS)
        try:
            self.assert_trained(self.start(PORT + 1, 12, environment="UCX_RC_TIMEOUT=20ms"))
            said = [guest.run("tc -s qdisc show dev eth0") for guest in self.guests]
            dropped = [int(re.search(r"dropped (\d+),", each).group(1)) for each in said]
            self.assertGreater(sum(dropped), 0, said)
        finally:
            for guest in self.guests:
                guest.run("tc qdisc del dev eth0 root")

    def test_a_wire_that_is_silent_for_a_while(self):
        """The job goes on when it speaks again, within the lease."""
        ranks = self.start(PORT + 2, 20, "--pace-ms 50")
        for rank in ranks:
            rank.wait_line("phase wait step 5")
        self.guests[0].run("tc qdisc replace dev eth0 root netem loss 100%; sleep 1; "
                           "tc qdisc del dev eth0 root")
        self.assert_trained(ranks)

    def test_a_machine_that_is_gone_is_named(self):
        ranks = self.start(PORT + 3, 500, "--pace-ms 50 --lease-ms 3000")
        for rank in ranks:
            rank.wait_line("phase wait step 5")
        self.guests[1].run("ip link set eth0 down")
        try:
            self.assertEqual(ranks[0].wait(), PEER_LOST, ranks[0].output())
            self.assertIn("rank 1 (host host1)", ranks[0].wait_line("status PEER_LOST"))
            self.assertEqual(ranks[1].wait(), PEER_LOST, ranks[1].output())
        finally:
            self.guests[1].run("ip link set eth0 up")


if __name__ == "__main__":
    unittest.main()
