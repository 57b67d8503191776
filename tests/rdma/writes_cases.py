# SPDX-License-Identifier: Apache-2.0
"""Pieces that the device writes into a peer's memory: that they are, by its own counters; what is
registered for them; and what becomes of them when a peer dies or memory may not be locked."""

import json
import unittest

from support import (BIN, DEVICE, LONG_QUEUES, MOUNT_TRACING, PEER_LOST, SHORT_LEASE, TRACING, UCX,
                     GuestTest)

# More than one piece comes back for the widest variable.
WIDE = "--transport rdma --plan ar --compute-threads 0 --scale"
UCX_VERBS = "/usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so.0"
# What UCX does over rc: it writes to the peer, or sends to it.
CALLS = ("put_bcopy", "put_zcopy", "am_bcopy", "am_zcopy", "get_zcopy")


class Writes(GuestTest):
    def count_calls(self):
        """From now on, of UCX's functions; in this test alone, since each is slower for it."""
        table = self.guest.run(f"{MOUNT_TRACING}; nm -D {UCX_VERBS}")
        places = {line.split()[2]: line.split()[0] for line in table.splitlines()
                  if len(line.split()) == 3}
        path = self.guest.run(f"realpath {UCX_VERBS}").strip()
        events = [f"echo 'p:{call} {path}:0x{places[f'uct_rc_verbs_ep_{call}']}' >> uprobe_events; "
                  f"echo 1 > events/uprobes/{call}/enable" for call in CALLS]
        self.guest.run(f"set -e; cd {TRACING}; " + "; ".join(events))
        self.addCleanup(self.guest.run, f"cd {TRACING}; echo 0 > events/uprobes/enable; "
                                        "echo > uprobe_events")

    def counts(self):
        lines = self.guest.run(f"cat {TRACING}/uprobe_profile").splitlines()
        return {line.split()[-2]: int(line.split()[-1]) for line in lines}

    def trained(self, *options, scale=200, **more):
        """The first rank's own report."""
        ranks = self.start_ranks(WIDE, str(scale), *options, **more)
        self.assert_trained(ranks)
        return json.loads(ranks[0].wait_line("stats "))

    def counted(self, **more):
        """Calls of UCX's functions by a training, and its report."""
        before = self.counts()
        stats = self.trained(**more)
        return {call: count - before[call] for call, count in self.counts().items()}, stats

    def test_the_transport(self):
        output = self.guest.run(
            f"{UCX} PARALLAX_TEST_NET_DEVICE={DEVICE}:1 PARALLAX_TEST_NET=rc "
            f"{BIN}/parallax_net_tests --gtest_filter='UcxWrites.*'", 240)
        self.assertIn("[  PASSED  ]", output)
        self.assertNotIn("SKIPPED", output)

    def test_what_comes_back_is_written_by_the_device(self):
        self.count_calls()
        calls, stats = self.counted(steps=3)
        copied, without = self.counted(steps=3, environment="PARALLAX_RDMA_MEMORY_MB=0")
        told = stats["remote_writes"]
        self.assertGreater(told["pieces"], 0)
        self.assertGreater(told["piece_bytes"], 1 << 19)
        self.assertGreater(calls["put_bcopy"], told["piece_bytes"] // 8192)
        self.assertEqual(calls["put_zcopy"] + calls["am_zcopy"] + calls["get_zcopy"], 0)
        # Messages, which are copied at both ends, are so many fewer.
        self.assertEqual(copied["put_bcopy"], 0)
        self.assertNotIn("remote_writes", without)
        self.assertLess(calls["am_bcopy"], 0.75 * copied["am_bcopy"])

    def test_pulled_rows_are_written_by_the_device(self):
        ranks = self.start_ranks("--transport rdma --plan ps --compute-threads 0 --scale 200",
                                 steps=2)
        self.assert_trained(ranks)
        for rank in ranks:
            variables = json.loads(rank.wait_line("stats "))["variables"]
            placed = {each["name"]: each["wire_placed_bytes"] for each in variables}
            # Some twenty rows of the other owner's, of 12,800 bytes each.
            self.assertGreater(placed["embedding"], 100_000, placed)
            self.assertEqual(placed["hot"], 0, "too little of one owner")

    def test_all_bits_are_right_and_steps_register_nothing(self):
        told = self.trained("--deterministic 1 --pipeline 1", steps=8)["remote_writes"]
        self.assertGreater(told["pieces"], 8)
        self.assertLessEqual(told["registrations"], 2, "a result for each step under way")
        self.assertEqual(told["evictions"], 0)

    def test_the_librarys_memory_is_registered_once(self):
        folder = self.guest.run("mktemp -d").strip()
        ranks = [self.guest.start(
            f"{UCX} PARALLAX_TRANSPORT=rdma exec {BIN}/parallax_net_reducer --rank {rank} "
            f"--hosts 0,1 --rendezvous file:{folder}/meet --rounds 3", 120) for rank in range(2)]
        for rank in ranks:
            self.assertIn("right 6", rank.check())
            told = json.loads(rank.wait_line("stats "))["remote_writes"]
            self.assertEqual(told["registrations"], 2, "each of two buffers")
            self.assertEqual(told["registered_bytes"], 2 << 20)
            self.assertGreaterEqual(told["piece_bytes"], 6 * (1 << 19), "what comes back")

    def test_a_frameworks_gradient_in_memory_of_its_own_is_written_too(self):
        """To memory of the exchange, one for each step under way, as nobody knows the caller's."""
        folder = self.guest.run("mktemp -d").strip()
        ranks = [self.guest.start(
            f"{UCX} PARALLAX_TRANSPORT=rdma exec {BIN}/parallax_net_stepper --rank {rank} "
            f"--hosts 0,1 --rendezvous file:{folder}/meet --warm-ups 1 --steps 2 "
            "--elements 262144", 120) for rank in range(2)]
        for rank in ranks:
            rank.check()
            told = json.loads(rank.wait_line("stats "))["remote_writes"]
            self.assertEqual(told["piece_bytes"], 4 * (1 << 19), "half of each step's")
            self.assertEqual(told["registrations"], 2, told)
            self.assertEqual(told["registered_bytes"], 2 << 20)

    def test_registrations_are_bounded(self):
        stats = self.trained(steps=5, environment="PARALLAX_RDMA_MEMORY_MB=1")
        told = stats["remote_writes"]
        self.assertLessEqual(told["registered_bytes"], 1 << 20)
        self.assertGreater(told["refusals"] + told["evictions"] + told["shares_refused"], 0)

    def test_datagrams_write_nothing(self):
        """Over ud UCX would copy, and look at no key. It takes ud by itself where there are more
        peers than it would use rc for, and a rank warns of it unasked."""
        ranks = self.start_ranks(WIDE, "200", steps=4, environment="UCX_RC_MAX_NUM_EPS=1")
        self.assert_trained(ranks)
        for rank, other in zip(ranks, (1, 0)):
            self.assertRegex(rank.output(), rf"PARALLAX WARN NET: open: rank {1 - other} reaches "
                             rf"rank {other} by ud_verbs/{DEVICE}:1 to {DEVICE}:1, of rc,dc,ud on "
                             rf"{DEVICE}:1: UCX took neither rc nor dc")
            told = json.loads(rank.wait_line("stats "))["remote_writes"]
            self.assertEqual((told["pieces"], told["registrations"]), (0, 0), told)

    def test_memory_that_may_not_be_locked_is_copied(self):
        # What UCX locks at open, and some MiB.
        limited = ("setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "
                   "prlimit --memlock=83886080")
        stats = self.trained(scale=900, steps=4, prefix=limited, environment=LONG_QUEUES)
        told = stats["remote_writes"]
        self.assertGreater(told["refusals"], 0, told)
        self.assertIn("ulimit -l", told["refused_why"])

    def test_a_peer_that_is_killed_while_it_writes(self):
        ranks = self.start_ranks(WIDE, "200", SHORT_LEASE, steps=50, last="--die-at wait:3")
        self.assertEqual(ranks[1].wait(), 128 + 9)
        self.assertEqual(ranks[0].wait(), PEER_LOST, ranks[0].output())
        self.assertIn("rank 1 (host host1)", ranks[0].wait_line("status PEER_LOST"))


if __name__ == "__main__":
    unittest.main()
