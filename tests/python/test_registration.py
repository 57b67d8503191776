# SPDX-License-Identifier: Apache-2.0
"""Variables are matched by name, in any order, and more may come between steps."""

import array
import unittest

import libparallax as px
from support import run_ranks


def value_of(job, variable):
    return memoryview(job.read(variable).wait().values).tolist()


class Registration(unittest.TestCase):
    def test_any_order_and_more_between_steps(self):
        def body(job):
            names = ["a", "b"] if job.rank == 0 else ["b", "a"]
            variables = {name: job.register(name, rows=1, rule="sgd", init=ord(name))
                         for name in names}
            job.commit()
            with job.step(learning_rate=1) as step:
                for name in "ab":
                    step.push(variables[name], array.array("f", [job.rank + 1.0]))
            late = job.register("aa", rows=1, rule="sgd", init=5.0)
            with job.step() as step:
                with self.assertRaisesRegex(px.InvalidState, "commit"):
                    step.push(late, array.array("f", [1.0]))
            job.commit()
            job.commit()  # nothing new
            with job.step(learning_rate=1) as step:
                with self.assertRaises(px.InvalidState):
                    job.register("in a step", rows=1)
                step.push(late, array.array("f", [1.0]))
            return [value_of(job, each) for each in (variables["a"], variables["b"], late)]

        for values in run_ranks(2, body):
            self.assertEqual(values, [[[94.0]], [[95.0]], [[3.0]]])

    def test_what_one_rank_lacks_is_named(self):
        def body(job):
            job.register("both", rows=1)
            if job.rank == 1:
                job.register("extra", rows=1)
            with self.assertRaises(px.Mismatch) as refused:
                job.commit()
            self.assertIn("'extra' is registered on rank 1", str(refused.exception))

        run_ranks(2, body)


if __name__ == "__main__":
    unittest.main()
