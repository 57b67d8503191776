# SPDX-License-Identifier: Apache-2.0
"""Steps of several ranks, threads of this process, against what one process computes."""

import threading
import unittest

import libparallax as px

from support import TIMEOUT, needs_numpy, numpy as np, run_ranks


@needs_numpy
class Steps(unittest.TestCase):
    def test_managed_rows(self):
        def body(job):
            table = job.register("table", rows=100, row_elements=3, tag="sparse", rows_max=8,
                                 rule="sgd", init=2.0)
            self.assertEqual(table.shape, (100, 3))
            job.commit()
            ids = np.array([7, 50 + job.rank, 7])
            for number in (1, 2, 3):
                with job.step(learning_rate=0.5) as step:
                    self.assertEqual(step.number, number)
                    rows = step.pull(table, ids).wait()
                    step.push(table, ids, np.ones((3, 3), np.float32))
                self.assertTrue(step.info.committed)
                self.assertEqual(step.info.contributors, 2)
                # Row 7 gets two ones of both ranks in each step, the others one of one rank.
                np.testing.assert_array_equal(rows[0], np.full(3, 2 - 2.0 * (number - 1)))
                np.testing.assert_array_equal(rows[1], np.full(3, 2 - 0.5 * (number - 1)))
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_ids_of_any_shape(self):
        with px.open() as job:
            table = job.register("table", rows=10, row_elements=2, rows_max=8, rule="sgd",
                                 init=px.Uniform(-1, 1, seed=3))
            job.commit()
            ids = np.array([[1, 2], [3, 1]])
            with job.step() as step:
                rows = step.pull(table, ids).wait()
                self.assertEqual(rows.shape, (2, 2, 2))
                np.testing.assert_array_equal(rows[0, 0], rows[1, 1])
                self.assertEqual(step.pull(table, []).wait().shape, (0, 2))
                self.assertTrue((np.abs(rows) <= 1).all() and rows.any())

    def test_pull_writes_into_out(self):
        with px.open() as job:
            table = job.register("table", rows=10, row_elements=2, rows_max=8, rule="sgd",
                                 init=3.0)
            dense = job.register("dense", rows=2, row_elements=2, rule="adagrad", init=4.0)
            job.commit()
            out = np.zeros((3, 2), np.float32)
            with job.step() as step:
                self.assertIs(step.pull(table, [1, 2], out=out[1:]).wait().base, out)
                np.testing.assert_array_equal(out, [[0, 0], [3, 3], [3, 3]])
                rows, matrix = step.pull_many([(table, [1], None), (dense,)]).wait()
                np.testing.assert_array_equal(rows, [[3, 3]])
                np.testing.assert_array_equal(matrix, np.full((2, 2), 4))

    def test_framework_held(self):
        def body(job):
            dense = job.register("dense", rows=2, row_elements=2, tag="dense")
            rows = job.register("rows", rows=10, row_elements=2, tag="sparse", rows_max=4)
            job.commit()
            gradient = np.full((2, 2), job.rank + 1, np.float32)
            with job.step() as step:
                first, second = step.reduce(dense, gradient), step.reduce(
                    rows, [job.rank, 9], np.full((2, 2), job.rank + 1, np.float32))
                self.assertIs(first.wait(), gradient)
                union = second.wait()
            np.testing.assert_array_equal(gradient, np.full((2, 2), 6))
            np.testing.assert_array_equal(union.ids, [0, 1, 2, 9])
            np.testing.assert_array_equal(union.values[:, 0], [1, 2, 3, 6])
            self.assertFalse(union.values.flags.writeable)
            with job.step() as step:
                _, union = step.reduce_many([(dense, gradient), (rows, [], gradient[:0])]).wait()
            self.assertEqual((union.ids.shape, union.values.shape), ((0,), (0, 2)))
            return True

        self.assertEqual(run_ranks(3, body), [True] * 3)

    def test_clip_skip_and_absence(self):
        def body(job):
            weight = job.register("weight", rows=1, row_elements=2, tag="dense", rule="sgd")
            job.commit()
            with job.step(learning_rate=1, clip_norm=1) as step:
                step.push(weight, np.array([[3, 4]], np.float32))
            self.assertAlmostEqual(step.info.gradient_norm, 10)
            self.assertAlmostEqual(step.info.clip_scale, 0.1, places=6)
            with job.step(learning_rate=1) as step:
                step.push(weight, np.ones((1, 2), np.float32))
                step.found_inf = job.rank == 1
            self.assertFalse(step.info.committed)
            with job.step(absent=job.rank == 1) as step:
                value = step.pull(weight).wait()
            self.assertEqual(step.info.contributors, 1)
            np.testing.assert_allclose(value, [[-0.6, -0.8]], rtol=1e-5)
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_exception_discards_the_step_everywhere(self):
        def body(job):
            weight = job.register("weight", rows=1, tag="dense", rule="sgd")
            job.commit()
            for number in (1, 2):
                try:
                    with job.step(learning_rate=1) as step:
                        step.push(weight, np.ones(1, np.float32))
                        if job.rank == 0 and number == 1:
                            raise KeyError("batch")
                    self.assertEqual(step.info.committed, number == 2)
                except KeyError:
                    self.assertEqual((job.rank, number), (0, 1))
            with job.step() as step:
                return float(step.pull(weight).wait()[0, 0])

        self.assertEqual(run_ranks(2, body), [-2.0, -2.0])

    def test_overlapping_steps(self):
        with px.open() as job:
            weight = job.register("weight", rows=1, tag="dense", rule="sgd")
            job.commit()
            ends = []
            for _ in range(5):
                step = job.step(learning_rate=1)
                step.push(weight, np.ones(1, np.float32))
                if ends:
                    ends[-1].wait()
                ends.append(step.end())
            px.wait_all(ends)
            self.assertEqual([end.wait().step for end in ends], [1, 2, 3, 4, 5])
            self.assertEqual(step.info, ends[-1].wait())
            self.assertEqual(job.info().step_committed, 5)

    def test_broadcast_and_barrier(self):
        def body(job):
            job.commit()
            values = np.arange(5) if job.rank == 1 else np.zeros(5, int)
            self.assertIs(job.broadcast(values, root=1).wait(), values)
            self.assertEqual(job.broadcast(bytearray()).wait(), b"")
            raw = bytearray(b"abc" if job.rank == 0 else b"xyz")
            job.broadcast(raw).wait()
            px.wait_all([job.barrier(), job.barrier()])
            return values.sum(), bytes(raw)

        self.assertEqual(run_ranks(3, body), [(10, b"abc")] * 3)

    def test_rendezvous_by_allgather(self):
        world, barrier, blobs = 2, threading.Barrier(2), {}

        def exchange(rank):
            def allgather(blob):
                blobs[rank] = blob
                barrier.wait(TIMEOUT)
                gathered = [blobs[other] for other in range(world)]
                barrier.wait(TIMEOUT)
                return gathered
            return allgather

        sums = [None] * world

        def run(rank):
            with px.open(rank=rank, world=world, allgather=exchange(rank),
                               timeout=TIMEOUT) as job:
                dense = job.register("dense", rows=1, tag="dense")
                job.commit()
                with job.step() as step:
                    sums[rank] = float(step.reduce(dense, np.ones(1, np.float32)).wait()[0])

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sums, [2.0, 2.0])

    def test_reports(self):
        with px.open() as job:
            job.register("table", rows=10, rows_max=2, rule="sgd")
            job.commit()
            self.assertEqual(job.report()["variables"][0]["name"], "table")
            stats = job.report("stats")
            self.assertGreater(stats["variables"][0]["memory_reserved_bytes"], 0)
            self.assertIsNone(stats["late"])
            self.assertIs(job.info().late_phase, px.Phase.NONE)
            self.assertIsInstance(job.report(px.Report.TOPOLOGY), dict)
            with self.assertRaisesRegex(px.InvalidArgument, "'plan', 'stats', 'topology'"):
                job.report("everything")


