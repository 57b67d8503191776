# SPDX-License-Identifier: Apache-2.0
"""bench/hot: its ratios, what it refuses, and a run of it."""

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.path.dirname(os.environ.get("TOOL_BIN_DIR", os.path.join(ROOT, "build/release/bin")))
HOT = os.path.join(ROOT, "bench/hot")
sys.path[:0] = [os.path.join(ROOT, "bench/peers")]
# pylint: disable=wrong-import-position
from sparse_steps import sparse_step_of  # noqa: E402

# Another program of the benches has a file of that name.
SPEC = importlib.util.spec_from_file_location("hot_drive", os.path.join(HOT, "drive.py"))
drive = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(drive)


def turn(mean_us, received):
    """The figures of one, as report.py orders them."""
    return [0, 0, mean_us, 0, mean_us, received, 100 + received, 1.0]


class Hot(unittest.TestCase):
    def test_ratios_are_of_the_same_round(self):
        step, other = sparse_step_of("1000x4x8"), sparse_step_of("1000x4x9")
        times = {(step, drive.ONE, "default"): [turn(1_000, 10), turn(2_000, 20), turn(4_000, 40)],
                 (step, "K = 16", "default"): [turn(1_000, 20), turn(3_000, 60), turn(8_000, 40)],
                 (other, drive.ONE, "default"): [turn(9, 9)] * 3}
        ways = drive.ways_of(step, times)
        self.assertEqual({"MB": 40e-6, "ms": 3, "bytes_ratio": (2, 1, 3),
                          "time_ratio": (1.5, 1, 2)}, ways["K = 16"])
        self.assertEqual((1, 1, 1), ways[drive.ONE]["bytes_ratio"])

    def test_wrong_words_end_it_with_a_sentence(self):
        for words, sentence in ((("--hosts", "1"), "2 to 16"), (("--rows", "0"), "--rows"),
                                (("--mbit", "0"), "--mbit"), (("--rounds", "2"), "at least 3"),
                                (("--steps", "8x8"), "is no table"),
                                (("--steps", "8x8x8+8x4x8"), "one width alone"),
                                (("--steps", "8x8x8/adagrad"), "of sgd")):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                drive.options_of(list(words))
            self.assertIn(sentence, said.getvalue())

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_a_run_has_the_bytes_of_its_rows(self):
        # Of two tables every row comes in every step, so bytes can be told: sharded, a host
        # receives half of a row of 32 numbers twice, and half of its id; mirrored, the numbers.
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(
                [sys.executable, os.path.join(HOT, "drive.py"), "--build", BUILD, "--steps",
                 "2*400:400x32x20000", "--rows", "400,1600", "--rounds", "3", "--slice-ms", "1",
                 "--out", out],
                capture_output=True, text=True, check=False, timeout=150, stdin=subprocess.DEVNULL,
                env=dict(os.environ, PARALLAX_ROW_CODING="off"))
            self.assertEqual(0, done.returncode, done.stderr)
            with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
                (cell,) = json.load(file)["cells"]
        self.assertEqual({}, cell["absent"])
        self.assertEqual([drive.ONE, "K = 400", "K = 1,600", "K = 400, merged",
                          "K = 1,600, merged"], list(cell["ways"]))
        one, some, all_rows, *merged = cell["ways"].values()
        self.assertAlmostEqual(1600 * (2 * 128 + 4) / 2e6, one["MB"], delta=0.002)
        self.assertAlmostEqual(1600 * 2 * 128 / 2e6, all_rows["MB"], delta=0.002)
        for way in merged:
            self.assertAlmostEqual(one["MB"], way["MB"], delta=0.001)
        for way in (some, all_rows, *merged):
            self.assertAlmostEqual(way["MB"] / one["MB"], way["bytes_ratio"][0], delta=0.02)
            middle, low, high = way["time_ratio"]
            self.assertTrue(0 < low <= middle <= high)


if __name__ == "__main__":
    unittest.main()
