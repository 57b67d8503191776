// SPDX-License-Identifier: Apache-2.0
#include "job/progress.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/engine_world.h"
#include "support/heard_lines.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

constexpr int64_t kMs = kNanosecondsPerMillisecond;

// Rank 0 of two, with a lease of 1 s, driven by hand.
class ProgressOfOne : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(progress_.start(world_.engine(0), true).ok());
    progress_.drive_once();
  }
  // The next pass is late by so much, where it was due at once.
  void held_up(int64_t ns) {
    world_.clock().advance(std::max<int64_t>(due_in_ns(), 0) + ns);
    progress_.drive_once();
  }
  int64_t due_in_ns() {
    return progress_.look([](const Engine& engine) { return engine.next_deadline_ns(); }) -
           world_.clock().now_ns();
  }

  EngineWorld world_{WorldOptions{.hosts = {0, 0}, .lease_ns = 1000 * kMs}};
  Binding binding_;
  Progress progress_{world_.transport(0), world_.clock(), binding_};
  HeardLines heard_;
};

TEST_F(ProgressOfOne, IsWarnedOnceOfBeingHeldUpForAQuarterOfTheLease) {
  held_up(240 * kMs);
  EXPECT_TRUE(heard_.lines().empty()) << heard_.lines()[0];
  held_up(260 * kMs);
  ASSERT_EQ(heard_.lines().size(), 1u);
  EXPECT_TRUE(has(heard_.lines()[0], "rank 0 was held up for 260 ms, with a lease of 1000 ms"))
      << heard_.lines()[0];
  EXPECT_TRUE(has(heard_.lines()[0], "raise lease_ms, or give the ranks more cores"));
  held_up(300 * kMs);
  EXPECT_EQ(heard_.lines().size(), 1u);
}

}  // namespace
}  // namespace parallax::testkit
