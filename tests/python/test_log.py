# SPDX-License-Identifier: Apache-2.0
"""The log in Python, and where settings come from."""

import threading
import unittest

import libparallax as px
from support import run_script

OPEN = """
import os
import libparallax as px
with px.open(rank=0, world=1, rendezvous=f"inproc:log-{os.getpid()}") as job:
    print({row["name"]: (row["value"], row["source"])
           for row in job.report("settings")["settings"]}["lease_ms"])
"""


def open_alone(name):
    px.open(rank=0, world=1, rendezvous=f"inproc:{name}").close()


class Callback(unittest.TestCase):
    def setUp(self):
        self.addCleanup(px.set_log_callback, None)

    def test_gets_the_lines(self):
        lines, threads = [], []

        def hear(*line):
            lines.append(line)
            threads.append(threading.get_ident())

        px.set_log_callback(hear, "info")
        open_alone("gets-the-lines")
        px.set_log_callback(None)
        self.assertNotIn(threading.get_ident(), threads)
        level, subsystem, message = [line for line in lines if line[1] == "INIT"][0]
        self.assertIs(level, px.LogLevel.INFO)
        self.assertIn("rank 0 of 1", message)
        count = len(lines)
        open_alone("gets-no-more")
        self.assertEqual(len(lines), count)

    def test_cannot_be_set_from_within(self):
        refused = []

        def hear(*_):
            try:
                px.set_log_callback(None)
            except px.InvalidState as error:
                refused.append(str(error))

        px.set_log_callback(hear, px.LogLevel.INFO)
        open_alone("from-within")
        px.set_log_callback(None)
        self.assertIn("called from the log callback", refused[0])

    def test_refuses_a_wrong_level(self):
        with self.assertRaises(px.InvalidArgument):
            px.set_log_callback(print, "loud")

    def test_may_be_set_at_the_end(self):
        status, out, error = run_script(
            # A line is one write: other threads, and the program itself, write beside it.
            'import sys\nimport libparallax as px\nto = sys.stdout.write\n'
            'px.set_log_callback(lambda *line: to("%s %s %s\\n" % line) and None, "trace")\n'
            + OPEN)
        self.assertEqual((status, error), (0, ""))
        self.assertIn("INIT rank 0 of 1", out)


class Settings(unittest.TestCase):
    def test_say_where_they_came_from(self):
        status, out, error = run_script(OPEN, PARALLAX_LEASE_MS="4321")
        self.assertEqual((status, out.strip(), error), (0, "('4321', 'environment')", ""))

    def test_are_refused_by_name(self):
        status, _, error = run_script(OPEN, PARALLAX_LEASE_MS="soon")
        self.assertEqual(status, 1)
        self.assertIn("environment PARALLAX_LEASE_MS: lease_ms is 'soon'", error)


if __name__ == "__main__":
    unittest.main()
