# SPDX-License-Identifier: Apache-2.0
"""Rows with optimizer state, evaluations and micro-batches from Python; their arithmetic is tested
with the library."""

import unittest

import libparallax as px
from libparallax import _tables

from support import needs_numpy, numpy as np, run_ranks

RULES = ("sgd", "adagrad", "adam", "momentum", "rowwise_adagrad", "ftrl")
CHUNK = 3


def register(job, rule, dtype="f32"):
    options = {"momentum": 0.9} if rule == "momentum" else {}
    return job.register(rule, rows=10, row_elements=2, rows_max=10, rule=rule, dtype=dtype,
                        init=px.Uniform(-1, 1, seed=3), **options)


def train(job, table, first, steps):
    for number in range(first, first + steps):
        with job.step(learning_rate=0.1) as step:
            if job.rank == 0:  # worlds of other sizes then sum the same
                step.push(table, [number % 10, 9], np.full((2, 2), number + 1, np.float32),
                          dtype="f32")


def read_chunks(job, table):
    return [job.read(table, row, min(CHUNK, table.rows - row)).wait()
            for row in range(0, table.rows, CHUNK)]


@needs_numpy
class StoredRows(unittest.TestCase):
    def assert_same_rows(self, ours, theirs):
        for one, other in zip(ours, theirs):
            np.testing.assert_array_equal(one.values, other.values)
            self.assertEqual(len(one.state), len(other.state))
            for state, expected in zip(one.state, other.state):
                np.testing.assert_array_equal(state, expected)
            self.assertEqual(one.updates, other.updates)

    def test_training_goes_on_in_a_world_of_another_size(self):
        for rule in RULES:
            for dtype in ("f32", "bf16"):
                with self.subTest(rule=rule, dtype=dtype):
                    def save(job, rule=rule, dtype=dtype):
                        table = register(job, rule, dtype)
                        job.commit()
                        train(job, table, 0, 4)
                        saved = read_chunks(job, table)
                        job.barrier().wait()
                        train(job, table, 4, 3)
                        return saved, read_chunks(job, table)

                    saved, later = run_ranks(2, save)[1]
                    self.assertEqual(saved[0].values.dtype, np.float32)
                    self.assertEqual(saved[0].updates, 4)
                    widths = [2 - by_row for by_row in
                              _tables.RULES[_tables.Rule[rule.upper()]].states]
                    self.assertEqual([part.shape[1] for part in saved[0].state], widths)

                    def restore(job, rule=rule, dtype=dtype):
                        table = register(job, rule, dtype)
                        job.commit()
                        if job.rank == 2:
                            for index, rows in enumerate(saved):
                                job.write(table, rows, index * CHUNK).wait()
                        job.barrier().wait()
                        self.assert_same_rows(read_chunks(job, table), saved)
                        job.barrier().wait()
                        train(job, table, 4, 3)
                        self.assert_same_rows(read_chunks(job, table), later)
                        return True

                    self.assertEqual(run_ranks(3, restore), [True] * 3)

    def test_parts(self):
        with px.open() as job:
            table = register(job, "adagrad")
            job.commit()
            train(job, table, 0, 1)
            alone = job.read(table, 9, state=False).wait()
            self.assertEqual((len(alone.values), alone.state, alone.updates), (1, (), None))
            job.write(table, px.StoredRows(None, (np.full((2, 2), 7, np.float32),)), 3).wait()
            values, (state,), updates = job.read(table).wait()
            np.testing.assert_array_equal(values[9], alone.values[0])
            np.testing.assert_array_equal(state[2:6, 0], [0, 7, 7, 0])
            self.assertEqual(updates, 1)

    def test_what_is_wrong_is_named(self):
        floats = np.zeros((2, 2), np.float32)
        with px.open() as job:
            table = register(job, "sgd")
            held = job.register("held", rows=4)
            job.commit()
            Invalid = px.InvalidArgument
            for words, call in (
                    ("'held'.*framework-held", lambda: job.read(held)),
                    ("'sgd'.*has 10", lambda: job.read(table, 8, 3)),
                    ("at least one row", lambda: job.read(table, 0, 0)),
                    ("'sgd'.*has 10", lambda: job.write(table, px.StoredRows(floats), 9)),
                    ("neither values nor state", lambda: job.write(table,
                                                                   px.StoredRows(None))),
                    (r"state\[0\] is given, but rule sgd keeps 0",
                     lambda: job.write(table, px.StoredRows(floats, (floats,)))),
                    ("no variable of this job", lambda: job.read("sgd")),
                    ("is float64", lambda: job.write(table, px.StoredRows(
                        floats.astype("f8"))))):
                with self.assertRaisesRegex(Invalid, words):
                    call()
            with job.step():
                with self.assertRaisesRegex(px.InvalidState, "read: step 1 is not over"):
                    job.read(table)
                with self.assertRaisesRegex(px.InvalidState, "step 1 is not over"):
                    job.pull(table, [1])


@needs_numpy
class Evaluation(unittest.TestCase):
    def test_one_rank_alone_between_steps(self):
        def body(job):
            table = register(job, "sgd")
            job.commit()
            train(job, table, 0, 3)
            with job.step(absent=True) as step:
                rows = step.pull(table, [9, -1, 2, 9]).wait()
            if job.rank == 1:
                np.testing.assert_array_equal(job.pull(table, [9, -1, 2, 9]).wait(), rows)
                half = job.pull(table, np.array([9], np.int32), dtype="f16").wait()
                np.testing.assert_array_equal(half, rows[:1].astype(np.float16))
            job.barrier().wait()
            return True

        for mode in ("ps", "ar"):
            self.assertEqual(run_ranks(2, body, plan_mode=mode), [True, True])


@needs_numpy
class MicroBatches(unittest.TestCase):
    def test_several_calls_are_one_sum(self):
        def body(job):
            table = job.register("table", rows=4, rows_max=4, rule="sum", accumulate=True)
            held = job.register("held", rows=4, rows_max=4, accumulate=True)
            whole = job.register("whole", rows=2, accumulate=True)
            job.commit()
            ones = np.ones(2, np.float32)
            with job.step() as step:
                step.push(table, [1, 2], ones, more=True)
                step.push(table, [1, 1], ones, more=job.rank == 1)  # its step_end is the last
                self.assertEqual(len(step.reduce(held, [0, 3], ones, more=True).wait().ids), 0)
                union = step.reduce(held, [3, 3], ones).wait()
                step.reduce(whole, ones.copy(), more=True)
                total = step.reduce(whole, ones.copy()).wait()
            self.assertEqual((union.ids.tolist(), union.values[:, 0].tolist()), ([0, 3], [2, 6]))
            self.assertEqual(total.tolist(), [4, 4])
            values = job.pull(table, range(4)).wait()
            self.assertEqual(values[:, 0].tolist(), [0, 6, 2, 0])
            job.barrier().wait()
            return True

        self.assertEqual(run_ranks(2, body), [True, True])


if __name__ == "__main__":
    unittest.main()
