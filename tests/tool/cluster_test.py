# SPDX-License-Identifier: Apache-2.0
"""bench/cluster: its formulas, what it makes of times, what it refuses, and a run of it."""

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
CLUSTER = os.path.join(ROOT, "bench/cluster")
sys.path[:0] = [CLUSTER, os.path.join(ROOT, "bench/peers")]
# pylint: disable=wrong-import-position
import cells  # noqa: E402
from setup import Setup  # noqa: E402
from sparse_steps import sparse_step_of  # noqa: E402

# Another program of the benches has a file of that name.
SPEC = importlib.util.spec_from_file_location("cluster_drive", os.path.join(CLUSTER, "drive.py"))
drive = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(drive)

PEERS = ("openmpi-ob1", "openmpi-ob1-yield", "openmpi-ucx", "openmpi-ucx-yield", "torch-gloo",
         "ps-lite", "ps-lite-host")


def turn(mean_us, busiest, headers=1.0):
    """The figures of one, as report.py orders them."""
    return [0, 0, mean_us, 0, mean_us, busiest, busiest, headers]


class Cluster(unittest.TestCase):
    def test_bytes_are_those_of_the_formulas(self):
        # 2 hosts of 2 ranks, 8 ids a rank of 4 numbers, and so 20 bytes a row with its id, which
        # goes once.
        step = sparse_step_of("1000x4x8")
        found = cells.formula_bytes(step, 2, 2, [cells.Rows(rank=6, host=10, world=16)])
        self.assertEqual({"push_pull": 10 * 36 / 2, "push_pull_keys": 10 * 40 / 2,
                          "naive_ps": 2 * 6 * 36 / 2, "ps-lite": 2 * 6 * 56 / 2,
                          "replicated": 10 * 20,
                          "gather": 2 * 8 * 20, "gather-merged": 2 * 6 * 20,
                          "torch-sparse": 2 * 6 * 24, "owners": 2 * 6 * 36 / 2,
                          "ranges": 2 * 8 * 20, "balanced": (2 * 6 + 16) * 20 / 2}, found)
        # More hosts than rows are worth gathering for: by owners; and no more than all rows whole.
        found = cells.formula_bytes(step, 8, 1, [cells.Rows(6, 6, 20)])
        self.assertEqual(7 / 8 * 26 * 20, found["replicated"])
        found = cells.formula_bytes(sparse_step_of("8x4x8"), 8, 1, [cells.Rows(8, 8, 8)])
        self.assertEqual(2 * 7 / 8 * 8 * 16, found["replicated"])
        # Of two tables, the sum of both; and values of bf16 have two bytes, sums four.
        step = sparse_step_of("2*1000x4x8/bf16")
        found = cells.formula_bytes(step, 2, 1, [cells.Rows(6, 6, 8)] * 2)
        self.assertEqual(6 * (12 + 16), found["push_pull"])

    def test_a_time_is_beside_what_its_link_needs(self):
        # 1 MB takes 40 ms at 200 Mbit/s.
        self.assertEqual(40, cells.wire_ms(1e6, 200))
        step = sparse_step_of("1000x4x8")
        times = [turn(44_000, 1e6, 1.1), turn(50_000, 1e6, 1.1), turn(48_000, 1e6, 1.1)]
        found = cells.figures_of(times, 5e5, step, 200)
        self.assertEqual((48, 44, 50, 40, 2), tuple(
            found[key] for key in ("ms", "low_ms", "high_ms", "bound_ms", "over_formula")))
        self.assertAlmostEqual(1.2, found["over_bound"])
        self.assertAlmostEqual(1.2 / 1.1, found["over_queue"])
        self.assertNotIn("bound_ms", cells.figures_of(times, 5e5, step, None))

    def test_a_method_counts_at_its_best_setting(self):
        step = sparse_step_of("1000x4x8")
        times = {(step, "hybrid", "alloc"): [turn(10, 1)] * 3,
                 (step, "a", "owners"): [turn(30, 1)] * 3, (step, "b", "owners"): [turn(20, 1)] * 3}
        ways = cells.ways_of(step, times, {"ours": ["hybrid"], "peer": ["a", "b"]},
                             {"push_pull": 1, "owners": 1}, 100)
        self.assertEqual({"hybrid alloc", "owners"}, set(ways))
        self.assertEqual(("b", (2, 2, 2)), (ways["owners"]["by"],
                                           ways["owners"]["ratio"]["hybrid alloc"]))

    def test_ps_lite_is_absent_by_what_was_looked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            setup = Setup(folder, [sparse_step_of("1000x4x8")], [2])
            for contender in drive.ps_lite():
                with self.assertRaises(drive.Absent) as why:
                    contender.start(setup, folder)
                self.assertIn("no ps/ps.h with libpslite or libps", str(why.exception))

    def test_parts_are_switched_off_by_settings(self):
        with open(os.path.join(ROOT, "docs/settings.md"), encoding="utf-8") as file:
            known = file.read()
        for name, part in drive.PARTS.items():
            for setting in part["settings"]:
                self.assertIn(f"`{setting}`", known, name)
        self.assertLessEqual({"early-pull-off", "coding-off", "in-place-off", "listed-off",
                              "fuse-off"}, set(drive.PARTS))

    def test_a_grid_is_every_combination(self):
        options = drive.options_of(["--widths", "8,16", "--densities", "0.001", "--skews", "0.7,1",
                                    "--compute-ms", "2"])
        self.assertEqual([("793470x8x793@0.7", 2000), ("793470x8x793@1", 2000),
                          ("793470x16x793@0.7", 2000), ("793470x16x793@1", 2000)],
                         [(step.name, step.compute_us) for step in options.steps])

    def test_wrong_words_end_it_with_a_sentence(self):
        for words, sentence in ((("--hosts", "1"), "2 hosts or more"),
                                (("--hosts", "9", "--ranks", "2"), "at most 16 ranks"),
                                (("--hosts", "2.5"), "whole numbers"),
                                (("--hosts", "a"), "no numbers"),
                                (("--mbit", "0"), "1 to 100000"),
                                (("--rounds", "2"), "at least 3"),
                                (("--loss", "5"), "at least 24 steps"),
                                (("--compute-ms", "-1"), "0 to 10000"),
                                (("--steps", "8x8"), "is no table"),
                                (("--steps", "8x8x8,8x8x8/bf16"), "of one type")):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                drive.options_of(list(words))
            self.assertIn(sentence, said.getvalue())

    def test_time_to_quality_is_of_the_first_that_is_as_good(self):
        runs = {"hybrid": drive.loss.run_of("HYBRID", [3, 2, 1], [1, 1, 2]),
                "ar": drive.loss.run_of("AR", [4, 4, 4], [1, 1, 1])}
        drive.loss.to_quality(runs, 2)
        self.assertEqual((2, None), (runs["hybrid"]["to_quality_s"], runs["ar"]["to_quality_s"]))
        self.assertEqual([3, 2.5, 2], drive.loss.smoothed([3, 2, 1]))

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_a_run_counts_the_bytes_of_its_links(self):
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(
                [sys.executable, os.path.join(CLUSTER, "drive.py"), "--build", BUILD, "--steps",
                 "5000x64x600", "--hosts", "2", "--ranks", "2", "--mbit", "1000", "--rounds", "3",
                 "--slice-ms", "30", "--compute-ms", "1", "--out", out, "--without",
                 ",".join(PEERS + ("early-pull-off", "coding-off", "fuse-off"))],
                capture_output=True,
                text=True, check=False, timeout=150, stdin=subprocess.DEVNULL,
                env=dict(os.environ, PARALLAX_ROW_CODING="off"))
            self.assertEqual(0, done.returncode, done.stderr)
            with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
                (cell,) = json.load(file)["cells"]
            self.assertTrue(os.path.exists(os.path.join(out, "5000x64x600-2x2-1000.svg")))
        ways = ("hybrid", "naive-ps", "ar", "in-place-off", "listed-off")
        self.assertEqual({f"{name} {how}" for name in ways for how in ("alloc", "fused")},
                         set(cell["ways"]))
        self.assertNotIn("wrong numbers", str(cell["absent"]))
        self.assertIn("absent: ps-lite: ", done.stdout)
        for name, way in cell["ways"].items():
            # Small messages have headers, and jobs leases; what is counted twice is beyond.
            self.assertTrue(0.97 < way["over_formula"] < 1.3, (name, way["over_formula"]))
            self.assertAlmostEqual(way["ms"] - 1, way["exposed_ms"])
            self.assertLess(0, way["bound_ms"])
        self.assertLess(cell["ways"]["hybrid alloc"]["received_bytes"],
                        cell["ways"]["naive-ps alloc"]["received_bytes"])


if __name__ == "__main__":
    unittest.main()
