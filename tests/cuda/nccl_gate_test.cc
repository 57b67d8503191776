// SPDX-License-Identifier: Apache-2.0
// The gate that calls of a communicator go through, and when that may be aborted.
#include <gtest/gtest.h>

#include <chrono>

#include "cuda/nccl_gate.h"

namespace parallax {
namespace {

constexpr std::chrono::hours kForLong(1);

TEST(NcclGate, WhatIsCalledAnswers) {
  NcclGate gate;
  EXPECT_EQ(gate.call([] { return ncclSystemError; }), ncclSystemError);
  EXPECT_EQ(gate.call([] { return ncclSuccess; }), ncclSuccess);
  EXPECT_FALSE(gate.ended());
}

TEST(NcclGate, ClosedNothingIsCalled) {
  NcclGate gate;
  EXPECT_TRUE(gate.close()) << "nothing is in NCCL";
  const auto never = [] {
    ADD_FAILURE() << "it is closed";
    return ncclSuccess;
  };
  EXPECT_EQ(gate.call(never), ncclInvalidUsage);
  EXPECT_EQ(gate.last_call(never), ncclInvalidUsage);
  EXPECT_TRUE(gate.close());
  EXPECT_FALSE(gate.ended());
}

TEST(NcclGate, ACallGetsItsTimeAndNoMore) {
  NcclGate gate;
  gate.allow(kForLong);
  EXPECT_FALSE(gate.late());
  gate.call([&gate] {
    EXPECT_FALSE(gate.close()) << "it is in NCCL, and may return";
    gate.allow({});
    EXPECT_TRUE(gate.late());
    EXPECT_TRUE(gate.close()) << "only an abort ends it";
    return ncclSuccess;
  });
  gate.allow(kForLong);
  EXPECT_TRUE(gate.close()) << "it has returned";
}

// The end in good order is never aborted under its call.
TEST(NcclGate, TheLastCallIsWaitedForHoweverLong) {
  NcclGate gate;
  gate.last_call([&gate] {
    EXPECT_TRUE(gate.late());
    EXPECT_FALSE(gate.close());
    EXPECT_FALSE(gate.ended());
    return ncclSuccess;
  });
  EXPECT_TRUE(gate.ended());
  EXPECT_TRUE(gate.close());
}

TEST(NcclGate, ALastCallThatFailsLeavesItToBeAborted) {
  NcclGate gate;
  EXPECT_EQ(gate.last_call([] { return ncclInternalError; }), ncclInternalError);
  EXPECT_FALSE(gate.ended());
  EXPECT_TRUE(gate.close());
}

}  // namespace
}  // namespace parallax
