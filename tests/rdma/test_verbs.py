# SPDX-License-Identifier: Apache-2.0
"""How bytes go over verbs: cases that need one machine."""

import unittest

from support import OnOneGuest


def load_tests(loader, _, __):
    return OnOneGuest(loader, "conformance", "writes", "rails")


if __name__ == "__main__":
    unittest.main()
