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

    def test_a_pin_is_in_the_plan(self):
        def body(job):
            pinned = job.register("pinned", rows=8, rows_max=4, rule="sgd", method="reduce_rows",
                                  priority=-3)
            job.register("named", rows=8, rows_max=4, rule="sgd")
            job.register("held", rows=8, rows_max=4)
            job.commit()
            with job.step(learning_rate=1) as step:
                step.push(pinned, array.array("q", [job.rank]), array.array("f", [1.0]))
            plan = {each["name"]: each for each in job.report(px.Report.PLAN)["variables"]}
            with self.assertRaisesRegex(px.InvalidArgument, "allgatherv, reduce_rows"):
                job.register("wrong", rows=8, rows_max=4, method=px.Method.PUSH_PULL)
            for priority in (2**31, 1.5):
                with self.assertRaisesRegex(px.InvalidArgument, "priority is "):
                    job.register("wrong", rows=8, priority=priority)
            with self.assertRaisesRegex(px.InvalidArgument, "'ring'"):
                job.register("wrong", rows=8, rows_max=4, method="ring")
            return [(plan[name]["placement"], plan[name]["method"], plan[name]["pin"])
                    for name in ("pinned", "named", "held")], value_of(job, pinned)

        for plan, values in run_ranks(2, body, pins="name?=mirrored", sparse_as_dense=True):
            self.assertEqual(plan, [("mirrored", "reduce_rows", "method reduce_rows"),
                                    ("mirrored", "allgatherv", "placement mirrored"),
                                    ("framework", "made_dense", "method made_dense")])
            self.assertEqual(values, [[-1.0], [-1.0]] + [[0.0]] * 6)


if __name__ == "__main__":
    unittest.main()
