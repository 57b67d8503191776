// SPDX-License-Identifier: Apache-2.0
// Where the rest of a message goes, and that it comes so. What becomes of messages that are whole,
// and of those that fit nowhere, is in engine_garbage_test.cc and engine_hostile_test.cc.
#include "engine/intake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

// Two ranks of two hosts in a step of one dense variable, whose sums go to a buffer of the
// caller's.
class PlacesTest : public testing::Test {
 protected:
  static constexpr uint64_t kPlacedRows = 64;
  static constexpr uint64_t kPlacedElements = kPlacedRows * 1024;

  PlacesTest() : world_({.hosts = {0, 1}, .seed = 1}) {
    const parallax_variable_t variable =
        dense_variable("dense", kPlacedRows, kPlacedElements / kPlacedRows);
    for (const Status& status : world_.commit({&variable, 1})) EXPECT_TRUE(status.ok());
    values_.resize(2);
    for (std::vector<float>& each : values_) each.assign(kPlacedElements, 1);
  }

  // Of rank 0: the first message of which it is asked where the rest goes, and answers.
  void at_first_place(std::function<void(Receiver&, const std::vector<std::byte>& message)> then) {
    world_.transport(0).watch([this, then](Receiver& receiver, uint32_t from,
                                           std::span<const std::byte> message) {
      if (found_ || message.size() <= kMessageHeadBytes ||
          place_of(receiver, std::vector<std::byte>(message.begin(), message.end())) == nullptr) {
        return;
      }
      EXPECT_EQ(from, 1u);
      found_ = true;
      then(receiver, std::vector<std::byte>(message.begin(), message.end()));
    });
  }
  static std::byte* place_of(Receiver& receiver, const std::vector<std::byte>& message,
                             size_t more_bytes = 0, uint32_t from = 1) {
    return receiver.place(from, std::span(message).first(kMessageHeadBytes),
                          message.size() - kMessageHeadBytes + more_bytes);
  }
  // Both ranks; the statuses of the reductions, by rank.
  std::vector<Status> step() {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      uint64_t number = 0;
      EXPECT_TRUE(world_.engine(rank).step_calls().begin(&number).ok());
    }
    const std::vector<Status> statuses = world_.everywhere([&](uint32_t rank, Request** request) {
      const parallax_slice_t slice = dense_slice(0, values_[rank].data());
      return world_.engine(rank).step_calls().reduce(1, {&slice, 1}, request);
    });
    return statuses;
  }
  bool is_in_values(const std::byte* place) const {
    const auto* const first = reinterpret_cast<const std::byte*>(values_[0].data());
    return place >= first && place < first + kPlacedElements * sizeof(float);
  }

  EngineWorld world_;
  std::vector<std::vector<float>> values_;
  bool found_ = false;
};

// Given a part of a result on its way back, expect its place in the caller's buffer, the same each
// time, and none for what would not be taken.
TEST_F(PlacesTest, ARestGoesWhereItsElementsAreCopied) {
  at_first_place([this](Receiver& receiver, const std::vector<std::byte>& message) {
    EXPECT_TRUE(is_in_values(place_of(receiver, message)));
    EXPECT_EQ(place_of(receiver, message), place_of(receiver, message));
    EXPECT_EQ(place_of(receiver, message, 4), nullptr) << "more than its section has";
    EXPECT_EQ(place_of(receiver, message, 0, 2), nullptr) << "of nobody";
    EXPECT_EQ(place_of(receiver, message, 0, 0), nullptr) << "of this rank itself";
    // Every byte by which the head says what the message is.
    const size_t fields[] = {offsetof(MessageHeader, magic),
                             offsetof(MessageHeader, epoch),
                             offsetof(MessageHeader, section_count),
                             sizeof(MessageHeader) + offsetof(SectionHeader, kind),
                             sizeof(MessageHeader) + offsetof(SectionHeader, encoding),
                             sizeof(MessageHeader) + offsetof(SectionHeader, tag),
                             sizeof(MessageHeader) + offsetof(SectionHeader, step) + 7,
                             sizeof(MessageHeader) + offsetof(SectionHeader, first),
                             sizeof(MessageHeader) + offsetof(SectionHeader, count),
                             sizeof(MessageHeader) + offsetof(SectionHeader, payload_bytes)};
    for (const size_t at : fields) {
      std::vector<std::byte> bent = message;
      bent[at] ^= std::byte{8};
      EXPECT_EQ(place_of(receiver, bent), nullptr) << "byte " << at;
    }
    std::vector<std::byte> repeat = message;
    std::memset(repeat.data() + offsetof(MessageHeader, sequence), 0, sizeof(uint32_t));
    EXPECT_EQ(place_of(receiver, repeat), nullptr) << "of the past";
  });
  for (const Status& status : step()) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(found_) << "nothing was placed";
  for (const std::vector<float>& each : values_) {
    EXPECT_EQ(std::count(each.begin(), each.end(), 2.0f), static_cast<ptrdiff_t>(each.size()));
  }
}

// Given a job that fails while the rest of a message is on its way, expect no place for it any
// more: the caller has its memory back.
TEST_F(PlacesTest, AFailedJobHasNone) {
  at_first_place([this](Receiver& receiver, const std::vector<std::byte>& message) {
    world_.engine(0).job_calls().abort("enough");
    EXPECT_EQ(place_of(receiver, message), nullptr);
  });
  for (const Status& status : step()) EXPECT_FALSE(status.ok());
  EXPECT_TRUE(found_) << "nothing was placed";
}

}  // namespace
}  // namespace parallax::testkit
