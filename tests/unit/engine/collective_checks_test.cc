// SPDX-License-Identifier: Apache-2.0
// What may be wrong with one call, field by field, and what of it becomes the engine's.
#include "engine/collective_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/words.h"

namespace parallax::testkit {
namespace {

class CollectiveChecks : public testing::Test {
 protected:
  static constexpr uint32_t kRank = 1, kWorld = 3;

  CollectiveChecks() {
    call_.kind = PARALLAX_ALLREDUCE;
    call_.count = 4;
    call_.send = numbers_.data();
    call_.recv = numbers_.data() + 100;
  }
  Status check() {
    Collective what;
    return check_collective(call_, kRank, kWorld, &what);
  }
  void expect(parallax_status_t code, const std::string& words) {
    const Status status = check();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_TRUE(has(status, words)) << status.message();
  }

  std::vector<float> numbers_ = std::vector<float>(200);
  parallax_collective_t call_ = {};
};

TEST_F(CollectiveChecks, Fields) {
  EXPECT_TRUE(check().ok());
  call_.kind = 0;
  expect(PARALLAX_INVALID, "kind is 0");
  EXPECT_EQ(check().facts().field, "kind");
  call_.kind = PARALLAX_GATHER + 1;
  expect(PARALLAX_INVALID, "kind is 9");
  call_.kind = PARALLAX_REDUCE;
  call_.root = kWorld;
  expect(PARALLAX_INVALID, "root is 3, the job has 3");
  call_.root = 0;
  call_.dtype = kDtypeCount;
  expect(PARALLAX_INVALID, "dtype is 6");
  call_.dtype = PARALLAX_F16;
  call_.op = PARALLAX_OP_XOR + 1;
  expect(PARALLAX_INVALID, "op is 8");
  call_.op = PARALLAX_OP_OR;
  expect(PARALLAX_INVALID, "op is of integers, dtype is f16");
  call_.op = PARALLAX_OP_MEAN;
  call_.dtype = PARALLAX_I32;
  expect(PARALLAX_INVALID, "op is MEAN, dtype is i32");
  call_.kind = PARALLAX_BROADCAST;  // which has none
  EXPECT_TRUE(check().ok());
}

TEST_F(CollectiveChecks, OtherMemoryIsUnsupportedByName) {
  call_.memory = 1;
  expect(PARALLAX_UNSUPPORTED, "memory");
  call_.memory = 0;
  call_.device = 1;
  expect(PARALLAX_UNSUPPORTED, "device");
  call_.device = 0;
  call_.stream = &call_;
  expect(PARALLAX_UNSUPPORTED, "stream");
}

TEST_F(CollectiveChecks, Counts) {
  call_.count = 1ull << 40;
  expect(PARALLAX_INVALID, "2^40 bytes");
  call_.kind = PARALLAX_ALLGATHER;
  call_.count = UINT64_MAX;
  expect(PARALLAX_INVALID, "2^40 bytes");
  call_.kind = PARALLAX_ALLGATHERV;
  call_.count = 4;
  expect(PARALLAX_INVALID, "recv_counts is null");
  std::vector<uint64_t> counts = {1, 3, 2};
  call_.recv_counts = counts.data();
  expect(PARALLAX_INVALID, "count is 4, recv_counts of this rank itself 3");
  call_.count = 3;
  EXPECT_TRUE(check().ok());
  counts[2] = UINT64_MAX;
  expect(PARALLAX_INVALID, "recv_counts: more than 2^40");
  call_.kind = PARALLAX_ALLTOALLV;
  counts[2] = 0;
  expect(PARALLAX_INVALID, "send_counts is null");
  std::vector<uint64_t> sent = {1, 2, 1};
  call_.send_counts = sent.data();
  expect(PARALLAX_INVALID, "differ for this rank itself");
  sent[kRank] = 3;
  EXPECT_TRUE(check().ok());
  for (const uint64_t** each : {&call_.recv_counts, &call_.send_counts}) {
    const uint64_t* aligned = *each;
    *each = reinterpret_cast<const uint64_t*>(reinterpret_cast<const char*>(aligned) + 4);
    expect(PARALLAX_INVALID, "_counts is not aligned to 8 bytes");
    *each = aligned;
  }
}

TEST_F(CollectiveChecks, BytesAreCopiedAndNotCombined) {
  call_.dtype = PARALLAX_BYTES;
  expect(PARALLAX_INVALID, "dtype is PARALLAX_BYTES, which ALLREDUCE cannot combine");
  EXPECT_EQ(check().facts().field, "dtype");
  call_.kind = PARALLAX_BROADCAST;
  EXPECT_TRUE(check().ok());
  call_.count = (1ull << 40) + 1;
  expect(PARALLAX_INVALID, "2^40 bytes");
}

TEST_F(CollectiveChecks, Buffers) {
  call_.send = nullptr;
  expect(PARALLAX_INVALID, "send is null");
  call_.count = 0;
  EXPECT_TRUE(check().ok());
  call_.count = 4;
  call_.send = numbers_.data();
  call_.recv = nullptr;
  expect(PARALLAX_INVALID, "recv is null");
  call_.kind = PARALLAX_REDUCE;
  EXPECT_TRUE(check().ok()) << "the root's alone";
  call_.root = kRank;
  expect(PARALLAX_INVALID, "recv is null");
  call_.kind = PARALLAX_BROADCAST;
  EXPECT_TRUE(check().ok()) << "the root may do without";
  call_.root = 0;
  call_.recv = numbers_.data();
  call_.send = nullptr;
  EXPECT_TRUE(check().ok()) << "only the root's is read";
}

TEST_F(CollectiveChecks, InPlaceWhereItMayBe) {
  const auto places = [this](std::vector<int> right, int from, int to) {
    for (int i = from; i <= to; ++i) {
      call_.recv = numbers_.data() + 50 + i;
      const bool expected = std::find(right.begin(), right.end(), i) != right.end();
      EXPECT_EQ(check().ok(), expected) << i;
      if (!expected) expect(PARALLAX_INVALID, "overlap");
    }
  };
  call_.send = numbers_.data() + 50;
  places({0}, -3, 3);  // allreduce: the same
  call_.kind = PARALLAX_ALLGATHER;
  places({-4}, -11, 3);  // send is this rank's place in recv
  call_.kind = PARALLAX_REDUCE_SCATTER;
  places({0, 1, 2, 3, 4, 5, 6, 7, 8}, -3, 11);  // anywhere in send
  std::vector<uint64_t> counts = {2, 2, 2};
  call_.kind = PARALLAX_ALLTOALLV;
  call_.send_counts = call_.recv_counts = counts.data();
  places({}, -5, 5);
}

TEST_F(CollectiveChecks, WhatIsNotLookedAtIsNoTerm) {
  Collective what;
  call_.root = 77;
  ASSERT_TRUE(check_collective(call_, kRank, kWorld, &what).ok());
  EXPECT_EQ(what.terms.root, 0u);
  call_.kind = PARALLAX_ALLGATHER;
  call_.op = 99;
  ASSERT_TRUE(check_collective(call_, kRank, kWorld, &what).ok());
  EXPECT_EQ(what.terms.op, 0u);
}

}  // namespace
}  // namespace parallax::testkit
