# SPDX-License-Identifier: Apache-2.0
"""Tied use: several slices of one variable in one call, as of a table that a model uses twice."""

import unittest

import libparallax as px
from support import needs_numpy, numpy as np, run_ranks


@needs_numpy
class Tied(unittest.TestCase):
    def test_rows_are_summed_as_one_slice(self):
        def body(job):
            table = job.register("table", rows=6, row_elements=2, rows_max=4, rule="sum", init=1.0)
            job.commit()
            ones = np.ones((2, 2), np.float32)
            with job.step() as step:
                step.push_many([(table, [0, 1], ones), (table, [1, 5], 10 * (job.rank + 1) * ones)])
            with job.step() as step:
                first, second = step.pull_many([(table, [5, 1]), (table, [0])]).wait()
            return first.tolist(), second.tolist()

        self.assertEqual(run_ranks(2, body), [([[31, 31], [33, 33]], [[3, 3]])] * 2)

    def test_each_slice_of_a_reduce_gets_the_aggregate_of_all(self):
        def body(job):
            dense = job.register("dense", rows=3)
            rows = job.register("rows", rows=9, rows_max=3)
            job.commit()
            mine = np.full(3, job.rank + 1, np.float32)
            place, twice = np.empty(3, np.float32), 2 * mine
            with job.step() as step:
                apart, over, union, same = step.reduce_many(
                    [(dense, mine), (dense, twice), (rows, [job.rank], mine[:1]),
                     (rows, [7, 7], twice[:2])], into=[place, None, None, None]).wait()
            self.assertIs(apart, place)
            self.assertIs(over, twice)
            for aggregate in (apart, over):
                np.testing.assert_array_equal(aggregate, [9] * 3)
            for each in (union, same):
                self.assertEqual((each.ids.tolist(), each.values.ravel().tolist()),
                                 ([0, 1, 7], [1, 2, 12]))
            np.testing.assert_array_equal(mine, [job.rank + 1] * 3)
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_a_second_call_needs_accumulate(self):
        with px.open() as job:
            table = job.register("table", rows=6, rows_max=4, rule="sum")
            job.commit()
            step = job.step()
            step.push(table, [0], np.ones(1, np.float32)).wait()
            with self.assertRaisesRegex(px.InvalidArgument, "accumulate") as caught:
                step.push(table, [1], np.ones(1, np.float32))
            self.assertEqual(caught.exception.variable, "table")
            step.end().wait()

    def test_together_they_have_at_most_rows_max_rows(self):
        with px.open() as job:
            table = job.register("table", rows=6, rows_max=2, rule="sum")
            job.commit()
            step = job.step()
            two = np.ones(2, np.float32)
            with self.assertRaises(px.LimitExceeded) as caught:
                step.push_many([(table, [0, 1], two), (table, [1, 2], two)])
            self.assertEqual(caught.exception.variable, "table")
            step.push_many([(table, [0, 1], two), (table, [1, 0], two)]).wait()
            step.end().wait()
            self.assertEqual(job.pull(table, range(2)).wait().tolist(), [[2], [2]])


if __name__ == "__main__":
    unittest.main()
