# SPDX-License-Identifier: Apache-2.0
"""bench/peers: what its lists hold, how its ratios are bounded, and a run of it."""

import array
import collections
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
import sparse_steps  # noqa: E402
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

    def assert_priced(self, row):
        self.assertEqual({"alloc", "private"}, set(row["parts"]["deterministic"]))
        for each in row["parts"]["deterministic"].values():
            self.assertLess(0, each["step_us"])
            low_to_high = each["ratio"]
            self.assertEqual(sorted(low_to_high), [low_to_high[at] for at in (1, 0, 2)])

    def test_a_run_checks_sums_and_names_the_absent(self):
        with tempfile.TemporaryDirectory() as out:
            done = drive("--sizes", "8,1M,hundred", "--ranks", "3", "--rounds", "3", "--slice-ms",
                         "1", "--out", out, "--with", "deterministic", "--without",
                         "torch-gloo,openmpi-ob1,openmpi-ucx,ucc,tensorflow-ob1")
            self.assertEqual(0, done.returncode, done.stderr)
            with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
                results = json.load(file)
        self.assertEqual(["8 B", "1 MiB", "hundred", "hundred as one"],
                         [row["step"] for row in results["rows"]])
        for row in results["rows"]:
            self.assertLess(0, row["ours"]["alloc"]["step_us"])
            self.assertLessEqual(row["ours"]["private"]["result_us"],
                                 row["ours"]["private"]["step_us"])
            self.assertLess(0, row["limit_us"]["alloc"])
            low_to_high = row["ours"]["alloc"]["limit_step_ratio"]
            self.assertEqual(sorted(low_to_high), [low_to_high[at] for at in (1, 0, 2)])
            self.assertEqual({"alloc", "private", "alloc-onewait"}, set(row["ours"]))
            self.assert_priced(row)
        self.assertNotIn("wrong numbers", str(results["absent"]))
        self.assertIn("own_one_ratio", results["rows"][2]["ours"]["alloc"])
        self.assertEqual("left out by --without", results["absent"]["torch-gloo"])
        self.assertIn("ours with a setting, and its time over ours without it", done.stdout)
        self.assertIn("absent: wire: one host has no wire", done.stdout)

    def test_a_mean_and_numbers_of_16_bits_are_checked(self):
        for words, absent in ((("--reduction", "mean"), ()),
                              (("--dtype", "bf16"), ("limit", "openmpi-ob1-yield")),
                              (("--dtype", "f16", "--reduction", "mean"), ("limit",))):
            with tempfile.TemporaryDirectory() as out:
                done = drive("--sizes", "8,100K", "--ranks", "3", "--rounds", "3",
                             "--slice-ms", "1", "--out", out, "--without",
                             "torch-gloo,openmpi-ob1,openmpi-ucx,openmpi-ucx-yield,ucc,"
                             "tensorflow-ob1,tensorflow-ucx", *words)
                self.assertEqual(0, done.returncode, done.stderr)
                with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
                    results = json.load(file)
            self.assertEqual({}, results["rows"][0]["parts"])
            self.assertNotIn("wrong numbers", str(results["absent"]))
            self.assertLess(0, results["rows"][1]["ours"]["alloc"]["step_us"])
            for name in absent:
                self.assertEqual(f"knows no {words[1]} here", results["absent"][name])

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_hosts_may_have_unequal_ranks(self):
        for word in ("4K", "300x4x50"):
            done = drive("--hosts", "2", "--ranks", "2,1", "--steps", word, "--rounds", "3",
                         "--slice-ms", "1", "--without", "torch-gloo,gloo,openmpi-ob1,openmpi-ucx,"
                         "openmpi-ob1-yield,ucc,tensorflow-ob1,tensorflow-ucx")
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertIn("2 hosts, 2, 1 ranks a host", done.stdout)

    def test_rows_of_models_have_their_published_sizes(self):
        steps_of = sparse_steps.STEPS
        self.assertEqual(((793_470, 512, 2_560),), steps_of["lm1b"].tables)
        # Parallax's NMT has 74.9M sparse elements.
        self.assertAlmostEqual(74.9, sum(rows * width for rows, width, _ in steps_of["nmt"].tables)
                               / 1e6, delta=0.1)
        self.assertEqual(("bf16", ((300_000_000, 64, 32_768),)),
                         (steps_of["ngram300m"].dtype, steps_of["ngram300m"].tables))
        self.assertEqual((26, 26 * 2_048), (len(steps_of["t26"].tables), steps_of["t26"].ids))
        # The public statistics: 788 tables, 13.6 ids a sample and table.
        many = steps_of["t788"]
        self.assertEqual(788, len(many.tables))
        self.assertAlmostEqual(13.6, many.ids / 788 / 16, delta=0.2)
        self.assertEqual([sum(classes) for classes in many.classes],
                         [rows for rows, _, _ in many.tables])

    def test_788_tables_are_drawn_as_published(self):
        step = sparse_steps.STEPS["t788"]
        done = subprocess.run([os.path.join(BUILD, "bin/parallax_cluster_rows"), step.words(),
                               "ids", "1"], capture_output=True, check=True, timeout=60)
        ids = array.array("q", done.stdout)
        self.assertEqual(0, len(ids) % step.ids)
        for batch in range(len(ids) // step.ids):
            first, counts = batch * step.ids, []
            for rows, _, count in step.tables:
                table = collections.Counter(ids[first:first + count])
                self.assertTrue(0 <= min(table) and max(table) < rows)
                counts += table.values()
                first += count
            # facebookresearch/dlrm_datasets, embedding_bag/2022: of a batch of 131,072 samples.
            self.assertAlmostEqual(1, len(counts) * 12.7 / step.ids, delta=0.1)
            octaves = collections.Counter((count - 1).bit_length() for count in counts)
            for octave, share in enumerate((0.342, 0.144, 0.149, 0.138, 0.112, 0.068)):
                self.assertAlmostEqual(share, octaves[octave] / len(counts), delta=0.02)
            # There above 32,768, here above sqrt(32 * 32,768).
            self.assertAlmostEqual(0.076, sum(count for count in counts if count > 1_024)
                                   / step.ids, delta=0.008)

    def test_classes_of_rows_are_drawn_by_their_weights(self):
        step = sparse_steps.sparse_step_of("2:0:8x4x60000")
        self.assertEqual((((10, 4, 60_000),), ((2, 0, 8),)), (step.tables, step.classes))
        done = subprocess.run([os.path.join(BUILD, "bin/parallax_cluster_rows"), step.words(),
                               "ids", "0"], capture_output=True, check=True, timeout=60)
        drawn = collections.Counter(array.array("q", done.stdout)[:60_000])
        # Two rows of weight 4 and eight of weight 1.
        for row in range(10):
            self.assertAlmostEqual((15_000 if row < 2 else 3_750), drawn[row], delta=450)

    def test_steps_of_row_ids_are_read(self):
        step = sparse_steps.sparse_step_of("2*1000x16x64+7x1x3@0.7/adagrad")
        self.assertEqual(((1000, 16, 64), (1000, 16, 64), (7, 1, 3)), step.tables)
        self.assertEqual((0.7, "adagrad", 131, 4 * (2 * 16 * 64 + 3)),
                         (step.exponent, step.rule, step.ids, step.bytes))
        self.assertEqual("adagrad/0.7/f32/0/1000x16x64,1000x16x64,7x1x3", step.words())
        self.assertEqual("bf16", sparse_steps.sparse_step_of("7x1x3@0.7/bf16").dtype)
        classes = sparse_steps.sparse_step_of("2*1:0:4x16x64+7x1x3")
        self.assertEqual(((5, 16, 64), (5, 16, 64), (7, 1, 3)), classes.tables)
        self.assertEqual("sgd/1/f32/0/1:0:4x16x64,1:0:4x16x64,7x1x3", classes.words())
        for word in ("8x0x8", "1x2", "x", "0*8x8x8", "4294967296x1x1", "8x8x8@9", "8x8x8/adam",
                     "0:0x8x8", "1:x8x8", ":".join("1" * 33) + "x8x8"):
            with self.assertRaisesRegex(ValueError, "is no table|is neither a step of row ids"):
                sparse_steps.sparse_step_of(word)

    def test_memory_is_that_of_rows_that_come(self):
        self.assertAlmostEqual(1000, sparse_steps.distinct(1000, 1, 10**6), delta=1)
        # Of 2,560 draws by Zipf(1) of 793,470 ids, simulated: 1,592.
        self.assertAlmostEqual(1592, sparse_steps.distinct(793_470, 1, 2_560), delta=40)
        step = sparse_steps.STEPS["lm1b"]
        self.assertLess(sparse_steps.memory_bytes(step, 2, 1, 4), 6 << 30)
        self.assertLess(sparse_steps.memory_bytes(step, 2, 1, 2),
                        sparse_steps.memory_bytes(step, 4, 1, 2))
        # Ours writes its tables first, but large ones.
        self.assertEqual(4 * 793_470 * 512, step.our_table_bytes(2))
        self.assertEqual(2 * 4 * 793_470 * 512, sparse_steps.STEPS["adagrad"].our_table_bytes(2))
        # Of classes: two rows that always come, of 800 one 200th of the draws each.
        self.assertAlmostEqual(2 + 800 * (1 - (1 - 1 / 1_600) ** 400),
                               sparse_steps.distinct_of_classes((4, *[0] * 7, 1024), 400), delta=9)
        self.assertLess(sparse_steps.STEPS["ngram300m"].our_table_bytes(2), 2 << 30)

    def test_steps_of_row_ids_are_compared_with_the_oracle(self):
        with tempfile.TemporaryDirectory() as out:
            done = drive("--steps", "500x70x64@1.3,3*300x5x40+1:0:8x1x8/adagrad", "--ranks", "3",
                         "--rounds", "3", "--slice-ms", "1", "--refill", "--out", out,
                         "--with", "deterministic",
                         "--without", "openmpi-ob1,openmpi-ucx,openmpi-ucx-yield")
            self.assertEqual(0, done.returncode, done.stderr)
            with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
                results = json.load(file)
        self.assertTrue(results["refill"])
        self.assertNotIn("wrong numbers", str(results["absent"]))
        for row in results["rows"]:
            self.assertEqual({"alloc", "private"}, set(row["ours"]))
            self.assert_priced(row)
            self.assertLess(row["ours"]["alloc"]["result_us"], row["ours"]["alloc"]["step_us"])
            self.assertEqual({"alloc", "private"}, set(row["limit_us"]))
            there = {"ps-lite"} - set(results["absent"])
            if "openmpi-ob1-yield" not in results["absent"]:
                there |= {"gather", "gather-merged", "owners", "ranges", "balanced"}
            self.assertEqual(there, set(row["methods"]))

    def test_a_step_that_needs_more_memory_than_there_is_is_refused(self):
        done = drive("--steps", "60000000x512x9999999@0")
        self.assertEqual(2, done.returncode)
        self.assertRegex(done.stderr, r"takes about \d+\.\d GiB .*leave peers out")

    def test_wrong_words_end_it_with_a_sentence(self):
        for words, sentence in ((("--sizes", "6"), "neither a size"),
                                (("--with", "speed"), "none of deterministic"),
                                (("--ranks", "1"), "2 to 16 ranks in all"),
                                (("--mbit", "10"), "between several --hosts"),
                                (("--steps", "lm1b,8"), "by a run of their own"),
                                (("--steps", "8x8x8,8x8x8/bf16"), "of one type"),
                                (("--steps", "lm1b", "--dtype", "f16"), "of tensors alone"),
                                (("--ranks", "3,1"), "or one for each"),
                                (("--ranks", "3,a"), "no whole numbers"),
                                (("--steps", "8x8"), "is no table"),
                                (("--rounds", "2"), "at least 3")):
            done = drive(*words)
            self.assertEqual(2, done.returncode)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main()
