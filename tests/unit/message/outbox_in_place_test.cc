// SPDX-License-Identifier: Apache-2.0
// Elements that the outbox sends from where they lie, and sends that grow while they are queued.
#include <gtest/gtest.h>

#include <vector>

#include "message/outbox.h"
#include "unit/message/outbox_fixture.h"

namespace parallax::outbox_tests {
namespace {

// Given a transport that copies sends, expect elements in messages to come from where they lie, but
// few ones, converted ones and those to this rank itself; and each message as it is without.
TEST_F(OutboxTest, ElementsLeaveFromWhereTheyLie) {
  transport_.copies = true;
  std::vector<float> values(600);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::vector<float> few(20, 3.0f);
  const auto lies_in = [](const std::byte* at, const std::vector<float>& where) {
    return at >= bytes_of(where) && at < bytes_of(where) + where.size() * sizeof(float);
  };
  Send converted = dense_send(values, 0, 3);
  converted.format = {.source_bytes = sizeof(float),
                      .convert = converter(PARALLAX_F32, PARALLAX_F64)};
  converted.format.element_bytes = sizeof(double);
  outbox_.add(2, dense_send(few, 0, 1));
  outbox_.add(2, dense_send(values, 0, 2));
  outbox_.add(2, converted);
  outbox_.add(kSelf, dense_send(values, 0, 4));
  uint32_t in_place = 0;
  std::vector<Got> all;
  while (outbox_.pump()) {
    for (const Sent& message : transport_.sent) {
      EXPECT_LE(message.bytes.size(), kMessageBytes);
      for (const std::byte* from : message.from) in_place += lies_in(from, values) ? 1 : 0;
      for (const std::byte* from : message.from) EXPECT_FALSE(lies_in(from, few));
      for (Got& got : sections_of(2, message.bytes)) all.push_back(std::move(got));
      outbox_.on_sent(message.cookie);
    }
    transport_.sent.clear();
  }
  EXPECT_EQ(in_place, 1u) << "600 elements fit the first message";
  ASSERT_GE(all.size(), 3u);
  EXPECT_EQ(values_of<float>(all[0].payload), few);
  EXPECT_EQ(values_of<float>(all[1].payload), values);
  EXPECT_EQ(all[2].header.tag, 3u);
  EXPECT_EQ(values_of<double>(all[2].payload)[1], 1.0);
  ASSERT_EQ(looped_.size(), 1u);
  EXPECT_EQ(values_of<float>(looped_[0].payload), values);
  EXPECT_EQ(pending_, 0u);
}

// Given rows in any order, expect each with its row key, whole.
TEST_F(OutboxTest, RowsGoWithKeysAndFromWhereTheyLie) {
  for (const uint32_t width : {1u, 3u, 300u, 900u}) {
    constexpr uint32_t kCount = 40;
    std::vector<uint32_t> row_keys(kCount), order(kCount);
    std::vector<float> values(kCount * width);
    for (uint32_t i = 0; i < kCount; ++i) {
      row_keys[i] = 1000 + i;
      order[i] = kCount - 1 - i;
    }
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    // Each by itself, in an order of their own.
    std::vector<const std::byte*> places(kCount);
    for (uint32_t i = 0; i < kCount; ++i) {
      places[i] = bytes_of(values) + i * width * sizeof(float);
    }
    for (const auto& [encoding, by_places] :
         {std::pair(Encoding::kRows, false), std::pair(Encoding::kRows, true),
          std::pair(Encoding::kValues, false), std::pair(Encoding::kValues, true),
          std::pair(Encoding::kIds, false)}) {
      Send send;
      send.header.kind = SectionKind::kHostReduce;
      send.header.encoding = encoding;
      send.rows = {.row_keys = encoding == Encoding::kValues ? nullptr : row_keys.data(),
                   .values = encoding == Encoding::kIds || by_places ? nullptr : bytes_of(values),
                   .places = by_places ? places.data() : nullptr,
                   .order = order.data(),
                   .row_elements = width};
      send.count = kCount;
      outbox_.add(1, send);
      uint32_t item = 0;
      for (const Got& got : flush(1)) {
        ASSERT_EQ(got.header.first, item);
        std::span<const std::byte> payload = got.payload;
        std::vector<uint32_t> got_row_keys;
        if (encoding != Encoding::kValues) {
          got_row_keys = values_of<uint32_t>(payload.first(got.header.count * 4));
          payload = payload.subspan(got.header.count * 4);
        }
        const auto rows = values_of<float>(payload);
        ASSERT_EQ(rows.size(), encoding == Encoding::kIds ? 0 : got.header.count * width);
        for (uint32_t i = 0; i < got.header.count; ++i, ++item) {
          ASSERT_TRUE(got_row_keys.empty() || got_row_keys[i] == row_keys[item]);
          const uint32_t slot = order[item];
          for (uint32_t c = 0; c < width && !rows.empty(); ++c) {
            ASSERT_EQ(rows[i * width + c], values[slot * width + c]);
          }
        }
      }
      ASSERT_EQ(item, kCount) << width;
    }
  }
}

// Given a send that is queued, expect elements behind it to go with it, and its handle to be null
// from when it is packed or dropped.
TEST_F(OutboxTest, AQueuedSendGrows) {
  std::vector<float> values(500);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  Send* queued = nullptr;
  Send send = dense_send(values, 0, 1);
  send.count = 100;
  send.handle = &queued;
  outbox_.add(2, send);
  ASSERT_NE(queued, nullptr);
  Outbox::extend(queued, 400);
  const std::vector<Got> sections = flush(2);
  EXPECT_EQ(queued, nullptr);
  ASSERT_EQ(sections.size(), 1u);
  EXPECT_EQ(values_of<float>(sections[0].payload), values);
  ++pending_;
  outbox_.add(2, send);
  ASSERT_NE(queued, nullptr);
  outbox_.drop(2);
  EXPECT_EQ(queued, nullptr);
  ++pending_;
  outbox_.add(2, send);
  EXPECT_EQ(queued, nullptr) << "dropped at once";
  EXPECT_EQ(pending_, 0u);
}

}  // namespace
}  // namespace parallax::outbox_tests
