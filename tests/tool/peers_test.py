# SPDX-License-Identifier: Apache-2.0
"""bench/peers: what its lists hold, how its ratios are bounded, and a run of it."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
PEERS = os.path.join(ROOT, "bench/peers")
BUILD = os.path.dirname(os.environ.get("TOOL_BIN_DIR", os.path.join(ROOT, "build/release/bin")))
sys.path.insert(0, PEERS)
# pylint: disable=wrong-import-position
import figures  # noqa: E402
import steps  # noqa: E402


def drive(*arguments):
    return subprocess.run([sys.executable, os.path.join(PEERS, "drive.py"), "--build", BUILD,
                           *arguments], capture_output=True, text=True, check=False, timeout=150,
                          stdin=subprocess.DEVNULL)


class Peers(unittest.TestCase):
    def test_models_have_their_published_parameters(self):
        self.assertEqual((161, 25_557_032), (len(steps.resnet50()), sum(steps.resnet50())))
        self.assertEqual((284, 23_834_568), (len(steps.inception_v3()), sum(steps.inception_v3())))
        self.assertEqual((256, 262_144), (steps.hundred()[0], steps.hundred()[-1]))

    def test_gradients_come_last_layer_first(self):
        step = steps.step_of("resnet50")
        self.assertEqual((4000, 4 * 1000 * 2048), step.tensors[:2])
        self.assertEqual(4 * 64 * 3 * 49, step.tensors[-1])
        self.assertEqual((step.bytes,), steps.one_of(step).tensors)

    def test_what_is_no_step_is_named(self):
        for word in ("", "0", "6", "8G", "-8", "resnet51"):
            with self.assertRaisesRegex(ValueError, f"'{word}' is neither a size .* nor one of"):
                steps.step_of(word)

    def test_bounds_of_a_median_are_order_statistics(self):
        # Of 15 values the 4th and the 12th: below them lie at most 3 with 1.8%, each side.
        self.assertEqual((4, 12), figures.median_bounds(range(1, 16)))
        self.assertEqual((1, 3), figures.median_bounds([3, 1, 2]))
        self.assertEqual((2.0, 1.0, 4.0), figures.ratio([2, 2, 4], [2, 1, 1]))

    def test_a_run_checks_sums_and_names_the_absent(self):
        with tempfile.TemporaryDirectory() as out:
            done = drive("--sizes", "8,1M,hundred", "--ranks", "3", "--rounds", "3", "--slice-ms",
                         "1", "--out", out, "--without",
                         "torch-gloo,openmpi-ob1,openmpi-ucx,ucc,tensorflow-ob1")
            self.assertEqual(0, done.returncode, done.stderr)
            with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
                results = json.load(file)
        self.assertEqual(["8 B", "1 MiB", "hundred", "hundred as one"],
                         [row["step"] for row in results["rows"]])
        for row in results["rows"]:
            self.assertLess(0, row["ours"]["alloc"]["step_us"])
            self.assertLessEqual(row["ours"]["private"]["reduce_us"],
                                 row["ours"]["private"]["step_us"])
            self.assertLess(0, row["limit_us"]["alloc"])
        self.assertIn("own_one_ratio", results["rows"][2]["ours"]["alloc"])
        self.assertEqual("left out by --without", results["absent"]["torch-gloo"])
        self.assertIn("absent: wire: one host has no wire", done.stdout)

    def test_wrong_words_end_it_with_a_sentence(self):
        for words, sentence in ((("--sizes", "6"), "neither a size"),
                                (("--ranks", "1"), "2 to 16 ranks in all"),
                                (("--mbit", "10"), "between several --hosts"),
                                (("--rounds", "2"), "at least 3")):
            done = drive(*words)
            self.assertEqual(2, done.returncode)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main()
