"""bench/run's driver: when it says that training learns, what it refuses, and what it prints."""

import argparse
import os
import random
import sys

import support
from support import run

BENCH = os.path.join(support.SOURCE, "bench", "lm")
sys.path.append(BENCH)
import checks  # noqa: E402  (it stands in a folder of its own)

COLUMNS_MAX = 100


def evaluation(loss, error=0.1):
    return {"loss": loss, "standard_error": error}


class Learnt(support.Case):
    """The rule, at losses of a small text (208,530 words, vocabulary 13,321) and of a large one."""

    def test_after_many_positions_the_loss_lies_below_that_of_counting(self):
        for positions, loss, counting, verdict in (
                (115_200, 6.206, 6.984, True),   # three ranks, the small text
                (115_200, 5.791, 8.118, True),   # the large one
                (115_200, 6.780, 6.984, False),  # below, but within the error
                (115_200, 6.984, 6.984, False),
                (25_600, 6.649, 7.157, True)):
            name, found, figure = checks.learnt(300, positions, 9.496, evaluation(loss), counting)
            self.assertIn("counting", name)
            self.assertEqual(found, verdict, figure)
            self.assertIn(f"<= {counting:.3f}", figure)

    def test_after_few_it_lies_below_the_start(self):
        for steps, positions, loss, verdict in (
                (50, 6_400, 7.3, True), (300, 24_999, 7.3, True), (99, 400_000, 7.3, True),
                (50, 6_400, 9.3, False), (50, 6_400, 9.6, False)):
            name, found, figure = checks.learnt(steps, positions, 9.496, evaluation(loss), 7.0)
            self.assertIn("start", name)
            self.assertEqual(found, verdict, figure)

    def test_the_first_steps_are_not_judged(self):
        _, found, figure = checks.learnt(19, 2_432, 9.496, evaluation(9.9), 7.0)
        self.assertIsNone(found)
        self.assertIn("19 steps are too few", figure)

    def test_a_loss_that_is_not_finite_fails(self):
        for positions in (6_400, 115_200):
            self.assertIs(checks.learnt(300, positions, 9.496, None, 7.0)[1], False)


class Tolerance(support.Case):
    def test_it_grows_with_the_readings_of_the_text(self):
        for positions, words, tolerance in ((307_200, 1_200_000, 0.001), (307_200, 30_720, 0.001),
                                            (307_200, 3_072, 0.01)):
            self.assertAlmostEqual(checks.loss_tolerance(positions, words), tolerance)


class SamePlan(support.Case):
    def judged(self, steps=300, vocabulary=100_001, method="push_pull", settled=True):
        def with_method(name):
            return {"plan": {"settled": settled, "variables": [
                {"name": "embedding", "tag": "SPARSE", "placement": "sharded", "method": name}]}}
        found = checks.Checks()
        options = argparse.Namespace(steps=steps, hosts=4, ranks_per_host=2)
        checks.same_plan(found, {"auto_tags": with_method(method),
                                 "runs": {"hybrid": with_method("push_pull")}},
                         options, {"vocabulary": vocabulary})
        return found.rows[0]["verdict"]

    def test_tags_and_none_must_agree_where_there_is_something_to_agree_on(self):
        self.assertEqual(self.judged(), "PASS")
        self.assertEqual(self.judged(method="made_dense"), "FAIL")
        self.assertEqual(self.judged(method="made_dense", vocabulary=40), "n/a")
        self.assertEqual(self.judged(vocabulary=40), "PASS")
        self.assertEqual(self.judged(settled=False), "FAIL")
        self.assertEqual(self.judged(settled=False, steps=7), "n/a")


class Training(support.Case):
    def drive(self, *arguments):
        if not os.path.exists(os.path.join(support.BIN, "parallax_lm")):
            self.skipTest("needs the bench (PARALLAX_BUILD_BENCH)")
        return run(sys.executable, os.path.join(BENCH, "drive.py"), "--programs", support.BIN,
                   *arguments, timeout=150)  # a dozen jobs

    def test_tables_are_narrow_and_progress_goes_to_standard_error(self):
        numbers = random.Random(7)
        words = [f"word{int(400 ** numbers.random())}" for _ in range(4000)]
        text, folder = self.write(" ".join(words)), self.folder()
        said = self.drive("--corpus", text, "--hosts", 1, "--ranks-per-host", 2, "--steps", 24,
                          "--deterministic-steps", 4, "--out", folder)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        self.assertIn("PASS  loss clearly below that of the start, HYBRID", said.stdout)
        self.assertEqual([l for l in said.stdout.splitlines() if len(l) > COLUMNS_MAX], [])
        for words in ("corpus", "oracle", "HYBRID", "step 24/24"):
            self.assertIn(words, said.stderr)
        self.assertNotIn("step 24/24", said.stdout)

    def test_refuses_what_is_no_text(self):
        program = os.path.abspath(support.PARALLAX)
        said = self.drive("--corpus", program, "--out", self.folder())
        self.assertEqual(said.returncode, 2, said.stdout)
        self.assertIn(f"the corpus file '{program}' is no text: byte ", said.stderr)


if __name__ == "__main__":
    support.main()
