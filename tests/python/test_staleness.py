# SPDX-License-Identifier: Apache-2.0
"""Pulls ahead of commits: open(staleness=), and steps that are waited for later."""

import array
import collections
import unittest

import libparallax as px
from support import run_ranks

ROWS, STEPS = 6, 12


class Staleness(unittest.TestCase):
    def test_each_gradient_counts_once(self):
        for staleness, bound in ((0, 0), (2, 2), ("async", STEPS)):
            def body(job):
                table = job.register("table", rows=ROWS, rows_max=ROWS, rule="sum")
                job.commit()
                ids = array.array("q", range(ROWS))
                under_way = collections.deque()
                for number in range(1, STEPS + 1):
                    if len(under_way) == bound + 2:
                        under_way.popleft().wait()
                    step = job.step(learning_rate=1)
                    for row in step.pull(table, ids).wait().tolist():
                        self.assertLessEqual(row[0], 2 * (number - 1))
                        self.assertGreaterEqual(row[0], 2 * (number - 1 - bound))
                    step.push(table, ids, array.array("f", [1.0] * ROWS))
                    under_way.append(step.end())
                for end in under_way:
                    end.wait()
                return job.pull(table, ids).wait().tolist()

            for values in run_ranks(2, body, staleness=staleness):
                self.assertEqual(values, [[2.0 * STEPS]] * ROWS)

    def test_what_cannot_be_is_refused(self):
        with self.assertRaisesRegex(px.InvalidArgument, "staleness is 63; at most 62"):
            px.open(staleness=63)
        with self.assertRaisesRegex(px.InvalidArgument, "deterministic is 1"):
            px.open(staleness="async", deterministic=True)


if __name__ == "__main__":
    unittest.main()
