# SPDX-License-Identifier: Apache-2.0
"""The training in PyTorch: variables held there, with hooks that reduce out of place, and variables
held by the library; and in libtorch."""

import unittest

from training import TrainingCase


class Torch(TrainingCase):
    def test_held(self):
        self.hold_script("torch_held", "torch", "python3-torch")

    def test_managed(self):
        self.hold_script("torch_managed", "torch", "python3-torch")

    def test_libtorch(self):
        self.hold_program("libtorch", "docs/examples/libtorch/training.cc")


if __name__ == "__main__":
    unittest.main()
