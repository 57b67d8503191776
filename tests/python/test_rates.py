# SPDX-License-Identifier: Apache-2.0
"""Rates by group and the rule FTRL, as they go through ctypes; their arithmetic is tested with the
library."""

import array
import unittest

import libparallax as px

from support import run_ranks


def floats(*values):
    return array.array("f", values)


def values_of(job, variable):
    return [value for row in memoryview(job.pull(variable).wait()).tolist() for value in row]


class Rates(unittest.TestCase):
    def test_by_group(self):
        def body(job):
            given = [("plain", {}), ("decayed", {"rates": 1}), ("decoupled", {"rates": 2}),
                     ("up", {"rates": 3}), ("clipped", {"rates": 4})]
            variables = [job.register(name, rows=1, rule="sgd", init=2.0, **options)
                         for name, options in given]
            job.commit()
            rates = [px.Rates(0.5), px.Rates(0.5, weight_decay=0.5),
                     px.Rates(0.5, weight_decay=0.5, decoupled=True),
                     px.Rates(0.5, maximize=True), px.Rates(learning_rate=0.5, clip_norm=1.0)]
            with job.step(rates=rates) as step:
                for variable in variables:
                    step.push(variable, floats(1))  # of two ranks: 2
            values = [values_of(job, variable)[0] for variable in variables]
            job.barrier().wait()
            return values

        for values in run_ranks(2, body):
            for value, expected in zip(values, (1, 0.5, 0.5, 3, 1.5)):
                self.assertAlmostEqual(value, expected, places=5)

    def test_may_be_set_before_the_end(self):
        with px.open() as job:
            weight = job.register("weight", rows=1, rule="sgd", init=2.0)
            job.commit()
            with job.step() as step:
                step.push(weight, floats(1))
                step.rates = (px.Rates(0.25),)
            self.assertEqual(values_of(job, weight), [1.75])

    def test_that_differ_are_named(self):
        def body(job):
            weight = job.register("weight", rows=1, rule="sgd", init=2.0)
            job.commit()
            step = job.step(rates=[px.Rates(0.5, weight_decay=job.rank)])
            step.push(weight, floats(1))
            with self.assertRaisesRegex(px.Mismatch, "weight_decay"):
                step.end().wait()
            with job.step(rates=[px.Rates(0.5)]) as step:
                step.push(weight, floats(1))
            job.barrier().wait()
            return values_of(job, weight)

        self.assertEqual(run_ranks(2, body), [[1], [1]])

    def test_refusals(self):
        with px.open() as job:
            job.register("weight", rows=1, rule="sgd", rates=1)
            job.commit()
            for rates, words in (([0.1], r"rates\[0\] is 0.1; it must be Rates"), (5, "is 5"),
                                 ([px.Rates(1), px.Rates("fast")], r"rates\[1\]: learning_rate"),
                                 (px.Rates(1), r"rates\[0\]")):
                with self.subTest(words=words):
                    with self.assertRaisesRegex(px.InvalidArgument, words):
                        job.step(rates=rates)
            self.assertEqual(job.info().step, 0)
            for options in ({"rates": [px.Rates(1)]},
                            {"rates": [px.Rates(1)] * 65},
                            {"rates": [px.Rates(1), px.Rates(-1)]},
                            {"rates": [px.Rates(1)] * 2, "learning_rate": 1.0}):
                with self.subTest(options=options):
                    step = job.step(**options)
                    with self.assertRaises(px.InvalidArgument):
                        step.end()
                    step.rates, step.learning_rate = [px.Rates(1)] * 2, 0
                    step.end().wait()


class Ftrl(unittest.TestCase):
    def test_states_and_value(self):
        with px.open() as job:
            table = job.register("table", rows=2, rule=px.Rule.FTRL, l1=0.5, l2=0.25, beta=0.5,
                                 initial_accumulator_value=1.0, learning_rate_power=-0.5)
            job.commit()
            with job.step(learning_rate=0.5) as step:
                step.push(table, floats(0.25, 2))
            stored = job.read(table).wait()
            n, z = (memoryview(part).tolist() for part in stored.state)
            self.assertEqual((n, z), ([[1.0625], [5.0]], [[0.25], [2.0]]))
            first, second = values_of(job, table)
            self.assertEqual(first, 0)  # |z| <= l1
            # (l1 - z) / (sqrt(n) / lr + 2 * (l2 + beta / (2 * lr)))
            self.assertAlmostEqual(second, -1.5 / (5 ** 0.5 / 0.5 + 1.5), places=6)

    def test_shrinkage(self):
        with px.open() as job:
            table = job.register("table", rows=1, rule="ftrl", l2_shrinkage=0.5,
                                 initial_accumulator_value=0, init=1.0)
            job.commit()
            with job.step(learning_rate=1) as step:
                step.push(table, floats(1))
            z = memoryview(job.read(table).wait().state[1]).tolist()
            self.assertEqual(z, [[1.0]])  # 1 + 2 * 0.5 * 1 - (1 - 0) / 1 * 1

    def test_begins_where_keras_does(self):
        with px.open() as job:
            tables = [job.register(rule, rows=1, rule=rule) for rule in ("ftrl", "adagrad")]
            job.commit()
            begins = [memoryview(job.read(table).wait().state[0]).tolist() for table in tables]
        self.assertAlmostEqual(begins[0][0][0], 0.1, places=7)
        self.assertEqual(begins[1], [[0.0]])

    def test_refusals(self):
        with px.open() as job:
            for options, failure, field in (
                    ({"rule": "ftrl", "l1": -1}, px.InvalidArgument, "l1"),
                    ({"rule": "ftrl", "l2": "a"}, px.InvalidArgument, "l2"),
                    ({"rule": "sgd", "beta": 1}, px.InvalidArgument, "beta"),
                    ({"rule": "sgd", "rates": 64}, px.InvalidArgument, "rates"),
                    ({"rule": "ftrl", "learning_rate_power": 0.0}, px.Unsupported,
                     "learning_rate_power"),
                    ({"rule": "ftrl", "learning_rate_power": -0.25}, px.Unsupported,
                     "learning_rate_power")):
                with self.subTest(options=options):
                    with self.assertRaises(failure) as refused:
                        job.register("table", rows=1, **options)
                    self.assertEqual(refused.exception.field, field)


if __name__ == "__main__":
    unittest.main()
