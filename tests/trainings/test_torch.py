# SPDX-License-Identifier: Apache-2.0
"""The training in PyTorch: variables held there, with hooks that reduce out of place, held by the
library, and some of each on devices; and in libtorch, with a program of its own about hooks."""

import os
import subprocess
import unittest

from training import PROGRAMS, TIMEOUT, TrainingCase


class Torch(TrainingCase):
    def test_held(self):
        self.hold_script("torch_held", "torch", "python3-torch")

    def test_managed(self):
        self.hold_script("torch_managed", "torch", "python3-torch")

    def test_devices(self):
        """In host memory where there is no device; on one: tests/trainings/gpu_torch.py."""
        self.hold_script("torch_cuda", "torch", "python3-torch")

    def test_libtorch(self):
        self.hold_program("libtorch", "docs/examples/libtorch/training.cc")

    def test_hooks_of_libtorch(self):
        path = os.path.join(PROGRAMS, "hooks_libtorch")
        if not os.path.exists(path):
            self.skipTest("libtorch is missing (libtorch-dev)")
        ran = subprocess.run([path], capture_output=True, text=True, timeout=TIMEOUT, check=False)
        # A loaded machine may log on stderr who was late.
        self.assertEqual(ran.returncode, 0, ran.stderr)


if __name__ == "__main__":
    unittest.main()
