# SPDX-License-Identifier: Apache-2.0
"""bench/run's training, small, with gradients and pulled rows on devices of the double: all its
checks against the oracle hold as in host memory, those of bits too."""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ["PARALLAX_TEST_BIN"]
DOUBLE = os.environ["PARALLAX_TEST_CUDA_DOUBLE"]
TIMEOUT = 240  # seconds, of a dozen jobs


@unittest.skipIf(not os.path.exists(os.path.join(BIN, "parallax_lm")),
                 "there is no bench (PARALLAX_BUILD_BENCH)")
class Bench(unittest.TestCase):
    def drive(self, **environment):
        numbers = random.Random(7)
        with tempfile.TemporaryDirectory() as folder:
            text = os.path.join(folder, "text")
            with open(text, "w", encoding="utf-8") as file:
                file.write(" ".join(f"word{int(400 ** numbers.random())}" for _ in range(4000)))
            done = subprocess.run(
                [sys.executable, os.path.join(ROOT, "bench", "lm", "drive.py"), "--programs", BIN,
                 "--corpus", text, "--hosts", "1", "--ranks-per-host", "2", "--steps", "12",
                 "--deterministic-steps", "4", "--plan", "hybrid", "--memory", "cuda",
                 "--out", folder],
                capture_output=True, text=True, timeout=TIMEOUT, check=False,
                env={**os.environ, "LD_LIBRARY_PATH": DOUBLE, "CUDA_DOUBLE_LEAKS": "fail",
                     **environment})
            results = os.path.join(folder, "results.json")
            if not os.path.exists(results):
                return done, None
            with open(results, encoding="utf-8") as file:
                return done, json.load(file)

    def test_checks_hold_on_devices(self):
        done, results = self.drive(CUDA_DOUBLE_DELAY="5:200")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("on CUDA devices", " ".join(done.stdout.split()))
        self.assertEqual(results["options"]["memory"], "cuda")
        bits = [row for row in results["checks"] if "bit" in json.dumps(row)]
        self.assertTrue(bits and all(row["verdict"] == "PASS" for row in bits), results["checks"])

    def test_it_is_devices_that_it_uses(self):
        done, _ = self.drive(CUDA_DOUBLE_DEVICES="0")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertRegex(" ".join(done.stderr.split()), "cuInit|shows no device")


if __name__ == "__main__":
    unittest.main()
