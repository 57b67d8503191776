# SPDX-License-Identifier: Apache-2.0
"""The example, with 4 processes, and the program that README.md shows."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from support import ROOT, TIMEOUT, needs_numpy

EXAMPLE = os.path.join(ROOT, "bindings", "python", "examples", "train_sparse.py")
LINES_MAX = 25


def run(*command):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False,
                          timeout=4 * TIMEOUT)


@needs_numpy
class Examples(unittest.TestCase):
    def test_train_sparse(self):
        done = run(EXAMPLE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"embedding +sharded, push_pull")
        self.assertRegex(done.stdout, r"linear +mirrored, allreduce")
        # The example compares each loss with one process's itself; here that it says so.
        first, last, alone, after, error = map(float, re.search(
            r"loss ([\d.]+) -> ([\d.]+); one process: ([\d.]+) -> ([\d.]+); "
            r"largest relative difference ([\d.e+-]+)$", done.stdout.strip()).groups())
        self.assertLess(last, first / 2)
        self.assertAlmostEqual(first, alone, places=3)
        self.assertAlmostEqual(last, after, places=3)
        self.assertLessEqual(error, 1e-4)

    def test_train_sparse_on_two_hosts(self):
        done = run(EXAMPLE, "--ranks", "2", "--hosts", "2", "--steps", "10")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_train_sparse_refuses(self):
        done = run(EXAMPLE, "--ranks", "3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--ranks must divide", done.stderr)

    def program(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
        programs = [block for block in blocks if "world=2" in block]
        self.assertEqual(len(programs), 1, "README.md shows one program of two ranks")
        return programs[0]

    def test_program_of_the_readme(self):
        program = self.program()
        self.assertLessEqual(len(program.splitlines()), LINES_MAX)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "two_ranks.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program)
            done = run(path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            promised = re.search(r"^It prints\n\n```\n(.*?)^```$", file.read(), re.M | re.S)
        self.assertEqual(done.stdout, promised[1])


if __name__ == "__main__":
    unittest.main()
