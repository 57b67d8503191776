// SPDX-License-Identifier: Apache-2.0
#include "engine/placed_buffers.h"

#include <gtest/gtest.h>

#include <utility>

namespace parallax {
namespace {

// Four floats in each variable; rank `r` has its memory elsewhere.
class PlacedBuffersTest : public testing::Test {
 protected:
  struct Put {
    uintptr_t buffer, offset, into_buffer, into_offset;
  };
  static PlaceTerms terms(uintptr_t base, const std::vector<Put>& all, uint64_t bytes = 4096,
                          uint32_t device = 0) {
    std::vector<Variable> variables(all.size());
    std::vector<const Variable*> pointers;
    for (size_t i = 0; i < all.size(); ++i) {
      Place& place = variables[i].place;
      place.bytes = 16;
      const std::array<std::pair<uintptr_t, uintptr_t>, 2> ends = {
          {{all[i].buffer, all[i].offset}, {all[i].into_buffer, all[i].into_offset}}};
      for (size_t end = 0; end < 2; ++end) {
        const uintptr_t first = base + ends[end].first * 0x10000;
        place.buffers[end] = {.range = {first, bytes}, .device = device, .symmetric = true};
        place.ends[end] = reinterpret_cast<std::byte*>(first + ends[end].second);
      }
      pointers.push_back(&variables[i]);
    }
    return PlacedBuffers(pointers).terms(0, 0);
  }
  static bool same(const PlaceTerms& one, const PlaceTerms& other) {
    if (one.windows.size() != other.windows.size()) return false;
    for (size_t i = 0; i < one.windows.size(); ++i) {
      if (one.windows[i].print != other.windows[i].print) return false;
    }
    return true;
  }
};

TEST_F(PlacedBuffersTest, PrintsAreOfOffsetsAndSizesNotOfAddresses) {
  const std::vector<Put> all = {{1, 0, 1, 64}, {2, 32, 2, 32}, {1, 128, 2, 0}};
  const PlaceTerms here = terms(0x100000, all);
  ASSERT_EQ(here.windows.size(), 2u);
  EXPECT_TRUE(here.agreed(0) && here.agreed(1));
  EXPECT_TRUE(same(here, terms(0x900000, all)));
  EXPECT_FALSE(same(here, terms(0x900000, all, 8192)));
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<Put> other = all;
    other[i].offset += 4;
    EXPECT_FALSE(same(here, terms(0x900000, other))) << i;
    other = all;
    other[i].into_offset += 4;
    EXPECT_FALSE(same(here, terms(0x900000, other))) << i;
  }
  std::vector<Put> swapped = all;
  std::swap(swapped[0].offset, swapped[0].into_offset);
  EXPECT_FALSE(same(here, terms(0x900000, swapped))) << "which end lies where";
  EXPECT_EQ(terms(0x100000, all, 4096, 1).windows[0].print, PlaceTerms::kOtherDevice);
}

TEST_F(PlacedBuffersTest, PlacesOfAnEarlierCommitKeepABufferOut) {
  Variable before, now;
  for (Variable* each : {&before, &now}) {
    each->place.bytes = 16;
    for (size_t end = 0; end < 2; ++end) {
      each->place.buffers[end] = {.range = {0x10000, 4096}, .device = 0, .symmetric = true};
      each->place.ends[end] = reinterpret_cast<std::byte*>(uintptr_t{0x10000});
    }
  }
  const Variable* const first[] = {&before};
  const Variable* const second[] = {&now};
  EXPECT_TRUE(PlacedBuffers(second).terms(0, 0).agreed(0));
  EXPECT_EQ(PlacedBuffers(second, first).terms(0, 0).windows[0].print, PlaceTerms::kEarlier);
  before.place.buffers[0].range.first = before.place.buffers[1].range.first = 0x90000;
  EXPECT_TRUE(PlacedBuffers(second, first).terms(0, 0).agreed(0));
}

TEST_F(PlacedBuffersTest, NoMoreThanACommitSays) {
  std::vector<Put> all;
  for (uintptr_t i = 0; i < PlaceTerms::kWindowsMax + 1; ++i) all.push_back({i, 0, i, 0});
  const PlaceTerms here = terms(0x100000, all);
  EXPECT_EQ(here.windows.size(), PlaceTerms::kWindowsMax);
  EXPECT_TRUE(here.more);
}

}  // namespace
}  // namespace parallax
