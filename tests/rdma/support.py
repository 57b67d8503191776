# SPDX-License-Identifier: Apache-2.0
"""What the tests in the guest share: one machine for the tests of a class, and ranks in it."""

import os
import unittest

import guest

BIN = os.environ.get("PARALLAX_TEST_BIN", "")
CACHE = os.environ.get("PARALLAX_TEST_GUEST", "")
DEVICE = "rxe0"
PEER_LOST = 15  # the trainer's exit status
# UCX asks by default that a datagram's destination be the address of the device's first GID, which
# for rxe is not the one that it sends from.
UD = "UCX_UD_VERBS_ETH_DGID_CHECK=n"

# An RDMA device on an interface of its own, which is up and has an address.
RDMA = f"""
set -e
ip link add wire0 mtu 4200 type dummy
ip addr add 10.9.0.1/24 dev wire0
ip link set wire0 up
rdma link add {DEVICE} type rxe netdev wire0
"""


class MachineTest(unittest.TestCase):
    """Tests of a class share the machines that its boot_all() starts."""

    unavailable = None

    @classmethod
    def setUpClass(cls):
        try:
            cls.image = guest.image(CACHE)
        except guest.Unavailable as reason:
            cls.unavailable = str(reason)
            return
        cls.boot_all()

    def setUp(self):
        if self.unavailable:
            self.skipTest(self.unavailable)

    @classmethod
    def boot(cls, **options):
        machine = guest.Guest(cls.image, **options)
        cls.addClassCleanup(machine.close)
        return machine


class GuestTest(MachineTest):
    """One guest, which has the device."""

    @classmethod
    def boot_all(cls):
        cls.guest = cls.boot()
        cls.guest.run(RDMA)

    def start_ranks(self, *options, hosts=(0, 1), steps=6, environment="", prefix="", last="",
                    seconds=60):
        """Ranks of the net tests' trainer on this guest, on hosts by number; `last` are options of
        the last one alone, `prefix` is a command that starts each."""
        folder = self.guest.run("mktemp -d").strip()
        numbers = ",".join(str(host) for host in hosts)
        return [self.guest.start(
            f"{UD} {environment} exec {prefix} {BIN}/parallax_net_trainer --rendezvous "
            f"file:{folder}/meet --rank {rank} --hosts {numbers} --steps {steps} "
            f"{' '.join(options)} {last if rank == len(hosts) - 1 else ''}", seconds)
            for rank in range(len(hosts))]

    def assert_trained(self, ranks):
        """The trainer checks every value itself; all ranks end with the same ones."""
        sums = set()
        for rank in ranks:
            output = rank.check()
            sums.update(line for line in output.splitlines() if line.startswith("checksum"))
        self.assertEqual(len(sums), 1, sums)
