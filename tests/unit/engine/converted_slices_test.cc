// SPDX-License-Identifier: Apache-2.0
#include "engine/converted_slices.h"

#include <gtest/gtest.h>

#include <new>

#include "support/fake_devices.h"

namespace parallax::testkit {
namespace {

// Devices that note what they are to convert, and have scratch memory of the host's.
class ConvertingDevices : public FakeDevices {
 public:
  Status kernels;
  std::vector<DeviceConversion> asked;

  Status prepare_kernels(uint32_t) override { return kernels; }
  bool exhausted = false;
  Status allocate_scratch(uint32_t, uint64_t bytes, std::byte** memory) override {
    if (exhausted) throw std::bad_alloc();
    *memory = new std::byte[bytes];
    return {};
  }
  void release_scratch(uint32_t, std::byte* memory) noexcept override { delete[] memory; }
  Status convert(CopyDirection, DeviceMark mark, std::span<const DeviceConversion> each,
                 DeviceBatch* batch) override {
    asked.assign(each.begin(), each.end());
    *batch = mark;
    return {};
  }
};

class ConvertedSlicesTest : public testing::Test {
 protected:
  ConvertedSlicesTest() {
    variable_.rows = 5;
    variable_.row_elements = 3;
    taken_.values = values_;
    taken_.into = into_;
    taken_.dtype = PARALLAX_BF16;
    share_ = {.devices = &devices_, .scratch = &pool_};
  }
  Status add(size_t part, parallax_slice_t* host) {
    *host = {};
    host->as_dtype = PARALLAX_AS(PARALLAX_BF16);
    host->stream = values_;
    return slices_.add(share_, variable_, taken_, part, host);
  }

  ConvertingDevices devices_;
  ScratchPool pool_{devices_, 128 << 10};
  DeviceShare share_;
  Variable variable_;
  PullSlice taken_;
  std::byte values_[1] = {}, into_[1] = {};
  ConvertedSlices slices_;
};

TEST_F(ConvertedSlicesTest, ComeInTheVariablesDtypeAndGoInTheirs) {
  parallax_slice_t first = {}, second = {};
  ASSERT_TRUE(add(0, &first).ok());
  ASSERT_TRUE(add(1, &second).ok());
  EXPECT_TRUE(slices_.any());
  EXPECT_EQ(first.as_dtype, 0u);
  EXPECT_EQ(first.stream, nullptr) << "it is ready once it is converted";
  EXPECT_NE(first.values, second.values);
  DeviceBatch batch = 0;
  ASSERT_TRUE(slices_.begin(devices_, CopyDirection::kToHost, 0, 7, &batch).ok());
  EXPECT_EQ(batch, 7u);
  ASSERT_EQ(devices_.asked.size(), 1u) << "those of the part alone";
  EXPECT_EQ(devices_.asked[0].from, values_);
  EXPECT_EQ(devices_.asked[0].to, first.values);
  EXPECT_EQ(devices_.asked[0].from_dtype, uint32_t{PARALLAX_BF16});
  EXPECT_EQ(devices_.asked[0].to_dtype, uint32_t{PARALLAX_F32});
  EXPECT_EQ(devices_.asked[0].count, 15u);
  ASSERT_TRUE(slices_.begin(devices_, CopyDirection::kToDevice, 1, 9, &batch).ok());
  EXPECT_EQ(devices_.asked[0].from, second.values);
  EXPECT_EQ(devices_.asked[0].to, into_);
  EXPECT_EQ(devices_.asked[0].to_dtype, uint32_t{PARALLAX_BF16});
  batch = 0;
  ASSERT_TRUE(slices_.begin(devices_, CopyDirection::kToHost, 2, 9, &batch).ok());
  EXPECT_EQ(batch, 0u);
  slices_.release();
  EXPECT_FALSE(slices_.any());
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

TEST_F(ConvertedSlicesTest, WhatTheDeviceLacksIsSaidAndNothingIsHeld) {
  parallax_slice_t host = {};
  devices_.kernels = unsupported("there are no kernels");
  EXPECT_EQ(add(0, &host).code(), PARALLAX_UNSUPPORTED);
  devices_.kernels = {};
  variable_.rows = 1 << 20;
  const Status full = add(0, &host);
  EXPECT_EQ(full.code(), PARALLAX_LIMIT);
  EXPECT_NE(full.message().find("as_dtype needs"), std::string::npos) << full.message();
  share_.scratch = nullptr;
  EXPECT_EQ(add(0, &host).code(), PARALLAX_UNSUPPORTED);
  EXPECT_FALSE(slices_.any());
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

// What it throws leaves nothing to give back, to a pool that is not known yet.
TEST_F(ConvertedSlicesTest, WithoutMemoryNothingIsHeld) {
  parallax_slice_t host = {};
  devices_.exhausted = true;
  EXPECT_THROW(static_cast<void>(add(0, &host)), std::bad_alloc);
  EXPECT_FALSE(slices_.any());
  slices_.release();
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

TEST_F(ConvertedSlicesTest, WhatADeviceMayStillUseIsNotUsedAgain) {
  parallax_slice_t host = {};
  ASSERT_TRUE(add(0, &host).ok());
  auto* const left = static_cast<std::byte*>(host.values);
  slices_.abandon();
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
  ASSERT_TRUE(add(0, &host).ok());
  EXPECT_NE(host.values, left);
  slices_.release();
  delete[] left;
}

TEST(ConvertedSlices, WhichDtypesBecomeEachOther) {
  EXPECT_TRUE(ConvertedSlices::converts(PARALLAX_BF16, PARALLAX_F32));
  EXPECT_TRUE(ConvertedSlices::converts(PARALLAX_F32, PARALLAX_F16));
  EXPECT_FALSE(ConvertedSlices::converts(PARALLAX_F64, PARALLAX_F32));
  EXPECT_FALSE(ConvertedSlices::converts(PARALLAX_F32, PARALLAX_I32));
}

}  // namespace
}  // namespace parallax::testkit
