# SPDX-License-Identifier: Apache-2.0
"""Jobs, the tool and the benches on a machine with RDMA devices: cases that need one machine."""

import unittest

from support import OnOneGuest


def load_tests(loader, _, __):
    return OnOneGuest(loader, "jobs", "refusals", "bench", "doctor")


if __name__ == "__main__":
    unittest.main()