@needs_numpy
class Refusals(unittest.TestCase):
    """What a step refuses, in the words of the caller's variables; nothing is posted."""

    def setUp(self):
        self.job = px.open()
        self.addCleanup(self.job.close)
        self.table = self.job.register("table", rows=10, row_elements=2, rows_max=4, rule="sgd")
        self.held = self.job.register("held", rows=2, row_elements=2)
        self.job.commit()

    def refused(self, kind, words, call, *arguments, **named):
        with self.assertRaisesRegex(kind, words):
            call(*arguments, **named)

    def test_step(self):
        ones = np.ones((2, 2), np.float32)
        invalid = px.InvalidArgument
        with self.job.step() as step:
            self.refused(invalid, "the gradient of variable 'table' has shape",
                         step.push, self.table, [1], ones)
            self.refused(invalid, "the gradient of variable 'table' is float64",
                         step.push, self.table, [1, 2], ones.astype(float))
            self.refused(invalid, "row ids of variable 'table' are float64",
                         step.push, self.table, np.ones(2), ones)
            self.refused(invalid, "out for variable 'table' is read-only",
                         step.pull, self.table, [1], out=bytes(8))
            self.refused(invalid, "'table'", step.pull, self.table, [10])
            self.refused(invalid, "'held'", step.pull, self.held)
            self.refused(invalid, "give a variable and its gradient", step.push, self.table)
            self.refused(invalid, "is no variable of this job", step.push, "table", ones)
            self.refused(invalid, "a slice is a variable", step.pull_many, [()])
            with px.open() as other:
                foreign = other.register("table", rows=10, row_elements=2, rows_max=4, rule="sgd")
                self.refused(invalid, "is no variable of this job", step.pull, foreign, [1])
        self.refused(px.InvalidState, "push: step 1 has ended", step.push, self.table, [1, 2],
                     ones)

    def test_two_steps_at_once(self):
        with self.job.step():
            self.refused(px.InvalidState, "step", self.job.step)

    def test_learning_rate(self):
        step = self.job.step()
        step.learning_rate = "fast"
        self.refused(px.InvalidArgument, "step.end: learning_rate is 'fast'", step.end)
        step.learning_rate = float("nan")
        self.refused(px.InvalidArgument, "learning_rate", step.end)
        step.learning_rate = 0.5
        self.assertTrue(step.end().wait().committed)

    def test_allgather(self):
        def broken(_):
            raise KeyError("no exchange")

        self.refused(KeyError, "no exchange", px.open, world=2, allgather=broken)
        self.refused(px.InvalidArgument, "allgather gave blobs of", px.open, world=2,
                     allgather=lambda blob: [blob])


if __name__ == "__main__":
    unittest.main()
