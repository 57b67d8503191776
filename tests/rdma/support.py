# SPDX-License-Identifier: Apache-2.0
"""What the tests in a guest share: machines for the tests of a class, and ranks in them."""

import os
import unittest

import guest

BIN = os.environ.get("PARALLAX_TEST_BIN", "")
CACHE = os.environ.get("PARALLAX_TEST_GUEST", "")
DEVICE = "rxe0"
PEER_LOST = 15  # the trainer's exit status
# UCX asks by default that a datagram's destination be the address of the device's first GID, which
# for rxe is not the one that it sends from; and each of its contexts would lock 75 MiB, page by
# page, which an emulated machine takes its time for.
UCX = ("UCX_UD_VERBS_ETH_DGID_CHECK=n UCX_RC_VERBS_RX_QUEUE_LEN=512 "
       "UCX_RC_VERBS_TX_QUEUE_LEN=128 UCX_UD_VERBS_RX_QUEUE_LEN=512")
LONG_QUEUES = ("UCX_RC_VERBS_RX_QUEUE_LEN=4096 UCX_RC_VERBS_TX_QUEUE_LEN=256 "
               "UCX_UD_VERBS_RX_QUEUE_LEN=4096")  # UCX's own
# A lease that ranks lose in a test which waits for it: two machines of one processor each, emulated
# on a processor that has other work, take seconds to connect.
SHORT_LEASE = "--lease-ms 10000"
# Of the transport's own tests: of what is repeated for long a part.
QUICK = f"{UCX} PARALLAX_TEST_ROUNDS_SHARE=10"

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


class OnOneGuest(unittest.TestSuite):
    """Cases of files, on one machine that is booted once. `python3 x_cases.py` runs those of a file
    alone, on a machine of their own."""

    def __init__(self, loader, *files):
        GuestTest.shares = True
        super().__init__(loader.loadTestsFromName(f"{file}_cases") for file in files)
        self.addTest(End("test_the_machine_has_no_complaint"))


class End(unittest.TestCase):
    """Of a machine that classes share: behind what the last of them puts back."""

    def test_the_machine_has_no_complaint(self):
        machine, GuestTest.shared = GuestTest.shared, None
        if machine is None:
            self.skipTest(GuestTest.unavailable or "no test used it")
        machine.close()


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
                    last_environment="", seconds=240):
        """Ranks of the net tests' trainer on this guest, on hosts by number; `last` are options of
        the last one alone, `prefix` is a command that starts each. The lease is a long one, for
        machines that are busy."""
        folder = self.guest.run("mktemp -d").strip()
        numbers = ",".join(str(host) for host in hosts)
        last_rank = len(hosts) - 1
        return [self.guest.start(
            f"{UCX} {environment} {last_environment if rank == last_rank else ''} exec {prefix} "
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
