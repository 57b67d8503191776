# SPDX-License-Identifier: Apache-2.0
"""All cases that need one machine, on one that is booted once. `python3 x_cases.py` runs those of a
file alone, on a machine of their own."""

import unittest

import support

CASES = ("conformance", "writes", "rails", "jobs", "refusals", "bench", "doctor")


class OnOneGuest(unittest.TestSuite):
    def run(self, result, debug=False):
        try:
            return super().run(result, debug)
        finally:
            support.GuestTest.close_shared(result)


def load_tests(loader, _, __):
    support.GuestTest.share()
    return OnOneGuest(loader.loadTestsFromName(f"{name}_cases") for name in CASES)


if __name__ == "__main__":
    unittest.main()
