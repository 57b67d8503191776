# SPDX-License-Identifier: Apache-2.0
"""What every transport promises (tests/unit/transport/conformance.h), kept by UCX over verbs."""

import unittest

from support import BIN, DEVICE, QUICK, GuestTest


# Of boards, which there are among ranks of a host alone; of sends that are copied when asked, which
# UCX is not asked.
NOT_OF_A_NETWORK = ("*.boards_are_read_by_all:*.a_post_is_seen_before_a_sleep:"
                    "*.posts_wake_who_sleeps:*.posts_wake_who_heeds_them_asleep:"
                    "*.copied_sends_are_read_no_more")


class Conformance(GuestTest):
    def conform(self, transports):
        output = self.guest.run(
            f"{QUICK} PARALLAX_TEST_NET_DEVICE={DEVICE}:1 "
            f"PARALLAX_TEST_NET={transports} "
            f"{BIN}/parallax_net_tests --gtest_filter='Conform_ucx.*-{NOT_OF_A_NETWORK}'", 150)
        self.assertIn("[  PASSED  ]", output)
        self.assertNotIn("SKIPPED", output)

    def test_rc(self):
        self.conform("rc")

    def test_ud(self):
        self.conform("ud")


if __name__ == "__main__":
    unittest.main()
