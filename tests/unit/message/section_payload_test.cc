// SPDX-License-Identifier: Apache-2.0
#include "message/section_payload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

constexpr uint32_t kWidth = 3;
constexpr uint32_t kItems = 300;
constexpr std::byte kUntouched{0x5a};

// Rows that lie in memory by slot, and a send of them in an order by chance.
struct Rows {
  explicit Rows(SeededRandom& random) : numbers(kItems * kWidth), order(kItems), row_keys(kItems) {
    for (float& each : numbers) each = static_cast<float>(random.below(1000));
    for (uint32_t i = 0; i < kItems; ++i) std::swap(order[i] = i, order[random.below(i + 1)]);
    // They ascend, as places that are listed do, some one behind the other.
    uint32_t next = 0;
    for (uint32_t& each : row_keys) each = next += random.chance(60) ? 1 : 1 + random.below(20);
    for (uint32_t slot = 0; slot < kItems; ++slot) {
      places.push_back(reinterpret_cast<const std::byte*>(&numbers[slot * kWidth]));
    }
  }
  Send send(Encoding encoding, bool by_places) const {
    Send send;
    send.header.encoding = encoding;
    send.format = {.element_bytes = 4, .source_bytes = 4};
    send.rows.row_elements = kWidth;
    send.rows.order = order.data();
    if (encoding != Encoding::kValues) send.rows.row_keys = row_keys.data();
    if (encoding != Encoding::kIds && by_places) send.rows.places = places.data();
    if (encoding != Encoding::kIds && !by_places) {
      send.rows.values = reinterpret_cast<const std::byte*>(numbers.data());
    }
    send.bytes = send.dense = reinterpret_cast<const std::byte*>(numbers.data());
    send.count = encoding == Encoding::kBytes ? kItems * 4 : kItems;
    return send;
  }

  std::vector<float> numbers;
  std::vector<uint32_t> order, row_keys;
  std::vector<const std::byte*> places;
};

size_t bytes_of(const Send& send, uint64_t count) {
  return bytes_before_numbers(send, count) + count * bytes_of_item(send);
}

// Given any room, expect no more items than have room there, and where each takes as much as the
// other, one more to have none; of elements whole grains, but for the last ones.
TEST(SectionPayload, AsManyItemsAsThereIsRoomFor) {
  SeededRandom random(1);
  const Rows rows(random);
  for (const Encoding encoding : {Encoding::kBytes, Encoding::kDense, Encoding::kRows,
                                  Encoding::kIds, Encoding::kValues, Encoding::kListedRows}) {
    for (size_t room = 0; room < 6000; room += 1 + random.below(9)) {
      Send send = rows.send(encoding, false);
      send.packed = random.below(send.count);
      const uint64_t left = send.count - send.packed;
      const uint64_t fit = std::min(left, items_that_fit(send, room));
      SCOPED_TRACE(std::to_string(static_cast<int>(encoding)) + ", " + std::to_string(room));
      ASSERT_LE(bytes_of(send, fit), room);
      if (fit == left) continue;
      if (encoding == Encoding::kDense) {
        ASSERT_EQ(fit % kDenseGrain, 0u);
        ASSERT_GT(bytes_of(send, std::min<uint64_t>(left, fit + kDenseGrain)), room);
      } else if (encoding == Encoding::kListedRows) {
        // Which are so many that their bits are another byte is not looked for.
        ASSERT_GT(bytes_of(send, fit + 1) + 2 * bytes_of_item(send), room);
      } else {
        ASSERT_GT(bytes_of(send, fit + 1), room);
      }
    }
  }
}

// Given rows that lie by slot or each by itself, from any item on, expect row keys and rows in the
// order of the send, and nothing written behind them.
TEST(SectionPayload, RowsAreWrittenInTheirOrder) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const Rows rows(random);
    for (const Encoding encoding : {Encoding::kRows, Encoding::kValues, Encoding::kListedRows}) {
      for (const bool by_places : {false, true}) {
        Send send = rows.send(encoding, by_places);
        const bool halved = seed % 3 == 0;
        if (halved) {
          send.format = {.element_bytes = 2,
                         .source_bytes = 4,
                         .convert = converter(PARALLAX_F32, PARALLAX_BF16)};
        }
        send.packed = random.below(kItems);
        const uint64_t count = random.below(kItems - send.packed + 1);
        const size_t before = bytes_before_numbers(send, count);
        std::vector<std::byte> out(bytes_of(send, count) + 1, kUntouched);
        write_payload(send, count, out.data());
        ASSERT_EQ(out.back(), kUntouched);
        if (encoding == Encoding::kRows && count > 0) {
          ASSERT_EQ(std::memcmp(out.data(), &rows.row_keys[send.packed], before), 0);
        }
        for (uint64_t i = 0; i < count; ++i) {
          const uint32_t slot = rows.order[send.packed + i];
          for (uint32_t column = 0; column < kWidth; ++column) {
            const std::byte* const there =
                &out[before + (i * kWidth + column) * send.format.element_bytes];
            const float want = rows.numbers[slot * kWidth + column];
            uint32_t got = 0;
            std::memcpy(&got, there, send.format.element_bytes);
            uint32_t bits = std::bit_cast<uint32_t>(want);
            if (halved) {
              bits = 0;
              converter(PARALLAX_F32, PARALLAX_BF16)(reinterpret_cast<const std::byte*>(&want),
                                                     reinterpret_cast<std::byte*>(&bits), 1);
            }
            ASSERT_EQ(got, bits) << i;
          }
        }
      }
    }
  }
}

// Given rows that are named by what was pulled, expect a bit for each place that they are of,
// counted from the first; none, where they follow each other.
TEST(SectionPayload, ListedRowsHaveBitsWhereTheySkip) {
  const std::vector<uint32_t> together = {4, 5, 6, 7}, apart = {4, 5, 7, 20};
  const std::vector<float> numbers(4);
  for (const auto* const places : {&together, &apart}) {
    Send send;
    send.header.encoding = Encoding::kListedRows;
    send.format = {.element_bytes = 4, .source_bytes = 4};
    send.rows = {.row_keys = places->data(),
                 .values = reinterpret_cast<const std::byte*>(numbers.data()),
                 .row_elements = 1};
    send.count = 4;
    const size_t before = bytes_before_numbers(send, 4);
    EXPECT_EQ(before, places == &together ? 0u : 3u);
    std::vector<std::byte> out(before + 16);
    write_payload(send, 4, out.data());
    if (places == &together) continue;
    EXPECT_EQ(out[0], std::byte{0b1011});
    EXPECT_EQ(out[1], std::byte{0});
    EXPECT_EQ(out[2], std::byte{1});
  }
}

}  // namespace
}  // namespace parallax
