# SPDX-License-Identifier: Apache-2.0
"""What transport "rdma" does where it cannot have RDMA: open fails on every rank, with the cause
and what to do. Never is there another network instead."""

import unittest

from support import DEVICE, GuestTest

UCX_MODULES = "/usr/lib/x86_64-linux-gnu/ucx"


class Refusals(GuestTest):
    def refused(self, *options, status, environment="", last="", prefix=""):
        """The sentence, which all ranks have."""
        ranks = self.start_ranks("--transport rdma", *options, environment=environment,
                                 last=last, prefix=prefix)
        sentences = []
        for rank in ranks:
            self.assertNotEqual(rank.wait(), 0, rank.output())
            sentences.append(rank.wait_line(f"status {status}: "))
        return sentences[0]

    def test_no_device(self):
        self.guest.run(f"rdma link delete {DEVICE}")
        try:
            self.assertIn("no RDMA device that libibverbs can see", self.refused(status="IO"))
        finally:
            self.guest.run(f"rdma link add {DEVICE} type rxe netdev wire0")

    def test_a_port_that_is_down(self):
        self.guest.run("ip link set wire0 down")
        try:
            sentence = self.refused(status="IO")
            self.assertIn(f"no port of an RDMA device works: {DEVICE}:1: it is down", sentence)
            self.assertIn("ip link", sentence)
            sentence = self.refused(f"--net-device {DEVICE}:1", status="IO")
            self.assertIn(f"'{DEVICE}:1'", sentence)
            self.assertIn("is down", sentence)
        finally:
            self.guest.run("ip link set wire0 up")

    def test_an_interface_that_is_no_rdma_device(self):
        sentence = self.refused("--net-device wire0", status="INVALID")
        self.assertIn(f"no RDMA device; there are: {DEVICE} port 1 is active", sentence)

    def test_variables_of_ucx_that_lead_elsewhere(self):
        self.assertIn("UCX_TLS=tcp", self.refused(status="INVALID", environment="UCX_TLS=tcp"))

    def test_ucx_without_verbs(self):
        self.guest.run(f"mkdir -p /run/empty; mount --bind /run/empty {UCX_MODULES}")
        try:
            self.assertIn("libuct_ib.so was not found", self.refused(status="IO"))
        finally:
            self.guest.run(f"umount {UCX_MODULES}")

    def test_no_module(self):
        sentence = self.refused(status="UNSUPPORTED",
                                environment="PARALLAX_MODULE_DIR=/nonexistent")
        self.assertIn("libparallax_ucx.so: no such file", sentence)

    def test_one_rank_that_does_not_say_it(self):
        sentence = self.refused(status="MISMATCH", last="--transport ucx")
        self.assertIn('rank 0 takes "rdma", rank 1 (host host1) takes "ucx"', sentence)

    def test_too_little_memory_may_be_locked(self):
        limited = "setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock prlimit --memlock=65536"
        sentence = self.refused(status="LIMIT", prefix=limited)
        self.assertIn("may lock 64 KiB", sentence)
        self.assertIn("ulimit -l", sentence)


if __name__ == "__main__":
    unittest.main()
