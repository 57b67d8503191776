# SPDX-License-Identifier: Apache-2.0
"""Dense reduces out of place: the gradient stays as it is, the aggregate goes where `into` says."""

import threading
import unittest

import libparallax as px
from libparallax import _core, _step
from support import needs_numpy, numpy as np, run_ranks

try:
    import torch
except ImportError:
    torch = None

needs_torch = unittest.skipIf(torch is None, "PyTorch is missing (python3-torch)")


@needs_numpy
class Into(unittest.TestCase):
    def test_one_and_several_slices(self):
        def body(job):
            first = job.register("first", rows=2, row_elements=2)
            second = job.register("second", rows=3, dtype="f64")
            rows = job.register("rows", rows=10, row_elements=2, rows_max=4)
            job.commit()
            gradient = np.full((2, 2), job.rank + 1, np.float32)
            gradient.flags.writeable = False  # only read
            aggregate = np.zeros(4, np.float32)
            double = np.full(3, job.rank + 1.0)
            with job.step() as step:
                self.assertIs(step.reduce(first, gradient, into=aggregate).wait(), aggregate)
            np.testing.assert_array_equal(aggregate, [6] * 4)
            np.testing.assert_array_equal(gradient, np.full((2, 2), job.rank + 1))
            with job.step() as step:
                into = [np.zeros((2, 2), np.float32), None, None]
                got, union, same = step.reduce_many(
                    [(first, None, gradient), (rows, [job.rank], gradient[:1]), (second, double)],
                    into=into).wait()
            self.assertIs(got, into[0])
            self.assertIs(same, double)
            np.testing.assert_array_equal(got, np.full((2, 2), 6))
            np.testing.assert_array_equal(union.ids, [0, 1, 2])
            np.testing.assert_array_equal(double, [6] * 3)
            with job.step() as step:  # of another dtype than the variable's
                wide = step.reduce(first, np.full((2, 2), 0.5), into=np.empty(4),
                                   dtype="f64").wait()
            np.testing.assert_array_equal(wide, [1.5] * 4)
            return True

        self.assertEqual(run_ranks(3, body), [True] * 3)

    @needs_torch
    def test_tensors(self):
        def body(job):
            held = job.register("held", rows=2, row_elements=2)
            half = job.register("half", rows=2, dtype=torch.bfloat16)
            job.commit()
            gradient, aggregate = torch.full((2, 2), job.rank + 1.0), torch.zeros(2, 2)
            bits = torch.ones(2, dtype=torch.bfloat16)
            with job.step() as step:
                got = step.reduce_many([(held, gradient), (half, bits)],
                                       into=(aggregate, torch.empty_like(bits))).wait()
            self.assertIs(got[0], aggregate)
            self.assertEqual(aggregate.tolist(), [[3, 3], [3, 3]])
            self.assertEqual((got[1].tolist(), bits.tolist()), ([2, 2], [1, 1]))
            self.assertEqual(gradient.tolist(), [[job.rank + 1] * 2] * 2)
            return True

        self.assertEqual(run_ranks(2, body), [True] * 2)

    def test_by_the_compiled_core(self):
        if _core.NATIVE is None:
            self.skipTest("no compiled core (python3-dev >= 3.11), or not used here")
        self.addCleanup(setattr, _step.Step, "_post", _step.Step._post)
        _step.Step._post = None
        with px.open() as job:
            held = job.register("held", rows=2)
            job.commit()
            ones, into = np.ones(2, np.float32), np.zeros(2, np.float32)
            with job.step() as step:
                self.assertIs(step.reduce_many([(held, ones)], into=[into]).wait()[0], into)
            self.assertEqual(into.tolist(), [1, 1])

    def test_refusals(self):
        with px.open() as job:
            held = job.register("held", rows=2, row_elements=2)
            rows = job.register("rows", rows=9, rows_max=4)
            job.commit()
            ones, six = np.ones((2, 2), np.float32), np.ones(6, np.float32)
            frozen = np.zeros(4, np.float32)
            frozen.flags.writeable = False
            step = job.step()
            for gradient, into, said in (
                    (ones, np.zeros(4), "into for variable 'held' is float64"),
                    (ones, np.zeros(3, np.float32), r"into for variable 'held' has shape \(3,\)"),
                    (ones, frozen, "into for variable 'held' is read-only"),
                    (ones, 7, "into for variable 'held' is of type int"),
                    (six[:4], six[2:], "overlap")):
                with self.subTest(said=said):
                    with self.assertRaisesRegex(px.InvalidArgument, said) as caught:
                        step.reduce(held, gradient, into=into)
                    self.assertEqual(caught.exception.variable, "held")
            with self.assertRaisesRegex(px.InvalidArgument, "leave it out") as caught:
                step.reduce(rows, [1], np.ones(1, np.float32), into=np.ones(1, np.float32))
            self.assertEqual(caught.exception.field, "into")
            for into in ([], [ones, ones], ones, 3):
                with self.assertRaisesRegex(px.InvalidArgument, "one buffer or None for each"):
                    step.reduce_many([(held, ones)], into=into)
            with self.assertRaisesRegex(px.InvalidArgument, "give a variable and its gradient"):
                step.reduce_many([(held, None, ones, ones)])
            self.assertIs(step.reduce(held, ones, into=ones).wait(), ones)  # in place
            step.end().wait()

    def test_gradient_survives_a_failure(self):
        gradient = np.arange(1000, dtype=np.float32)

        def body(job):
            held = job.register("held", rows=1000)
            job.commit()
            step = job.step()
            if job.rank == 0:
                request = step.reduce(held, gradient, into=np.empty_like(gradient))
                job.barrier().wait()
                self.assertRaises(px.Aborted, request.wait)
            else:  # which contributes nothing
                job.barrier().wait()
                job.abort("on purpose")

        run_ranks(2, body)
        np.testing.assert_array_equal(gradient, np.arange(1000))


