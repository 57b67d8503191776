# SPDX-License-Identifier: Apache-2.0
"""Ranks that torchrun starts: rendezvous "env" beside torch's own store."""

import importlib.util
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "launch"))

from support import RANK, LaunchTest, free_port  # noqa: E402

WORLD = 4


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs torchrun (python3-torch)")
class Torchrun(LaunchTest):
    def torchrun(self, *arguments):
        # Output through torch's files: torch 1.13 fails under Python 3.11 where none goes there.
        return self.start([sys.executable, "-m", "torch.distributed.run", "--redirects", "1",
                           "--tee", "1", "--log_dir", self.folder, *map(str, arguments),
                           "--no_python", RANK], OMP_NUM_THREADS=1)

    def assert_met(self, *agents):
        for agent in agents:
            self.assertEqual(agent.wait(), 0, agent.text)
        text = "".join(agent.text for agent in agents)
        for rank in range(WORLD):
            self.assertIn(f"ok rank {rank} of {WORLD} on 1 hosts", text)

    def test_static_on_one_node(self):
        self.assert_met(self.torchrun("--nproc_per_node", WORLD, "--master_port", free_port()))

    def test_elastic_on_one_node(self):
        self.assert_met(self.torchrun("--standalone", "--nproc_per_node", WORLD))

    def test_two_agents(self):
        port = free_port()
        self.assert_met(*(self.torchrun("--nnodes", 2, "--node_rank", node, "--nproc_per_node",
                                        WORLD // 2, "--master_addr", "127.0.0.1", "--master_port",
                                        port) for node in range(2)))


if __name__ == "__main__":
    unittest.main()
