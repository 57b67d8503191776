// SPDX-License-Identifier: Apache-2.0
// What of a call's slices is copied, from where to where. DeviceCalls' tests run the whole way.
#include "engine/staged_slices.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/fake_devices.h"
#include "support/registries.h"
#include "support/words.h"
#include "unit/engine/calls_world.h"

namespace parallax::testkit {
namespace {

class StagedSlicesTest : public testing::Test {
 protected:
  parallax_slice_t slice(uint32_t variable, float* values, uint32_t device, FakeStream* stream) {
    parallax_slice_t made = {};
    made.size = sizeof made;
    made.variable = variable;
    made.values = values;
    made.memory = PARALLAX_MEMORY_CUDA;
    made.device = device;
    made.stream = stream;
    return made;
  }
  Status lay_out(RequestKind kind, const std::vector<parallax_slice_t>& slices) {
    borrowed_.clear();
    return staged_.lay_out(
        {&share_.devices, &share_.pinned},
        {.registry = world_.registry(), .checks = world_.checks(), .kind = kind, .slices = slices},
        &borrowed_);
  }

  CallsWorld world_{{0}};
  FakeShare share_;
  StagedSlices staged_;
  std::vector<ByteRange> borrowed_;
  FakeStream one_, two_;
};

TEST_F(StagedSlicesTest, SlicesOfOneStreamAreOneBatch) {
  FakeDevices& devices = share_.devices;
  float* first = devices.make(std::vector<float>(6, 1.0f));
  float* second = devices.make(std::vector<float>(6, 2.0f), 1);
  float host[6] = {};
  parallax_slice_t here = slice(CallsWorld::kHeld, host, 0, nullptr);
  here.memory = PARALLAX_MEMORY_HOST;
  ASSERT_TRUE(lay_out(RequestKind::kReduce, {slice(CallsWorld::kHeld, first, 0, &one_), here,
                                             slice(CallsWorld::kHeld, second, 1, &two_),
                                             slice(CallsWorld::kHeld, first, 0, &one_)})
                  .ok());
  EXPECT_EQ(devices.marks(), 2u);
  EXPECT_EQ(staged_.where(), "devices 0, 1");
  EXPECT_TRUE(staged_.copies(CopyDirection::kToHost) && staged_.copies(CopyDirection::kToDevice));
  EXPECT_EQ(borrowed_.size(), 8u)
      << "there and back of each on a device; values and where the sum goes of the other";
  ASSERT_TRUE(staged_.begin(CopyDirection::kToHost).ok());
  EXPECT_EQ(devices.batches(), 2u);
  EXPECT_TRUE(staged_.under_way());
  Status status;
  EXPECT_TRUE(staged_.poll(&status, true) && status.ok());
  const auto slices = staged_.host_slices();
  EXPECT_EQ(slices[1].values, host);
  EXPECT_EQ(static_cast<const float*>(slices[0].values)[5], 1.0f);
  EXPECT_EQ(static_cast<const float*>(slices[2].values)[5], 2.0f);
  EXPECT_NE(slices[0].values, slices[3].values);
  for (const parallax_slice_t& each : slices) {
    EXPECT_EQ(each.memory, PARALLAX_MEMORY_HOST);
    EXPECT_TRUE(each.stream == nullptr && each.device == 0);
  }
  staged_.release();
  EXPECT_EQ(devices.marks(), 0u);
  EXPECT_EQ(share_.pinned.bytes_in_use(), 0u);
}

TEST_F(StagedSlicesTest, WhatGoesWhereByTheKindOfTheCall) {
  float* values = share_.devices.make(std::vector<float>(6, 1.0f));
  const struct {
    RequestKind kind;
    bool in, out;
  } cases[] = {{RequestKind::kPush, true, false},
               {RequestKind::kReduce, true, true},
               {RequestKind::kPull, false, true},
               {RequestKind::kEvaluate, false, true}};
  for (const auto& each : cases) {
    ASSERT_TRUE(lay_out(each.kind, {slice(CallsWorld::kHeld, values, 0, nullptr)}).ok());
    EXPECT_EQ(staged_.copies(CopyDirection::kToHost), each.in);
    EXPECT_EQ(staged_.copies(CopyDirection::kToDevice), each.out);
    staged_.release();
  }
  parallax_slice_t part = slice(CallsWorld::kHeld, values, 0, nullptr);
  part.more = 1;
  ASSERT_TRUE(lay_out(RequestKind::kReduce, {part}).ok());
  EXPECT_FALSE(staged_.copies(CopyDirection::kToDevice)) << "the last micro-batch gets the sum";
  staged_.release();
  parallax_slice_t none = slice(CallsWorld::kHeldRows, nullptr, 0, nullptr);
  none.form = PARALLAX_FORM_ROWS;
  ASSERT_TRUE(lay_out(RequestKind::kPush, {none}).ok());
  EXPECT_FALSE(staged_.copies(CopyDirection::kToHost)) << "no rows";
  staged_.release();
}

// The contract of exchanges: what is still on its way has its result elsewhere, in place too; where
// all of it is here one room does for both.
TEST_F(StagedSlicesTest, WhatArrivesHasItsResultInOtherMemory) {
  float* values = share_.devices.make(std::vector<float>(6, 1.0f));
  for (const bool arrives : {true, false}) {
    std::vector<ByteRange> borrowed;
    const std::vector<parallax_slice_t> slices = {slice(CallsWorld::kHeld, values, 0, nullptr)};
    ASSERT_TRUE(staged_
                    .lay_out({.devices = &share_.devices,
                              .pinned = &share_.pinned,
                              .arriving_piece_bytes = 2 * sizeof(float)},
                             {.registry = world_.registry(),
                              .checks = world_.checks(),
                              .kind = RequestKind::kReduce,
                              .slices = slices,
                              .first = [arrives](uint32_t) { return arrives; }},
                             &borrowed)
                    .ok());
    const parallax_slice_t& host = staged_.host_slices()[0];
    EXPECT_EQ(!staged_.arriving().empty() && staged_.arriving()[0] != nullptr, arrives);
    const ByteRange from = ByteRange::at(host.values, 6 * sizeof(float));
    const ByteRange to = ByteRange::at(host.into, 6 * sizeof(float));
    EXPECT_EQ(host.into != nullptr && !from.overlaps(to), arrives);
    staged_.release();
  }
}

TEST_F(StagedSlicesTest, OneThatIsRefusedHoldsNothing) {
  float* values = share_.devices.make(std::vector<float>(6, 1.0f));
  const Status status = lay_out(RequestKind::kPush, {slice(CallsWorld::kHeld, values, 0, nullptr),
                                                     slice(CallsWorld::kHeld, values, 1, &two_)});
  EXPECT_TRUE(has(status, "push, slice 1 (variable 'held')")) << status.message();
  EXPECT_EQ(status.facts().slice, 1u);
  EXPECT_EQ(share_.devices.marks(), 0u);
  EXPECT_TRUE(staged_.host_slices().empty());
}

}  // namespace
}  // namespace parallax::testkit
