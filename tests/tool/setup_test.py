"""cmake/setup.sh: a build that says how far it is."""

import os
import unittest

import support
from support import run

SETUP = os.path.join(support.SOURCE, "cmake", "setup.sh")


def show(seconds, script):
    return run("bash", "-euc", f"source {SETUP}; {{ {script} }} | parallax_show build {seconds}")


class Show(unittest.TestCase):
    def test_counts_steps_and_copies_what_is_no_step(self):
        said = show(0, "echo '[1/9] cc a'; echo 'a.c: warning'; echo '[2/9] cc b'; printf 'last';")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        lines = [line.split(" after ")[0] for line in said.stdout.splitlines()]
        steps = ["build: 1/9 steps done", "a.c: warning", "build: 1/9 steps done",
                 "build: 2/9 steps done", "last"]
        self.assertEqual(lines, steps)

    def test_a_short_build_says_nothing(self):
        self.assertEqual(show(3600, "echo '[1/1] cc a';").stdout, "")

    def test_a_step_that_takes_long_is_no_silence(self):
        said = show(1, "echo '[1/9] cc a'; sleep 4;")
        self.assertIn("build: 1/9 steps done after ", said.stdout)

    def test_so_is_one_that_prints_nothing(self):
        self.assertIn("build: still at it after ", show(1, "sleep 4;").stdout)


if __name__ == "__main__":
    support.main()
