# SPDX-License-Identifier: Apache-2.0
"""Initial values: drawn by counter, and from arrays."""

import gc
import unittest
import weakref

import libparallax as px
from support import needs_numpy, numpy as np, run_ranks


def values_of(job, *variables):
    return [job.pull(variable, range(variable.rows)).wait() for variable in variables]


@needs_numpy
class Initial(unittest.TestCase):
    def test_normal(self):
        def body(job):
            normal, truncated, wide = (
                job.register(name, rows=4, row_elements=6, rows_max=4, rule="sgd", dtype="f64",
                             init=init)
                for name, init in (("normal", px.Normal(0, 1, seed=7)),
                                   ("truncated", px.TruncatedNormal(0, 1, seed=7)),
                                   ("wide", px.Normal(mean=10, std=0.5, seed=7))))
            job.commit()
            return values_of(job, normal, truncated, wide)

        for normal, truncated, wide in run_ranks(2, body):
            # The test vectors of parallax.h.
            self.assertEqual(normal[3, 5].hex(), "-0x1.4e6179ddd6541p-1")
            self.assertEqual(truncated[3, 5].hex(), "-0x1.3cff688d7386ep-1")
            self.assertLess(np.abs(truncated).max(), 2)
            np.testing.assert_array_equal(wide, 10 + 0.5 * normal)

    def test_from_arrays(self):
        floats = np.arange(12, dtype=np.float32).reshape(4, 3)
        integers = np.arange(4) - 2

        def body(job):
            first = job.register("first", rows=4, row_elements=3, rows_max=4, rule="sgd",
                                 init=floats)
            half = job.register("half", rows=4, row_elements=3, rows_max=4, rule="sgd",
                                dtype="f16", init=floats)  # is kept in float32
            counts = job.register("counts", rows=4, rows_max=4, rule="sum", dtype="i64",
                                  init=integers)
            mine = floats + 1 if job.rank == 0 else None
            root = job.register("root", rows=4, row_elements=3, rows_max=4, rule="adagrad",
                                init=px.FromRank0(mine))
            job.commit()
            return values_of(job, first, half, counts, root)

        for first, half, counts, root in run_ranks(3, body):
            np.testing.assert_array_equal(first, floats)
            np.testing.assert_array_equal(half, floats.astype(np.float16))
            np.testing.assert_array_equal(counts[:, 0], integers)
            np.testing.assert_array_equal(root, floats + 1)

    def test_an_array_is_kept_until_commit(self):
        class Array(np.ndarray):
            pass

        with px.open() as job:
            array = np.full((5, 2), 3, np.float32).view(Array)
            gone = weakref.ref(array)
            variable = job.register("variable", rows=5, row_elements=2, rows_max=5, rule="sgd",
                                    init=array)
            del array
            gc.collect()
            self.assertIsNotNone(gone())
            job.commit()
            gc.collect()
            self.assertIsNone(gone())
            np.testing.assert_array_equal(values_of(job, variable)[0], np.full((5, 2), 3))

    def test_a_refused_commit_leaves_the_array_borrowed(self):
        with px.open() as job:
            job.commit()
            array = np.full((5, 2), 3, np.float32)
            gone = weakref.ref(array)
            variable = job.register("variable", rows=5, row_elements=2, rows_max=5, rule="sgd",
                                    init=array)
            del array
            with job.step():
                with self.assertRaises(px.InvalidState):
                    job.commit()
                gc.collect()
                self.assertIsNotNone(gone())
            job.commit()
            self.assertIsNone(gone())
            np.testing.assert_array_equal(values_of(job, variable)[0], np.full((5, 2), 3))

    def test_refusals(self):
        with px.open() as job:
            for init, said in ((np.zeros(4, np.float32), r"init of variable 'v' has shape \(4,\)"),
                               (np.zeros((4, 3)), "init of variable 'v' is float64"),
                               (px.FromRank0([1, 2]), "init of variable 'v' is of type list"),
                               ("zeros", "init is 'zeros'; give a number"),
                               (None, "init is None; give a number"),
                               (px.Normal(0, -1), "init_std"),
                               (px.TruncatedNormal(float("nan")), "init_mean"),
                               (px.Normal(seed=-1), "init_seed")):
                with self.subTest(init=init):
                    with self.assertRaisesRegex(px.InvalidArgument, said) as caught:
                        job.register("v", rows=4, row_elements=3, rule="sgd", init=init)
                    self.assertTrue(caught.exception.field.startswith("init"))
            with self.assertRaisesRegex(px.InvalidArgument, "rows"):
                job.register("v", rows="4", rule="sgd", init=np.zeros(4, np.float32))
            with self.assertRaisesRegex(px.InvalidArgument, "initial"):  # of rank 0, which this is
                job.register("v", rows=4, rule="sgd", init=px.FromRank0())
                job.commit()

    def test_texts(self):
        self.assertEqual(repr(px.Normal(1, 2, 3)), "libparallax.Normal(1.0, 2.0, seed=3)")
        self.assertEqual(repr(px.TruncatedNormal()),
                         "libparallax.TruncatedNormal(0.0, 1.0, seed=0)")
        self.assertEqual(repr(px.FromRank0()), "libparallax.FromRank0()")


if __name__ == "__main__":
    unittest.main()
