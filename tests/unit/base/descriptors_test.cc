// SPDX-License-Identifier: Apache-2.0
#include "base/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace parallax {
namespace {

// Given a limit that leaves a few, expect a need within it to pass, one beyond to be refused with
// both counts, and none to stay open.
TEST(Descriptors, CountsWhatIsLeft) {
  EXPECT_TRUE(check_descriptors(8, "a test").ok());
  const int lowest = ::dup(0);
  ASSERT_GE(lowest, 0);
  ::close(lowest);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(lowest) + 5;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  const Status refused = check_descriptors(100, "a test");
  const Status fits = check_descriptors(1, "a test");
  const Status again = check_descriptors(1, "a test");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(refused.code(), PARALLAX_LIMIT);
  EXPECT_TRUE(refused.message().starts_with("a test needs 100 file descriptors, only "))
      << refused.message();
  EXPECT_TRUE(fits.ok());
  EXPECT_TRUE(again.ok());
}

}  // namespace
}  // namespace parallax
