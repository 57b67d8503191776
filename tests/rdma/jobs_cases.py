# SPDX-License-Identifier: Apache-2.0
"""Jobs over RDMA devices: two hosts, emulated in one guest, of a rank each. The trainer checks
every value that it pulls and reduces against its own oracle."""

import unittest

from support import DEVICE, MOUNT_TRACING, PEER_LOST, SHORT_LEASE, TRACING, GuestTest

INFO = "PARALLAX_DEBUG=info"
# Calls of the device's driver.
COUNT_REGISTRATIONS = f"""
set -e
{MOUNT_TRACING}
echo 'p:registered rxe_reg_user_mr' > {TRACING}/kprobe_events
echo 1 > {TRACING}/events/kprobes/registered/enable
"""
STOP_COUNTING = f"""
echo 0 > {TRACING}/events/kprobes/registered/enable
echo > {TRACING}/kprobe_events
"""


class Jobs(GuestTest):
    def test_train_over_rc(self):
        """The first line says which device, why, and what UCX took for each peer."""
        for plan in ("ps", "ar", "auto"):
            with self.subTest(plan=plan):
                ranks = self.start_ranks("--transport rdma --plan-after 3 --pipeline 1",
                                         f"--plan {plan}", environment=INFO)
                self.assert_trained(ranks)
                for rank, other in zip(ranks, (1, 0)):
                    self.assertRegex(
                        rank.output(),
                        r"UCX [0-9.]+ between hosts \(transport, from the program\): "
                        rf"rc,dc,ud on {DEVICE}:1 "
                        r"\(the only RDMA device that is active\), "
                        rf"to rank {other}: rc_verbs/{DEVICE}:1 to {DEVICE}:1\n")

    def test_two_ranks_a_host(self):
        self.assert_trained(self.start_ranks("--transport rdma --plan-after 3",
                                             hosts=(0, 0, 1, 1)))

    def test_a_device_that_is_named_is_taken(self):
        ranks = self.start_ranks(f"--net-device {DEVICE}", environment=INFO, steps=2)
        self.assert_trained(ranks)
        self.assertRegex(ranks[0].output(), r"between hosts \(net_device names an RDMA device\): "
                                            rf"rc,dc,ud on {DEVICE}:1 \(net_device, ")

    def test_a_killed_peer_is_named(self):
        """Over ud; over rc in writes_cases.py."""
        ranks = self.start_ranks(f"--transport rdma {SHORT_LEASE} --plan-after 3", steps=50,
                                 environment="UCX_TLS=ud", last="--die-at push:5")
        self.assertEqual(ranks[1].wait(), 128 + 9)
        self.assertEqual(ranks[0].wait(), PEER_LOST, ranks[0].output())
        self.assertIn("rank 1 (host host1)", ranks[0].wait_line("status PEER_LOST"))
        self.assertNotIn("took neither", ranks[0].output())

    def test_a_link_that_goes_down_is_a_loss_and_a_new_job_can_come(self):
        ranks = self.start_ranks(f"--transport rdma {SHORT_LEASE} --pace-ms 100", steps=500)
        for rank in ranks:
            rank.wait_line("phase wait step 5")
        self.guest.run("ip link set wire0 down")
        try:
            for rank, other in zip(ranks, (1, 0)):
                self.assertEqual(rank.wait(), PEER_LOST, rank.output())
                self.assertIn(f"rank {other} (host host{other})",
                              rank.wait_line("status PEER_LOST"))
        finally:
            self.guest.run("ip link set wire0 up")
        self.assert_trained(self.start_ranks("--transport rdma", steps=2))

    def test_memory_is_registered_once(self):
        """What UCX registers when ranks meet is all: a step registers nothing, however it moves."""
        self.guest.run(COUNT_REGISTRATIONS)
        self.addCleanup(self.guest.run, STOP_COUNTING)
        ranks = self.start_ranks("--transport rdma --plan ps --scale 20 --pace-ms 20", steps=10)
        counts = []
        for step in (3, 9):
            for rank in ranks:
                rank.wait_line(f"phase wait step {step}")
            counts.append(self.guest.run(f"cat {TRACING}/kprobe_profile").split()[1])
        self.assert_trained(ranks)
        self.assertGreater(int(counts[0]), 0)
        self.assertEqual(counts[0], counts[1])


if __name__ == "__main__":
    unittest.main()
