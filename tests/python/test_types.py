# SPDX-License-Identifier: Apache-2.0
"""Type hints: mypy --strict over the package, and over a program that uses it."""

import os
import shutil
import subprocess
import tempfile
import unittest

from support import ROOT, TIMEOUT

PROJECT = os.path.join(ROOT, "bindings", "python")

GOOD = """
import numpy as np
import libparallax as px

def train(job: px.Job) -> float:
    table = job.register("table", rows=10, row_elements=2, rows_max=4, rule="sgd")
    held = job.register("held", rows=10, rows_max=4)
    job.commit()
    with job.step(learning_rate=0.1) as step:
        rows = step.pull(table, np.array([1, 2])).wait()
        step.push(table, [1, 2], np.ones_like(rows))
        union: px.Rows = step.reduce(held, [1], np.ones(1, np.float32)).wait()
    assert step.info is not None and step.info.committed
    with job.split([0, 1]) as part, part.step(rates=[px.Rates(0.1, clip_norm=1.0)]):
        assert part.allreduce(1.5, "mean").wait() > 0
    return float(union.values.sum())
"""
BAD = """
import libparallax as px

def train(job: px.Job) -> None:
    job.register("table", rows="ten")
    job.step(0.1)
    with job.step() as step:
        step.push("table", [1], [2], [3])
        number: int = step.pull(job.register("x", rows=1)).wait()
"""


@unittest.skipIf(shutil.which("mypy") is None, "mypy is missing (Debian package mypy)")
class Types(unittest.TestCase):
    def mypy(self, *arguments):
        with tempfile.TemporaryDirectory() as cache:
            return subprocess.run(
                ["mypy", "--strict", "--cache-dir", cache, *arguments], cwd=ROOT, text=True,
                capture_output=True, check=False, timeout=4 * TIMEOUT,
                env={**os.environ, "MYPYPATH": PROJECT})

    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return self.mypy(path)

    def test_package(self):
        done = self.mypy(os.path.join(PROJECT, "libparallax"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_user(self):
        done = self.check(GOOD)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_mistakes_are_found(self):
        done = self.check(BAD)
        self.assertEqual(done.returncode, 1, done.stderr)
        found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
        self.assertEqual(found, {5, 6, 8, 9}, done.stdout)


if __name__ == "__main__":
    unittest.main()
