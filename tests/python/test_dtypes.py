# SPDX-License-Identifier: Apache-2.0
"""Element types, id types and rules, as they go through ctypes; their arithmetic is tested with the
library."""

import unittest

import libparallax as px
from libparallax import _tables

from support import needs_numpy, numpy as np, run_ranks

NUMBERS = [[1, 2], [3, 4]]


def bits_of(values):
    """bfloat16 as NumPy has it: the upper halves of float32."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def array_of(values, dtype):
    return bits_of(values) if dtype.kind == "b" else np.array(values, dtype.storage)


@needs_numpy
class DTypes(unittest.TestCase):
    def test_each_there_and_back(self):
        for dtype in _tables.DTYPES:
            with self.subTest(dtype=dtype.name):
                def body(job, dtype=dtype):
                    dense = job.register("dense", rows=2, row_elements=2, dtype=dtype.name)
                    rows = job.register("rows", rows=9, row_elements=2, dtype=dtype, rows_max=4)
                    managed = job.register("managed", rows=2, row_elements=2, rule="sum",
                                           dtype=dtype.long_name, init=1)
                    job.commit()
                    with job.step() as step:
                        total = step.reduce(dense, array_of(NUMBERS, dtype)).wait()
                        union = step.reduce(rows, [3, 5], array_of(NUMBERS, dtype)).wait()
                        step.push(managed, array_of(NUMBERS, dtype))
                    with job.step() as step:
                        value = step.pull(managed).wait()
                    for got, expected in ((total, [[2, 4], [6, 8]]),
                                          (union.values, [[2, 4], [6, 8]]),
                                          (value, [[3, 5], [7, 9]])):
                        self.assertEqual(got.dtype, dtype.storage)
                        np.testing.assert_array_equal(got, array_of(expected, dtype))
                    return True

                self.assertEqual(run_ranks(2, body), [True, True])

    def test_other_dtypes_at_the_door(self):
        with px.open() as job:
            managed = job.register("managed", rows=4, row_elements=2, rows_max=4, rule="sum",
                                   init=1)
            held = job.register("held", rows=4, row_elements=2, rows_max=4)
            job.commit()
            with job.step() as step:
                with self.assertRaisesRegex(px.InvalidArgument, "is float16; .* dtype="):
                    step.push(managed, [1, 2], np.array(NUMBERS, "f2"))
                step.push(managed, [1, 2], np.array(NUMBERS, "f2"), dtype="f16")
                union = step.reduce(held, [1, 2], bits_of(NUMBERS), dtype="bf16").wait()
            np.testing.assert_array_equal(union.values, bits_of(NUMBERS))
            with job.step() as step:
                wide = step.pull(managed, [1], dtype="f64").wait()
                half, = step.pull_many([(managed, [2])], dtype="bf16").wait()
            self.assertEqual((wide.dtype, wide.tolist()), (np.float64, [[2, 3]]))
            np.testing.assert_array_equal(half, bits_of([[4, 5]]))

    def test_ids(self):
        with px.open() as job:
            table = job.register("table", rows=4, row_elements=2, rows_max=4, rule="sum")
            job.commit()
            for ids in (np.array([2, -1], np.int32), np.array([2, -1]), [2, -1]):
                with job.step() as step:
                    rows = step.pull(table, ids).wait()
                    step.push(table, ids, np.ones((2, 2), np.float32))
                np.testing.assert_array_equal(rows[1], [0, 0])
            with job.step() as step:
                rows = step.pull(table, np.array([2, 1], np.int32)).wait()
            np.testing.assert_array_equal(rows, [[3, 3], [0, 0]])

    def test_rules(self):
        for rule, options in (("adam", {"beta1": 0.5, "beta2": 0.5}),
                              ("momentum", {"momentum": 0.5, "nesterov": True}),
                              ("rowwise_adagrad", {"initial_accumulator_value": 1}),
                              ("adagrad", {"epsilon": 1.0})):
            with self.subTest(rule=rule), px.open() as job:
                table = job.register("table", rows=4, row_elements=2, rows_max=4, rule=rule,
                                     **options)
                job.commit()
                for _ in range(2):
                    with job.step(learning_rate=1) as step:
                        step.push(table, [1], np.ones((1, 2), np.float32))
                with job.step() as step:
                    rows = step.pull(table, [0, 1]).wait()
                expected = {"adam": -2, "momentum": -1.5 - 1.75,
                            "adagrad": -0.5 - 1 / (1 + 2 ** .5),
                            "rowwise_adagrad": -(0.5 ** .5) - 3 ** -.5}[rule]
                np.testing.assert_allclose(rows, [[0, 0], [expected, expected]], rtol=1e-6)

    def test_zero_is_not_the_default(self):
        # Without a past, Adam divides each gradient by its own size.
        for betas, expected in (({"beta1": 0.0, "beta2": 0.0}, -2.0), ({}, -1.917769)):
            with self.subTest(**betas), px.open() as job:
                table = job.register("table", rows=1, rows_max=1, rule="adam", **betas)
                job.commit()
                for gradient in (1, 3):
                    with job.step(learning_rate=1) as step:
                        step.push(table, [0], np.array([gradient], np.float32))
                np.testing.assert_allclose(job.pull(table, [0]).wait(), [[expected]], rtol=1e-5)

    def test_mean_by_row_and_refusal_of_nonfinite(self):
        def body(job):
            rows = job.register("rows", rows=4, rows_max=4, reduction="mean_row",
                                refuse_nonfinite=True)
            job.commit()
            with job.step() as step:
                with self.assertRaisesRegex(px.InvalidArgument, "'rows'"):
                    step.reduce(rows, [0], np.array([np.nan], np.float32)).wait()
                union = step.reduce(rows, [0, 1 + job.rank], np.array([4, 6], np.float32)).wait()
            self.assertEqual(union.values[:, 0].tolist(), [4, 6, 6])
            return True

        self.assertEqual(run_ranks(2, body), [True, True])


if __name__ == "__main__":
    unittest.main()
