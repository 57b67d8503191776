"""parallax_lm_servers, the training in TensorFlow's way, beside the oracle: the sum of one
gradient, and losses and norms of some steps."""

import json
import os
import random
import shutil

import support
from support import run

RANKS, STEPS = 3, 8


class Servers(support.Case):
    def setUp(self):
        if not os.path.exists(os.path.join(support.BIN, "parallax_lm_servers")):
            self.skipTest("needs the bench and Open MPI")
        if shutil.which("mpirun") is None:
            self.skipTest("needs mpirun")
        numbers = random.Random(5)
        text = self.write(" ".join(f"word{int(900 ** numbers.random())}" for _ in range(6000)))
        self.folder_ = self.folder()
        self.corpus = os.path.join(self.folder_, "corpus.bin")
        self.expect(run(os.path.join(support.BIN, "parallax_lm_corpus"), "--out", self.corpus,
                        "--corpus", text))

    def expect(self, done):
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def words(self, out, *extra):
        return ["--corpus", self.corpus, "--world", RANKS, "--out",
                os.path.join(self.folder_, out), "--evaluate", 0, *extra]

    def servers(self, *extra):
        self.expect(run(*support.mpirun(self), "-n", RANKS,
                        os.path.join(support.BIN, "parallax_lm_servers"),
                        *self.words("rank-RANK.json", *extra)))
        return [self.read(f"rank-{rank}.json") for rank in range(RANKS)]

    def oracle(self, *extra):
        done = run(os.path.join(support.BIN, "parallax_lm_oracle"),
                   *self.words("oracle.json", *extra))
        self.expect(done)
        return self.read("oracle.json")

    def read(self, name):
        with open(os.path.join(self.folder_, name), encoding="utf-8") as file:
            return json.load(file)

    def test_a_gradient_is_the_sum_of_all_ranks(self):
        values = os.path.join(self.folder_, "values.bin")
        self.servers("--gradient-check", "--values", values)
        found = self.oracle("--gradient-check", "--values", values)
        self.assertIn("embedding", str(found))

    def test_steps_are_those_of_the_oracle(self):
        # Clipped in the first steps, and not in the last.
        extra = ("--steps", STEPS, "--clip", 0.2)
        outcomes, oracle = self.servers(*extra), self.oracle(*extra)
        self.assertTrue(max(oracle["norms"]) > 0.2 > min(oracle["norms"]), oracle["norms"])
        losses = [[outcome["losses"][step] for outcome in outcomes] for step in range(STEPS)]
        self.assertEqual(STEPS, len(oracle["losses"]))
        for found, wanted in zip(losses, oracle["losses"]):
            for mine, other in zip(found, wanted):
                self.assertAlmostEqual(mine, other, delta=1e-4 * other)
        for outcome in outcomes:
            self.assertEqual(outcomes[0]["checksums"], outcome["checksums"])
            for mine, other in zip(outcome["norms"], oracle["norms"]):
                self.assertAlmostEqual(mine, other, delta=1e-4 * other)


if __name__ == "__main__":
    support.main()
