# SPDX-License-Identifier: Apache-2.0
"""What the tests in a guest share: machines for the tests of a class, and ranks in them."""

import os
import sys
import unittest

import guest

BIN = os.environ.get("PARALLAX_TEST_BIN", "")
CACHE = os.environ.get("PARALLAX_TEST_GUEST", "")
DEVICE = "rxe0"
PEER_LOST = 15  # the trainer's exit status
# UCX asks by default that a datagram's destination be the address of the device's first GID, which
# for rxe is not the one that it sends from.
UD = "UCX_UD_VERBS_ETH_DGID_CHECK=n"

# Of the transport's own tests: the machine is emulated, so of what is repeated for long a part; and
# each of some hundred contexts would lock 75 MiB, page by page.
QUICK = ("PARALLAX_TEST_ROUNDS_SHARE=10 UCX_RC_VERBS_RX_QUEUE_LEN=512 "
         "UCX_RC_VERBS_TX_QUEUE_LEN=128 UCX_UD_VERBS_RX_QUEUE_LEN=512")

TRACING = "/sys/kernel/tracing"
MOUNT_TRACING = f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}"

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
    """One guest, which has the device: its own, or one for all classes of this process. Each leaves
    the guest as it was."""

    shares = False
    shared = None

    @staticmethod
    def share():
        GuestTest.shares = True

    @staticmethod
    def close_shared(result):
        """Of a suite, at its end; what the guest complains of is an error of its last test's."""
        machine, GuestTest.shared = GuestTest.shared, None
        if machine is None:
            return
        try:
            machine.close()
        except Exception:
            result.addError(unittest.FunctionTestCase(GuestTest.close_shared), sys.exc_info())

    @classmethod
    def boot_all(cls):
        if cls.shares and GuestTest.shared is None:
            GuestTest.shared = guest.Guest(cls.image)
            GuestTest.shared.run(RDMA)
        cls.guest = GuestTest.shared
        if cls.guest is None:
            cls.guest = cls.boot()
            cls.guest.run(RDMA)

    def start_ranks(self, *options, hosts=(0, 1), steps=6, environment="", prefix="", last="",
                    last_environment="", seconds=90):
        """Ranks of the net tests' trainer on this guest, on hosts by number; `last` are options of
        the last one alone, `prefix` is a command that starts each. The lease is a long one, for
        machines that are busy."""
        folder = self.guest.run("mktemp -d").strip()
        numbers = ",".join(str(host) for host in hosts)
        last_rank = len(hosts) - 1
        return [self.guest.start(
            f"{UD} {environment} {last_environment if rank == last_rank else ''} exec {prefix} "
            f"{BIN}/parallax_net_trainer --rendezvous file:{folder}/meet --rank {rank} "
            f"--hosts {numbers} --steps {steps} --lease-ms 20000 {' '.join(options)} "
            f"{last if rank == last_rank else ''}", seconds)
            for rank in range(len(hosts))]

    def assert_trained(self, ranks):
        """The trainer checks every value itself; all ranks end with the same ones."""
        sums = set()
        for rank in ranks:
            output = rank.check()
            sums.update(line for line in output.splitlines() if line.startswith("checksum"))
        self.assertEqual(len(sums), 1, sums)
