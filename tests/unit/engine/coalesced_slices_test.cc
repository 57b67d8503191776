// SPDX-License-Identifier: Apache-2.0
// Which slices of a call their devices coalesce, and how they come then. The module's tests compare
// the bits of whole steps.
#include "engine/coalesced_slices.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/staged_slices.h"
#include "support/coalescing_devices.h"
#include "support/registries.h"
#include "support/words.h"
#include "unit/group/group_world.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kScratch = 1 << 20;

class CoalescedSlicesTest : public testing::Test {
 protected:
  // Variables: kFew has room for two rows, kFlat has no row ids.
  enum : uint32_t { kRows, kOther, kFew, kFlat };

  parallax_slice_t rows(uint32_t variable, const std::vector<int64_t>& ids) {
    const uint64_t width = (*registry_)[variable].row_elements;
    std::vector<float> values(ids.size() * width);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / width + 1);
    parallax_slice_t made = flat(variable, values);
    made.form = PARALLAX_FORM_ROWS;
    made.ids = devices_.make(ids);
    made.row_count = ids.size();
    return made;
  }
  parallax_slice_t halves(const std::vector<int64_t>& ids) {
    parallax_slice_t made = rows(kRows, ids);
    std::vector<Half> values(ids.size() * (*registry_)[kRows].row_elements, to_half(1));
    made.values = devices_.make(values);
    made.as_dtype = PARALLAX_AS(PARALLAX_F16);
    return made;
  }
  parallax_slice_t flat(uint32_t variable, const std::vector<float>& values) {
    parallax_slice_t made = {};
    made.size = sizeof made;
    made.variable = variable;
    made.values = devices_.make(values);
    made.memory = PARALLAX_MEMORY_CUDA;
    made.stream = &stream_;
    return made;
  }
  // Rows of the first and the second slice of a call as they came.
  std::pair<uint64_t, uint64_t> came(const std::vector<parallax_slice_t>& slices) {
    EXPECT_TRUE(begin(slices).ok());
    EXPECT_TRUE(finish().ok());
    const auto here = staged_.host_slices();
    const std::pair<uint64_t, uint64_t> rows = {here[0].row_count, here[1].row_count};
    end();
    return rows;
  }
  Status begin(const std::vector<parallax_slice_t>& slices, RequestKind kind = RequestKind::kPush) {
    borrowed_.clear();
    const DeviceShare share = {
        .devices = &devices_, .pinned = &pinned_, .scratch = &scratch_, .coalesce_bytes_min = min_};
    PARALLAX_RETURN_IF_ERROR(staged_.lay_out(share,
                                             {.registry = *registry_,
                                              .checks = checks_,
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

  const std::unique_ptr<Registry> registry_ =
      registry_of({managed("rows", 40, 40), managed("other", 40, 40), managed("few", 40, 2),
                   managed("flat", 100)});
  const SliceChecks checks_{*registry_};
  CoalescingDevices devices_;
  PinnedPool pinned_{devices_, 0};
  ScratchPool scratch_{devices_, kScratch};
  FakeStream stream_, other_stream_;
  StagedSlices staged_;
  std::vector<ByteRange> borrowed_;
  CoalesceCounts counts_;
  bool first_ = true;
  uint64_t min_ = 1;  // bytes
};

TEST_F(CoalescedSlicesTest, TheDistinctRowsComeBehindTheirCount) {
  const uint64_t width = (*registry_)[kRows].row_elements;
  ASSERT_TRUE(begin({rows(kRows, {3, 1, 3, -1})}).ok());
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
    ASSERT_TRUE(begin({rows(kRows, ids)}).ok());
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

// Sums are floats, and come right behind their ids, where that is fewer bytes than ids and halves:
// what lies behind these stays as it is.
TEST_F(CoalescedSlicesTest, SumsOfHalvesTakeTheRoomOfIdsAndValues) {
  std::vector<int64_t> ids(64);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i % 40);
  const std::vector<float> behind(200, 7);
  ASSERT_TRUE(begin({halves(ids), flat(kFlat, behind)}).ok());
  ASSERT_TRUE(finish().ok());
  const parallax_slice_t& here = staged_.host_slices()[0];
  EXPECT_EQ(here.row_count, 40u);
  EXPECT_EQ(here.as_dtype, PARALLAX_AS(PARALLAX_F32));
  EXPECT_EQ(staged_.result_dtypes()[0], PARALLAX_F16);
  const auto* sums = static_cast<const float*>(here.values);
  EXPECT_EQ(std::vector<float>(sums + 46, sums + 50), (std::vector<float>{2, 2, 1, 1}));
  EXPECT_EQ(here.ids[39], 39);
  const auto* there = static_cast<const float*>(staged_.host_slices()[1].values);
  EXPECT_EQ(std::vector<float>(there, there + 200), behind);
  end();
  ids.resize(48);  // 16 bytes a row, and 12
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i % 36);
  ASSERT_TRUE(begin({halves(ids)}).ok());
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(staged_.host_slices()[0].row_count, 48u) << "nothing would be saved";
  EXPECT_EQ(staged_.host_slices()[0].as_dtype, PARALLAX_AS(PARALLAX_F16));
  end();
}

// Given two slices of a variable in a call, expect their rows as if they had come in one.
TEST_F(CoalescedSlicesTest, SlicesOfACallComeAsOne) {
  const uint64_t width = (*registry_)[kRows].row_elements;
  ASSERT_TRUE(begin({rows(kRows, {3, 1, 3}), rows(kRows, {1, -1, 8, 1})}).ok());
  EXPECT_EQ(borrowed_.size(), 4u);
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(devices_.coalesced, 1u);
  const parallax_slice_t& here = staged_.host_slices()[0];
  ASSERT_EQ(here.row_count, 3u);
  EXPECT_EQ(std::vector<int64_t>(here.ids, here.ids + 3), (std::vector<int64_t>{1, 3, 8}));
  const auto* sums = static_cast<const float*>(here.values);
  EXPECT_EQ(sums[0], 2.0f + 1 + 4);
  EXPECT_EQ(sums[width], 1.0f + 3);
  EXPECT_EQ(sums[2 * width], 3.0f);
  EXPECT_EQ(staged_.host_slices()[1].row_count, 0u);
  EXPECT_EQ(counts_.slices, 2u);
  EXPECT_EQ(counts_.rows, 7u);
  EXPECT_EQ(counts_.copied_rows, 3u);
  EXPECT_EQ(counts_.saved_bytes, 4 * (8 + 4 * width));
  end();
}

// Given slices between which the order of the sum would be another, or that differ in their kind,
// expect the first alone.
TEST_F(CoalescedSlicesTest, WhatDoesNotGoOnWithTheFirstComesWhole) {
  using Rows = std::pair<uint64_t, uint64_t>;
  const std::vector<int64_t> ids = {3, 3, 3};
  parallax_slice_t late = rows(kRows, ids), narrow = rows(kRows, ids);
  late.stream = &other_stream_;
  narrow.ids_i32 = devices_.make(std::vector<int32_t>{3, 3, 3});
  narrow.ids = nullptr;
  EXPECT_EQ(came({rows(kRows, ids), late}), Rows(1, 3));
  EXPECT_EQ(came({rows(kRows, ids), narrow}), Rows(1, 3));
  EXPECT_EQ(came({rows(kRows, ids), halves(ids)}), Rows(1, 3));
  EXPECT_EQ(came({rows(kRows, ids), rows(kRows, {3, 3, 40})}), Rows(3, 3)) << "an id that is none";
  EXPECT_EQ(came({rows(kRows, ids), rows(kRows, {})}), Rows(1, 0));
  ASSERT_TRUE(begin({rows(kRows, ids), rows(kOther, ids), rows(kRows, ids)}).ok());
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(staged_.host_slices()[0].row_count, 1u);
  EXPECT_EQ(staged_.host_slices()[1].row_count, 1u);
  EXPECT_EQ(staged_.host_slices()[2].row_count, 3u) << "its room is not behind the first's";
  end();
  first_ = false;
  EXPECT_EQ(came({rows(kRows, ids), rows(kRows, ids)}), Rows(3, 3));
}

// More rows than the variable has room for are the host's to refuse.
TEST_F(CoalescedSlicesTest, TooManyDistinctRowsComeWhole) {
  EXPECT_EQ(came({rows(kFew, {1, 1, 1, 1}), rows(kFew, {1, 2, 2, 2})}),
            (std::pair<uint64_t, uint64_t>{2, 0}));
  EXPECT_EQ(came({rows(kFew, {1, 1, 1, 1}), rows(kFew, {4, 2, 2, 2})}),
            (std::pair<uint64_t, uint64_t>{4, 4}));
}

TEST_F(CoalescedSlicesTest, FewBytesComeWhole) {
  min_ = 6 * (8 + 8);
  EXPECT_EQ(came({rows(kRows, {3, 3, 3}), rows(kRows, {3, 3, 3})}),
            (std::pair<uint64_t, uint64_t>{1, 0}));
  EXPECT_EQ(came({rows(kRows, {3, 3, 3}), rows(kRows, {3, 3})}),
            (std::pair<uint64_t, uint64_t>{3, 2}));
  EXPECT_EQ(counts_.slices_by_host, 0u) << "no device would have";
}

// Given scratch memory for one of three slices, expect that one coalesced and the others whole.
TEST_F(CoalescedSlicesTest, WhereThereIsNoRoomForAllTheFirstIsAlone) {
  devices_.rows_max = 3;
  const std::vector<int64_t> ids = {3, 3, 3};
  ASSERT_TRUE(begin({rows(kRows, ids), rows(kRows, ids), rows(kRows, ids)}).ok());
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(staged_.host_slices()[0].row_count, 1u);
  for (const size_t i : {1, 2}) {
    const parallax_slice_t& here = staged_.host_slices()[i];
    ASSERT_EQ(here.row_count, 3u);
    EXPECT_EQ(here.ids[2], 3);
    EXPECT_EQ(static_cast<const float*>(here.values)[5], 3.0f);
  }
  EXPECT_EQ(counts_.slices, 1u);
  EXPECT_EQ(counts_.slices_by_host, 2u);
  end();
  devices_.rows_max = 2;
  EXPECT_EQ(came({rows(kRows, ids), rows(kRows, ids)}), (std::pair<uint64_t, uint64_t>{3, 3}));
  EXPECT_EQ(counts_.slices_by_host, 4u);
}

TEST_F(CoalescedSlicesTest, WithoutScratchMemoryTheHostDoes) {
  devices_.refuse_scratch = limit("device 0 is full");
  ASSERT_TRUE(begin({rows(kRows, {3, 3})}).ok());
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(staged_.host_slices()[0].row_count, 2u);
  EXPECT_EQ(counts_.slices_by_host, 1u);
  EXPECT_NE(counts_.why_by_host.find("device 0 is full"), std::string::npos);
  end();
}

TEST_F(CoalescedSlicesTest, OneThatIsNotTakenAnyMoreCopiesNothing) {
  ASSERT_TRUE(begin({rows(kRows, {3, 3})}).ok());
  Status status;
  EXPECT_TRUE(staged_.poll(&status, false)) << "the counts were the last";
  EXPECT_EQ(counts_.slices, 0u);
  end();
  devices_.fail_next_copy = io_error("device 0: it failed");
  ASSERT_TRUE(begin({rows(kRows, {3, 3})}).ok());
  EXPECT_TRUE(has(finish(), "it failed"));
  EXPECT_EQ(devices_.coalesced, 1u) << "not that of the call that failed";
  end();
}

TEST_F(CoalescedSlicesTest, WhatADeviceMayStillUseIsGivenUp) {
  ASSERT_TRUE(begin({rows(kRows, {3, 3})}).ok());
  const uint64_t growth = pinned_.growth_count();
  staged_.abandon();
  EXPECT_EQ(scratch_.bytes_in_use(), 0u);
  ASSERT_TRUE(begin({rows(kRows, {3, 3})}).ok());
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