@needs_torch
class Hooks(unittest.TestCase):
    """Hooks of autograd, which copies the gradient that a hook was given while the library reads
    it: over a gradient in place the ranks train apart, silently."""

    STEPS = 20
    WORLD = 2

    def model(self):
        return torch.linspace(-1, 1, 12).reshape(4, 3).requires_grad_()

    def loss(self, weight, rank, number):
        data = torch.sin(torch.arange(20.0).reshape(5, 4) * (rank + 1) + number)
        return torch.tanh(data @ weight).square().mean()

    def own_gradient(self, weight, rank, number):
        """What this rank alone makes of its batch."""
        twin = weight.detach().clone().requires_grad_()
        self.loss(twin, rank, number).backward()
        return twin.grad

    def reference(self):
        weight = self.model()
        optimizer = torch.optim.SGD([weight], lr=0.3, momentum=0.5)
        for number in range(self.STEPS):
            optimizer.zero_grad()
            for rank in range(self.WORLD):
                self.loss(weight, rank, number).backward()
            optimizer.step()
        return weight.detach()

    def train(self, job, hook_of, finish):
        """Each step: a backward with the hook, then finish(own, weight)."""
        weight = self.model()
        held = job.register("weight", rows=4, row_elements=3)
        job.commit()
        optimizer = torch.optim.SGD([weight], lr=0.3, momentum=0.5)
        for number in range(self.STEPS):
            own = self.own_gradient(weight, job.rank, number)
            optimizer.zero_grad()
            with job.step() as step:
                handle = weight.register_hook(hook_of(step, held))
                self.loss(weight, job.rank, number).backward()
                handle.remove()
                finish(own, weight)
            optimizer.step()
        return weight.detach()

    def assert_same_bits(self, tensor, own):
        self.assertEqual(tensor.numpy().tobytes(), own.numpy().tobytes())

    def hold(self, body):
        expected = self.reference()
        for got in run_ranks(self.WORLD, body):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)

    def test_a_hook_that_goes_on(self):
        def body(job):
            handed, requests = [], []

            def hook_of(step, held):
                def hook(gradient):
                    handed.append(gradient)
                    requests.append(step.reduce(held, gradient, into=torch.empty(4, 3)))
                    return gradient  # which autograd copies now, for the request borrows it
                return hook

            def finish(own, weight):
                aggregate = requests.pop().wait()
                self.assert_same_bits(handed.pop(), own)
                self.assert_same_bits(weight.grad, own)
                weight.grad.copy_(aggregate)

            return self.train(job, hook_of, finish)

        self.hold(body)

    def test_a_hook_that_waits(self):
        def body(job):
            handed = []

            def hook_of(step, held):
                def hook(gradient):
                    handed.append(gradient)
                    return step.reduce(held, gradient, into=torch.empty(4, 3)).wait()
                return hook

            def finish(own, _):
                self.assert_same_bits(handed.pop(), own)

            return self.train(job, hook_of, finish)

        self.hold(body)

    def test_in_place_ranks_train_apart(self):
        """What `into` is for. Rank 0 copies before the aggregate is there, and rank 1 after."""
        copied = threading.Barrier(self.WORLD, timeout=60)

        def body(job):
            handed, requests, over = [], [], []

            def hook_of(step, held):
                def hook(gradient):
                    if job.rank == 1:
                        copied.wait()
                    handed.append(gradient)
                    requests.append(step.reduce(held, gradient))
                    if job.rank == 1:
                        requests[-1].wait()
                    return gradient
                return hook

            def finish(own, weight):
                if job.rank == 0:
                    copied.wait()
                requests.pop().wait()
                gradient = handed.pop()
                over.append(torch.equal(gradient, own))
                kept = own if job.rank == 0 else gradient
                self.assert_same_bits(weight.grad, kept)

            weight = self.train(job, hook_of, finish)
            self.assertEqual(over, [False] * self.STEPS)  # it was the aggregate's place
            return weight

        first, second = run_ranks(self.WORLD, body)
        self.assertFalse(torch.allclose(first, second, rtol=1e-2, atol=1e-2))
        self.assertFalse(torch.allclose(first, self.reference(), rtol=1e-2, atol=1e-2))


if __name__ == "__main__":
    unittest.main()
