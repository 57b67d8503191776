// SPDX-License-Identifier: Apache-2.0
// Which slices of a call their devices coalesce, and how they come then. The module's tests compare
// the bits of whole steps.
#include "engine/coalesced_slices.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/staged_slices.h"
#include "support/coalescing_devices.h"
#include "support/registries.h"
#include "support/words.h"
#include "unit/engine/calls_world.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kScratch = 1 << 20;

class CoalescedSlicesTest : public testing::Test {
 protected:
  parallax_slice_t rows(uint32_t variable, const std::vector<int64_t>& ids) {
    const uint64_t width = world_.registry()[variable].row_elements;
    std::vector<float> values(ids.size() * width);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / width + 1);
    parallax_slice_t made = {};
    made.size = sizeof made;
    made.variable = variable;
    made.form = PARALLAX_FORM_ROWS;
    made.ids = devices_.make(ids);
    made.values = devices_.make(values);
    made.row_count = ids.size();
    made.memory = PARALLAX_MEMORY_CUDA;
    made.stream = &stream_;
    return made;
  }
  Status begin(const std::vector<parallax_slice_t>& slices, RequestKind kind = RequestKind::kPush) {
    borrowed_.clear();
    const DeviceShare share = {
        .devices = &devices_, .pinned = &pinned_, .scratch = &scratch_, .coalesce_bytes_min = 1};
    PARALLAX_RETURN_IF_ERROR(staged_.lay_out(share,
                                             {.registry = world_.registry(),
                                              .checks = world_.checks(),
                                              .kind = kind,
                                              .slices = slices,
                                              .first = [this](uint32_t) { return first_; },
                                              .counts = &counts_},
                                             &borrowed_));
    return staged_.begin(CopyDirection::kToHost);
  }
  Status finish() {
    Status status;
    for (int i = 0; i < 4 && !staged_.poll(&status, true); ++i) {
    }
    EXPECT_FALSE(staged_.under_way());
    return status;
  }
  void end() {
    staged_.release();
    EXPECT_EQ(scratch_.bytes_in_use(), 0u);
    EXPECT_EQ(pinned_.bytes_in_use(), 0u);
    EXPECT_EQ(devices_.marks() + devices_.batches(), 0u);
  }

  CallsWorld world_{{0}};
  CoalescingDevices devices_;
  PinnedPool pinned_{devices_, 0};
  ScratchPool scratch_{devices_, kScratch};
  FakeStream stream_;
  StagedSlices staged_;
  std::vector<ByteRange> borrowed_;
  CoalesceCounts counts_;
  bool first_ = true;
};

TEST_F(CoalescedSlicesTest, TheDistinctRowsComeBehindTheirCount) {
  const uint64_t width = world_.registry()[CallsWorld::kRows].row_elements;
  ASSERT_TRUE(begin({rows(CallsWorld::kRows, {3, 1, 3, -1})}).ok());
  EXPECT_EQ(borrowed_.size(), 2u) << "ids and values";
  stream_.held = true;
  Status status;
  EXPECT_FALSE(staged_.poll(&status, true));
  EXPECT_EQ(devices_.coalesced, 0u) << "the stream has not come to the call";
  stream_.held = false;
  EXPECT_FALSE(staged_.poll(&status, true)) << "now the rows are on their way";
  EXPECT_EQ(devices_.coalesced, 1u);
  ASSERT_TRUE(finish().ok());
  const parallax_slice_t& here = staged_.host_slices()[0];
  ASSERT_EQ(here.row_count, 2u);
  EXPECT_EQ(here.as_dtype, PARALLAX_AS(PARALLAX_F32));
  EXPECT_EQ(here.ids[0], 1);
  EXPECT_EQ(here.ids[1], 3);
  EXPECT_EQ(static_cast<const float*>(here.values)[0], 2.0f);
  EXPECT_EQ(static_cast<const float*>(here.values)[width], 4.0f);
  EXPECT_EQ(counts_.slices, 1u);
  EXPECT_EQ(counts_.rows, 4u);
  EXPECT_EQ(counts_.copied_rows, 2u);
  EXPECT_EQ(counts_.saved_bytes, 2 * (8 + 4 * width));
  end();
}

TEST_F(CoalescedSlicesTest, WhatSavesNothingOrIsWrongComesWhole) {
  for (const std::vector<int64_t>& ids : {std::vector<int64_t>{2, 1}, {5, 5, 4000, 5}}) {
    ASSERT_TRUE(begin({rows(CallsWorld::kRows, ids)}).ok());
    ASSERT_TRUE(finish().ok());
    const parallax_slice_t& here = staged_.host_slices()[0];
    ASSERT_EQ(here.row_count, ids.size());
    EXPECT_EQ(here.as_dtype, 0u);
    EXPECT_EQ(std::vector<int64_t>(here.ids, here.ids + ids.size()), ids);
    EXPECT_EQ(static_cast<const float*>(here.values)[0], 1.0f);
    end();
  }
  EXPECT_EQ(counts_.saved_bytes, 0u);
}

