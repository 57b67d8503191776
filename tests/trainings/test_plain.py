# SPDX-License-Identifier: Apache-2.0
"""The training without a framework: in C, in C++ and in NumPy; and how its lines are counted."""

import os
import tempfile
import unittest

from training import TrainingCase, library_lines


class Plain(TrainingCase):
    def test_c(self):
        self.hold_program("c", "docs/examples/c/training.c")

    def test_cxx(self):
        self.hold_program("cxx", "docs/examples/cxx/training.cc")

    def test_numpy(self):
        self.hold_script("numpy", "numpy", "python3-numpy")


class Counting(unittest.TestCase):
    def lines_of(self, ending, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "training" + ending)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return [line.strip() for line in library_lines(path)]

    def test_c(self):
        self.assertEqual(self.lines_of(".c", """
            /* parallax_open() */
            #include <parallax/parallax.h>
            /* ---- libparallax ---- */
            int a; /* a comment */
            /* One
             * more. */

            {
            }
            int b;
            /* ---- The training ---- */
            int c;
            must(parallax_query(job, &info));
            """.replace("            ", "")), ["int a;", "int b;",
                                                "must(parallax_query(job, &info));"])

    def test_python(self):
        self.assertEqual(self.lines_of(".py", '''
"""px.open() in a docstring
of two lines."""
import libparallax as px
# ---- libparallax ----
def start():  # a comment
    """What it does."""

    first
# ---- The training ----
with px.open() as job:  # a comment
    learn(job.rank)
    learn()
'''), ["def start():", "first", "with px.open() as job:", "learn(job.rank)"])


if __name__ == "__main__":
    unittest.main()
