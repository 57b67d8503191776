# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors, which have no buffer protocol but DLPack: borrowed as they lie."""

import os
import unittest

try:
    import torch
except ImportError:
    torch = None

import libparallax as px

from support import TIMEOUT


@unittest.skipIf(torch is None, "PyTorch is missing (python3-torch)")
class Torch(unittest.TestCase):
    def setUp(self):
        self.job = px.open(timeout=TIMEOUT)
        self.addCleanup(self.job.close)
        self.table = self.job.register("table", rows=10, row_elements=2, rows_max=4, rule="sgd",
                                       dtype=torch.float32, init=3.0)
        self.held = self.job.register("held", rows=2, row_elements=2)
        self.job.commit()

    def test_trains(self):
        rows = torch.empty(3, 2)
        ids = torch.tensor([1, 4, 1])
        for number in range(3):
            with self.job.step(learning_rate=0.5) as step:
                self.assertIs(step.pull(self.table, ids, out=rows).wait(), rows)
                self.assertEqual(rows.tolist(), [[3 - number] * 2, [3 - number / 2] * 2,
                                                 [3 - number] * 2])
                step.push(self.table, ids, torch.ones(3, 2))

    def test_reduces_in_place(self):
        gradient = torch.ones(2, 2)
        with self.job.step() as step:
            self.assertIs(step.reduce(self.held, gradient).wait(), gradient)

    def test_bytes(self):
        given = torch.tensor([[1, 200], [3, 4]], dtype=torch.uint8)
        self.assertEqual(self.job.allgather(given).wait().tolist(), [given.tolist()])
        into = torch.zeros(4, dtype=torch.uint8)
        self.assertIs(self.job.collective("broadcast", given, into).wait(), into)
        self.assertEqual(into.tolist(), [1, 200, 3, 4])
        with self.assertRaisesRegex(px.InvalidArgument, "cannot combine.*uint8 is bytes"):
            self.job.allreduce(given)

    def test_gradient_of_autograd(self):
        weight = torch.ones(2, 2, requires_grad=True)
        (weight * 3).sum().backward()
        with self.job.step(learning_rate=1) as step:
            step.push(self.table, [0, 1], weight.grad)
            with self.assertRaisesRegex(px.InvalidArgument, "__dlpack__ refused.*detach"):
                step.reduce(self.held, weight)
        with self.job.step() as step:
            self.assertEqual(step.pull(self.table, [0]).wait().tolist(), [[0, 0]])

    @unittest.skipIf("libtsan" in os.environ.get("LD_PRELOAD", ""),
                     "ThreadSanitizer allows a forked child no thread")
    def test_beside_a_data_loader(self):
        # Its workers are forked from this process, job and all, and end while the job goes on.
        ids = torch.arange(8).reshape(4, 2)
        for epoch in range(2):
            loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ids), batch_size=1,
                                                 num_workers=2)
            for (batch,) in loader:
                with self.job.step(learning_rate=1) as step:
                    step.push(self.table, batch[0], torch.ones(2, 2))
            with self.job.step() as step:
                self.assertEqual(step.pull(self.table, [0, 7, 8]).wait().tolist(),
                                 [[2 - epoch] * 2, [2 - epoch] * 2, [3, 3]])

    def test_refusals(self):
        with self.job.step() as step:
            with self.assertRaisesRegex(px.InvalidArgument, "not contiguous"):
                step.push(self.table, [1, 2], torch.ones(2, 2).t().expand(2, 2)[:, :1].expand(2, 2))
            with self.assertRaisesRegex(px.InvalidArgument, "is float64"):
                step.push(self.table, [1, 2], torch.ones(2, 2, dtype=torch.float64))
            with self.assertRaisesRegex(px.InvalidArgument, "is bfloat16"):
                step.push(self.table, [1, 2], torch.ones(2, 2, dtype=torch.bfloat16))


if __name__ == "__main__":
    unittest.main()
