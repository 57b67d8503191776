# SPDX-License-Identifier: Apache-2.0
"""Values kept in 16 bits, and rows that are pushed in them."""

import unittest

import libparallax as px
from support import needs_numpy, numpy as np, run_ranks


def register(job, name="table", **given):
    return job.register(name, rows=50, row_elements=8, rows_max=50, rule="sgd", **given)


@needs_numpy
class Storage(unittest.TestCase):
    def test_small_updates_add_up_by_chance_alone(self):
        def body(job):
            by_chance = register(job, init=1.0, storage_dtype="bf16", rounding="stochastic")
            nearest = register(job, "nearest", init=1.0, storage_dtype="bfloat16")
            half = register(job, "half", init=1.0, storage_dtype=np.float16)
            job.commit()
            gradient = np.full((50, 8), -2.0 ** -12 / job.world, np.float32)
            for _ in range(64):
                with job.step(learning_rate=1.0) as step:
                    step.push_many([(table, range(50), gradient)
                                    for table in (by_chance, nearest, half)])
            rows = [job.read(table).wait() for table in (by_chance, nearest, half)]
            pulled = job.pull(by_chance, range(50)).wait()
            np.testing.assert_array_equal(pulled, rows[0].values)
            self.assertEqual(rows[0].values.dtype, np.float32)
            return [each.values for each in rows]

        ranks = {world: run_ranks(world, body) for world in (1, 2, 4)}
        want = ranks[1][0]
        for results in ranks.values():
            for values in results:
                for each, one in zip(values, want):
                    np.testing.assert_array_equal(each, one)
        by_chance, nearest, half = want
        # 64 steps of 1/32 of the distance between two numbers: two on the average.
        self.assertLess(abs(by_chance.mean() - (1 + 2 * 2.0 ** -7)), 2.0 ** -9)
        self.assertTrue((nearest == 1).all() and (half == 1).all())

    def test_refused(self):
        def body(job):
            for given, field in (({"storage_dtype": "f24"}, "storage_dtype"),
                                 ({"storage_dtype": "i32"}, "storage_dtype"),
                                 ({"rounding": "stochastic"}, "rounding"),
                                 ({"rounding": "up"}, "rounding"),
                                 ({"wire_dtype": "f8"}, "wire_dtype"),
                                 ({"wire_dtype": "i64"}, "wire_dtype")):
                with self.assertRaises(px.InvalidArgument) as refused:
                    register(job, **given)
                self.assertEqual(refused.exception.field, field)
            with self.assertRaises(px.Unsupported) as refused:
                register(job, dtype="f64", storage_dtype="bf16")
            self.assertEqual(refused.exception.field, "storage_dtype")
            with self.assertRaises(px.Unsupported) as refused:
                register(job, wire_dtype="f16")
            self.assertEqual(refused.exception.field, "wire_dtype")
            register(job, wire_dtype="bf16")
            job.commit()

        run_ranks(1, body)


if __name__ == "__main__":
    unittest.main()
