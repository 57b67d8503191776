# SPDX-License-Identifier: Apache-2.0
"""Rows of the framework's under a ceiling of what exchanging them may take."""

import threading
import unittest

import libparallax as px
from support import needs_numpy, numpy as np, run_ranks

ROWS, WIDTH = 500, 4


def register(job, **given):
    return job.register("rows", rows=ROWS, row_elements=WIDTH, rows_max=60, **given)


def plan_of(job):
    return job.report("plan")["variables"][0]


@needs_numpy
class Chunks(unittest.TestCase):
    def test_results_are_those_without_a_ceiling(self):
        for method in (None, "made_dense"):
            with self.subTest(method=method):
                self.results_are_those_without(method)

    def results_are_those_without(self, method):
        def body(job, ceiling):
            rows = register(job, exchange_bytes_max=ceiling, method=method)
            job.commit()
            random = np.random.default_rng(job.rank)
            got = []
            for _ in range(3):
                ids = random.integers(0, ROWS, 60)
                with job.step() as step:
                    union = step.reduce(rows, ids, random.random((60, WIDTH), np.float32)).wait()
                got.append((union.ids.copy(), union.values.copy()))
            return got, plan_of(job), job.report("stats")["variables"][0]

        whole = run_ranks(3, lambda job: body(job, 0), deterministic=True)
        for ceiling, chunks in ((1 << 30, 1), (16 << 10, 2)):
            cut = run_ranks(3, lambda job, most=ceiling: body(job, most), deterministic=True)
            for (got, plan, stats), (want, _, _) in zip(cut, whole):
                self.assertTrue((plan["chunks"] >= chunks) if chunks > 1 else plan["chunks"] == 1)
                self.assertLessEqual(plan["exchange_bytes"], ceiling)
                self.assertEqual(plan["exchange_bytes_max"], ceiling)
                self.assertEqual(stats["exchange_chunks"], plan["chunks"])
                for (ids, values), (their_ids, their_values) in zip(got, want):
                    np.testing.assert_array_equal(ids, their_ids)
                    np.testing.assert_array_equal(values, their_values)
        self.assertNotIn("chunks", whole[0][1])

    def test_what_no_chunk_keeps_is_told(self):
        registered = threading.Barrier(2)

        def body(job):
            register(job, exchange_bytes_max=100, method=method)
            # The first rank to know fails the job: all are to be in the call that tells it.
            registered.wait()
            with self.assertRaises(px.LimitExceeded) as refused:
                job.commit()
            self.assertEqual(refused.exception.field, "exchange_bytes_max")
            self.assertIn("raise it to that", str(refused.exception))
            job.report("plan")
            job.report("stats")
            return True

        for method in (None, "allgatherv", "reduce_rows", "made_dense"):
            self.assertEqual(run_ranks(2, body), [True] * 2)

    def test_of_rows_without_a_rule_alone(self):
        def body(job):
            with self.assertRaises(px.InvalidArgument) as refused:
                register(job, rule="sgd", exchange_bytes_max=1000)
            self.assertEqual(refused.exception.field, "exchange_bytes_max")
            return True

        self.assertEqual(run_ranks(1, body), [True])


if __name__ == "__main__":
    unittest.main()
