# SPDX-License-Identifier: Apache-2.0
"""Without NumPy memoryviews stand for arrays. Runs in a process that cannot import it."""

import unittest

from support import run_script

SCRIPT = """
import sys
sys.modules["numpy"] = None  # import numpy fails from here on
import array
import libparallax as px

with px.open() as job:
    table = job.register("table", rows=10, row_elements=2, rows_max=4, rule="sgd", init=3.0)
    dense = job.register("dense", rows=2, row_elements=2, tag="dense")
    rows = job.register("rows", rows=10, row_elements=2, tag="sparse", rows_max=4)
    job.commit()
    with job.step(learning_rate=1) as step:
        values = step.pull(table, [1, 2, 1]).wait()
        assert type(values) is memoryview and values.shape == (3, 2) and values.format == "f"
        assert values.tolist() == [[3, 3]] * 3
        assert len(step.pull(table, []).wait()) == 0
        step.push(table, [1, 2], array.array("f", [1, 1, 2, 2]))
        gradient = array.array("f", [1, 2, 3, 4])
        assert step.reduce(dense, gradient).wait() is gradient
        union = step.reduce(rows, [7, 5, 7], array.array("f", [1, 2, 3, 4, 5, 6])).wait()
    assert union.ids.tolist() == [5, 7] and union.ids.format == "q"
    assert union.values.tolist() == [[3, 4], [6, 8]] and union.values.readonly
    with job.step() as step:
        out = bytearray(8)
        step.pull(table, [2], out=memoryview(out).cast("f")).wait()
        assert list(memoryview(out).cast("f")) == [1, 1]
assert union.values.tolist() == [[3, 4], [6, 8]]  # the job is closed by now
print("done")
"""


class WithoutNumPy(unittest.TestCase):
    def test_all_of_it(self):
        status, out, error = run_script(SCRIPT)
        self.assertEqual((status, out), (0, "done\n"), error)


if __name__ == "__main__":
    unittest.main()
