# SPDX-License-Identifier: Apache-2.0
"""The training in TensorFlow and in JAX, which Debian has not: PARALLAX_FRAMEWORKS_PYTHON names a
Python that has them."""

import os
import unittest

from training import TrainingCase

PIP = "no Debian package: pip install {}, and PARALLAX_FRAMEWORKS_PYTHON=that environment's python"


class Others(TrainingCase):
    def setUp(self):
        super().setUp()
        os.environ.setdefault("JAX_PLATFORMS", "cpu")

    def test_tensorflow(self):
        self.hold_script("tensorflow", "tensorflow", PIP.format("tensorflow-cpu"))

    def test_jax(self):
        self.hold_script("jax", "jax", PIP.format("jax"))


if __name__ == "__main__":
    unittest.main()
