# SPDX-License-Identifier: Apache-2.0
"""Several RDMA devices used by one rank: which they are, that pieces go over all of them, and what
becomes of a job when one is missing or goes down."""

import json
import unittest

from support import BIN, DEVICE, PEER_LOST, QUICK, SHORT_LEASE, GuestTest

SECOND = "rxe1"
ADD = f"""
set -e
ip link add wire1 mtu 4200 type dummy
ip addr add 10.9.1.1/24 dev wire1
ip link set wire1 up
rdma link add {SECOND} type rxe netdev wire1
"""
REMOVE = f"rdma link delete {SECOND}; ip link delete wire1"
INFO = "PARALLAX_DEBUG=info"
# More than one piece comes back for the widest variable.
WIDE = "--transport rdma --plan ar --compute-threads 0 --scale 200"
# Of the conformance suite what asks about connections, losses and waiting; over tcp it runs whole.
CASES = ("forgotten_peers_are_silent", "arm_says_what_poll_finds", "loss_wakes_a_blocked_peer")


class Rails(GuestTest):
    @classmethod
    def boot_all(cls):
        super().boot_all()
        cls.guest.run(ADD)
        cls.addClassCleanup(cls.guest.run, REMOVE)

    def packets(self, device):
        return int(self.guest.run(
            f"cat /sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts"))

    def trained(self, *options, **more):
        """The first rank's line at the start, and its report of what it wrote to the other."""
        ranks = self.start_ranks(WIDE, *options, environment=INFO + " " + more.pop("setting", ""),
                                 **more)
        self.assert_trained(ranks)
        line = [each for each in ranks[0].output().splitlines() if " between hosts (" in each]
        self.assertEqual(len(line), 1, ranks[0].output())
        return line[0], json.loads(ranks[0].wait_line("stats "))["remote_writes"]

    def test_the_transport(self):
        cases = ":".join(f"Conform_ucx_rails.{case}" for case in CASES)
        output = self.guest.run(
            f"{QUICK} PARALLAX_TEST_NET_DEVICE={DEVICE}:1 "
            f"PARALLAX_TEST_MORE_DEVICE={SECOND}:1 PARALLAX_TEST_NET=rc "
            f"{BIN}/parallax_net_tests --gtest_filter='UcxWrites.*:{cases}'", 150)
        self.assertIn("[  PASSED  ]", output)
        self.assertNotIn("SKIPPED", output)

    def test_pieces_go_over_both(self):
        # A rail gets the next piece once it is rid of others: where the machine is busy with other
        # work, few steps may find one of them ready all the time.
        for steps in (4, 8, 16):
            before = self.packets(SECOND)
            line, told = self.trained("--deterministic 1 --pipeline 1", steps=steps)
            if told["rails"][-1]["piece_bytes"] > told["piece_bytes"] // 3:
                break
        self.assertIn(f"rc,dc,ud on {DEVICE}:1, pieces over {SECOND}:1 too (of 2 active ports of "
                      "this host: ", line)
        self.assertEqual([rail["device"] for rail in told["rails"]],
                         [f"{DEVICE}:1", f"{SECOND}:1"])
        for rail in told["rails"]:
            self.assertEqual(rail["peers"], 1, told)
            self.assertGreater(rail["pieces"], 0, told)
        # The first has the messages as well.
        second = told["rails"][1]["piece_bytes"]
        self.assertGreater(second, told["piece_bytes"] // 3, told)
        self.assertGreater(self.packets(SECOND) - before, second // 4096)

    def test_a_rank_that_has_one_rail(self):
        """Those serve a pair that both have."""
        before = self.packets(SECOND)
        ranks = self.start_ranks(WIDE, steps=3, environment=INFO,
                                 last_environment="PARALLAX_RAILS=1")
        self.assert_trained(ranks)
        told = [json.loads(rank.wait_line("stats "))["remote_writes"]["rails"] for rank in ranks]
        self.assertEqual([[rail["peers"] for rail in each] for each in told], [[1, 0], [1]])
        self.assertGreater(told[0][0]["pieces"], 0)
        self.assertIn(f"rc,dc,ud on {DEVICE}:1 (of 2 active ports", ranks[1].output())
        self.assertEqual(self.packets(SECOND), before)

    def test_memory_that_may_be_locked_for_one(self):
        limited = ("setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "
                   "prlimit --memlock=125829120")
        line, told = self.trained(prefix=limited, steps=2)
        self.assertIn(f"{SECOND}:1 is left out: ", line)
        self.assertIn("ulimit -l", line)
        self.assertEqual(len(told["rails"]), 1)
        ranks = self.start_ranks(WIDE, prefix=limited,
                                 environment=f"PARALLAX_RAILS={DEVICE},{SECOND}")
        for rank in ranks:
            self.assertNotEqual(rank.wait(), 0, rank.output())
            sentence = rank.wait_line("status LIMIT: ")
            self.assertIn("this process may lock 122880 KiB: raise it", sentence)
            self.assertIn("or use fewer than 2 rails", sentence)

    def test_a_port_that_goes_down_and_the_next_job(self):
        ranks = self.start_ranks(WIDE, f"{SHORT_LEASE} --pace-ms 50", steps=200)
        for rank in ranks:
            rank.wait_line("phase wait step 4")
        self.guest.run("ip link set wire1 down")
        try:
            for rank in ranks:
                self.assertEqual(rank.wait(), PEER_LOST, rank.output())
            sentences = [rank.wait_line("status PEER_LOST") for rank in ranks]
            self.assertTrue(any(f", over {SECOND}:1)" in each for each in sentences), sentences)
            line, _ = self.trained(steps=1)
            self.assertIn(f"on {DEVICE}:1 (the only RDMA device that is active)", line)
        finally:
            self.guest.run("ip link set wire1 up")


if __name__ == "__main__":
    unittest.main()