// Sums are floats and come to where the slice's values would: fewer bytes in all, since ids are
// spared too, is not enough.
TEST_F(CoalescedSlicesTest, SumsThatNeedMoreRoomThanHalvesComeWhole) {
  std::vector<int64_t> ids(20);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i % 12);
  parallax_slice_t halves = rows(CallsWorld::kRows, ids);
  halves.as_dtype = PARALLAX_AS(PARALLAX_F16);
  ASSERT_TRUE(begin({halves}).ok());
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(devices_.coalesced, 1u);
  const parallax_slice_t& here = staged_.host_slices()[0];
  EXPECT_EQ(here.row_count, ids.size());
  EXPECT_EQ(here.as_dtype, PARALLAX_AS(PARALLAX_F16));
  EXPECT_EQ(std::vector<int64_t>(here.ids, here.ids + ids.size()), ids);
  EXPECT_EQ(counts_.saved_bytes, 0u);
  end();
}

TEST_F(CoalescedSlicesTest, OfAVariableTheFirstAlone) {
  const std::vector<int64_t> ids = {3, 3, 3};
  ASSERT_TRUE(begin({rows(CallsWorld::kRows, ids), rows(CallsWorld::kRows, ids)}).ok());
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(staged_.host_slices()[0].row_count, 1u);
  EXPECT_EQ(staged_.host_slices()[1].row_count, 3u);
  end();
  first_ = false;
  ASSERT_TRUE(begin({rows(CallsWorld::kRows, ids)}).ok());
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(staged_.host_slices()[0].row_count, 3u);
  EXPECT_EQ(devices_.coalesced, 1u);
  end();
}

TEST_F(CoalescedSlicesTest, WithoutScratchMemoryTheHostDoes) {
  devices_.refuse_scratch = limit("device 0 is full");
  ASSERT_TRUE(begin({rows(CallsWorld::kRows, {3, 3})}).ok());
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(staged_.host_slices()[0].row_count, 2u);
  EXPECT_EQ(counts_.slices_by_host, 1u);
  EXPECT_NE(counts_.why_by_host.find("device 0 is full"), std::string::npos);
  end();
}

TEST_F(CoalescedSlicesTest, OneThatIsNotTakenAnyMoreCopiesNothing) {
  ASSERT_TRUE(begin({rows(CallsWorld::kRows, {3, 3})}).ok());
  Status status;
  EXPECT_TRUE(staged_.poll(&status, false)) << "the counts were the last";
  EXPECT_EQ(counts_.slices, 0u);
  end();
  devices_.fail_next_copy = io_error("device 0: it failed");
  ASSERT_TRUE(begin({rows(CallsWorld::kRows, {3, 3})}).ok());
  EXPECT_TRUE(has(finish(), "it failed"));
  EXPECT_EQ(devices_.coalesced, 1u) << "not that of the call that failed";
  end();
}

TEST_F(CoalescedSlicesTest, WhatADeviceMayStillUseIsGivenUp) {
  ASSERT_TRUE(begin({rows(CallsWorld::kRows, {3, 3})}).ok());
  const uint64_t growth = pinned_.growth_count();
  staged_.abandon();
  EXPECT_EQ(scratch_.bytes_in_use(), 0u);
  ASSERT_TRUE(begin({rows(CallsWorld::kRows, {3, 3})}).ok());
  EXPECT_GT(pinned_.growth_count(), growth) << "the block was not used again";
  ASSERT_TRUE(finish().ok());
  staged_.release();
}

TEST(CoalescedSlices, WhatTheBitsAllow) {
  Variable variable;
  variable.dtype = PARALLAX_F16;
  EXPECT_TRUE(CoalescedSlices::may_coalesce(variable, RequestKind::kPush, PARALLAX_F16));
  EXPECT_TRUE(CoalescedSlices::may_coalesce(variable, RequestKind::kReduce, PARALLAX_F16));
  EXPECT_TRUE(CoalescedSlices::may_coalesce(variable, RequestKind::kReduce, PARALLAX_F32));
  EXPECT_FALSE(CoalescedSlices::may_coalesce(variable, RequestKind::kPull, PARALLAX_F32));
  EXPECT_TRUE(CoalescedSlices::may_coalesce(variable, RequestKind::kPush, PARALLAX_F64));
  EXPECT_TRUE(CoalescedSlices::may_coalesce(variable, RequestKind::kReduce, PARALLAX_F64));
  variable.dtype = PARALLAX_F64;
  EXPECT_FALSE(CoalescedSlices::may_coalesce(variable, RequestKind::kPush, PARALLAX_F32));
  variable.dtype = PARALLAX_F32;
  variable.refuse_nonfinite = true;
  EXPECT_FALSE(CoalescedSlices::may_coalesce(variable, RequestKind::kPush, PARALLAX_F32));
}

}  // namespace
}  // namespace parallax::testkit
