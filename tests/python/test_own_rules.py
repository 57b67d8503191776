# SPDX-License-Identifier: Apache-2.0
"""Update rules that are functions of Python, called by the library."""

import gc
import os
import threading
import unittest
import warnings
import weakref

import libparallax as px
from support import TIMEOUT, needs_numpy, numpy as np, run_ranks

ROWS, ELEMENTS = 50, 3


def momentum(block):
    """torch.optim.SGD with momentum 0.5."""
    block.state[0][:] = np.float32(0.5) * block.state[0] + block.gradient
    block.values[:] -= np.float32(block.learning_rate) * block.state[0]


def train(job, variables, steps=4):
    job.commit()
    for number in range(steps):
        ids = np.array([3, 7 + job.rank, 3, 40 - number])
        gradients = np.sin(np.arange(12, dtype=np.float32) + number + job.rank).reshape(4, 3)
        with job.step(learning_rate=0.25) as step:
            for variable in variables:
                step.push(variable, ids, gradients)
    return [job.pull(variable, range(ROWS)).wait() for variable in variables]


@needs_numpy
class OwnRules(unittest.TestCase):
    shape = dict(rows=ROWS, row_elements=ELEMENTS, rows_max=ROWS)

    def test_trains_as_the_librarys_own(self):
        def body(job):
            init = px.Uniform(-1, 1, seed=3)
            return train(job, [
                job.register("own", rule=momentum, state_elements=(ELEMENTS,), init=init,
                             **self.shape),
                job.register("library", rule="momentum", momentum=0.5, init=init, **self.shape)])

        for plan_mode in ("ps", "ar"):
            for own, library in run_ranks(2, body, plan_mode=plan_mode):
                self.assertTrue(own.any())
                np.testing.assert_array_equal(own, library)

    def test_rates_are_there_and_decay_is_the_rules_own(self):
        seen = []

        def lamb_like(block):
            rates = block.rates
            seen.append(rates)
            update = block.gradient + np.float32(rates.weight_decay) * block.values
            ratio = np.linalg.norm(block.values) / np.linalg.norm(update)
            block.values[:] -= np.float32(rates.learning_rate * ratio) * update

        with px.open() as job:
            table = job.register("table", rows=1, row_elements=2, rule=lamb_like, rates=1, init=2.0)
            job.commit()
            given = px.Rates(0.5, weight_decay=0.25, decoupled=True, maximize=True, clip_norm=64)
            with job.step(rates=[px.Rates(7), given]) as step:
                step.push(table, np.array([-3, -4], np.float32))
            with job.step(learning_rate=0.5) as step:
                step.push(table, np.array([0, 1], np.float32))
            self.assertEqual(seen, [given, px.Rates(0.5)])
            update = np.array([3.5, 4.5])
            first = 2 - 0.5 * np.sqrt(8 / (update ** 2).sum()) * update
            second = first - [0, 0.5 * np.linalg.norm(first)]
            np.testing.assert_allclose(job.pull(table).wait(), [second], rtol=1e-6)

    def test_on_threads_beside_others_that_use_the_job(self):
        # Whoever calls the rule needs the GIL, and whoever has the GIL may be in a call of the job:
        # neither may wait for the other.
        def body(job):
            init = px.Uniform(-1, 1, seed=3)
            variables = [
                job.register("own", rule=momentum, state_elements=(ELEMENTS,), init=init,
                             **self.shape),
                job.register("library", rule="momentum", momentum=0.5, init=init, **self.shape)]
            begun, over, failures = threading.Barrier(3), threading.Event(), []

            def ask():
                self.assertEqual(job.info().variables, 2)

            def make():
                array = job.empty((4, 3), "f64")
                array[:] = 7
                self.assertEqual(array.sum(), 84)

            def repeat(work):
                try:
                    work()
                    begun.wait(TIMEOUT)
                    while not over.is_set():
                        work()
                except BaseException as failure:
                    failures.append(failure)

            threads = [threading.Thread(target=repeat, args=(work,)) for work in (ask, make)]
            for thread in threads:
                thread.start()
            try:
                begun.wait(TIMEOUT)
                values = train(job, variables, steps=20)
            finally:
                over.set()
                for thread in threads:
                    thread.join(TIMEOUT)
            self.assertEqual(failures, [])
            return values

        for compute_threads in (0, 2):
            for plan_mode in ("ps", "ar"):
                with self.subTest(compute_threads=compute_threads, plan_mode=plan_mode):
                    for own, library in run_ranks(2, body, plan_mode=plan_mode,
                                                  compute_threads=compute_threads):
                        self.assertTrue(own.any())
                        np.testing.assert_array_equal(own, library)

    def test_a_job_that_is_dropped_within(self):
        # By a collection that happens to run there, where no job may be called.
        class Cycle:
            def __init__(self):
                self.itself, self.job = self, px.open()

        def rule(block):
            cycles.pop()
            gc.collect()
            block.values[:] -= block.gradient

        for compute_threads in (0, 2):
            with self.subTest(compute_threads=compute_threads), warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                descriptors = len(os.listdir("/proc/self/fd"))
                cycles = [Cycle() for _ in range(3)]
                dropped = [weakref.ref(cycle.job._core) for cycle in cycles]
                with px.open(compute_threads=compute_threads) as job:
                    held = job.register("held", rows=2, rule=rule)
                    job.commit()
                    for _ in range(3):
                        with job.step() as step:
                            step.push(held, np.ones(2, np.float32))
                    self.assertEqual(job.pull(held).wait().tolist(), [[-3], [-3]])
                for thread in threading.enumerate():
                    if thread.name == "libparallax-close":
                        thread.join(TIMEOUT)
                self.assertEqual([core() for core in dropped], [None] * 3)
                self.assertEqual(len(os.listdir("/proc/self/fd")), descriptors)

    def test_what_a_block_holds(self):
        seen = []

        def look(block):
            seen.append((block.rows.tolist(), block.values.shape,
                         [(state.shape, state.tolist()) for state in block.state],
                         block.gradient.tolist(), block.learning_rate, block.step, block.updates))
            for array in (block.rows, block.gradient):
                self.assertFalse(array.flags.writeable)
            block.state[1][:] = 9

        with px.open() as job:
            held = job.register("held", rows=9, row_elements=2, rows_max=4, rule=look, dtype="f16",
                                state_elements=(1, 4), initial_accumulator_value=0.5)
            job.commit()
            with job.step(learning_rate=0.125) as step:
                step.push(held, [8, 2, 8], np.ones((3, 2), np.float16))
            stored = job.read(held, 2, 1).wait()
            self.assertEqual([part.tolist() for part in stored.state], [[[0.5]], [[9] * 4]])
            job.write(held, stored, 5).wait()
            self.assertEqual(job.read(held, 5, 1).wait().state[1].tolist(), [[9] * 4])
        self.assertEqual(seen, [([2, 8], (2, 2), [((2, 1), [[0.5]] * 2), ((2, 4), [[0] * 4] * 2)],
                                 [[1, 1], [2, 2]], 0.125, 1, 1)])

    def test_an_exception_ends_the_job_with_its_sentence(self):
        def body(job):
            def rule(block):
                if job.rank == 1:
                    raise ValueError(f"row {block.rows[0]} is odd")

            held = job.register("held", rows=10, rule=rule)
            job.commit()
            with self.assertRaisesRegex(px.Aborted, "step 1.*'held'") as caught:
                with job.step(learning_rate=1) as step:
                    step.push(held, np.ones(10, np.float32))
                job.barrier().wait()  # where the step was committed before it heard of it
            return caught.exception

        first, second = run_ranks(2, body, plan_mode="ar")
        self.assertIsNone(first.__cause__)
        self.assertTrue(second.message.startswith(
            "the rule of variable 'held' raised ValueError: row 0 is odd; "), second.message)
        self.assertIsInstance(second.__cause__, ValueError)

    def test_refusals(self):
        with px.open() as job:
            for field, said, given in (
                    ("rule", "give the function itself", {"rule": "callback"}),
                    ("rule", "must be one of", {"rule": "adamw"}),
                    ("state_elements", "up to two numbers", {"state_elements": (1, 2, 3)}),
                    ("state_elements", "up to two numbers", {"state_elements": 3}),
                    ("state_elements", "up to two numbers", {"state_elements": (-1,)}),
                    ("state_elements", "the only state as the first", {"state_elements": (0, 2)}),
                    ("state_elements", "is the library's own",
                     {"rule": "sgd", "state_elements": (1,)}),
                    ("dtype", "", {"dtype": "i32"})):
                with self.subTest(given=given):
                    with self.assertRaisesRegex(px.InvalidArgument, said) as caught:
                        job.register("v", **{"rows": 4, "rule": momentum, **given})
                    if said:
                        self.assertEqual(caught.exception.field, field)


if __name__ == "__main__":
    unittest.main()
