// SPDX-License-Identifier: Apache-2.0
// Sections of rows that travel in fewer bytes: what comes out of the decoder is what would have
// come without, however messages cut it; and nothing that a peer may send does more than be
// refused.
#include "message/section_coding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "base/seeded_random.h"
#include "unit/message/outbox_fixture.h"

namespace parallax::outbox_tests {
namespace {

// Ascending row keys, and rows of numbers of a narrow or of any exponent.
struct Rows {
  Rows(uint64_t seed, uint32_t count, uint32_t row_elements, bool narrow) : width(row_elements) {
    SeededRandom random(seed);
    std::set<uint32_t> drawn;
    while (drawn.size() < count) drawn.insert(static_cast<uint32_t>(random.below(50 * count + 8)));
    row_keys.assign(drawn.begin(), drawn.end());
    for (uint32_t i = 0; i < count; ++i) order.push_back(count - 1 - i);
    for (uint32_t i = 0; i < count * width; ++i) {
      const auto any = static_cast<uint32_t>(random.below(1ull << 32));
      const float near = static_cast<float>(random.between(-1000, 1000)) / 512;
      float value;
      std::memcpy(&value, &any, sizeof value);
      values.push_back(narrow ? near : value);
    }
  }
  Send send(Encoding encoding, SectionCoding coding) const {
    Send send;
    send.header = {.kind = SectionKind::kHostReduce, .encoding = encoding, .flags = kSectionLast};
    send.rows = {.row_keys = encoding == Encoding::kValues ? nullptr : row_keys.data(),
                 .values = encoding == Encoding::kIds
                               ? nullptr
                               : reinterpret_cast<const std::byte*>(values.data()),
                 .order = order.data(),
                 .row_elements = width};
    send.count = row_keys.size();
    send.coding = coding;
    return send;
  }

  uint32_t width;
  std::vector<uint32_t> row_keys, order;
  std::vector<float> values;
};

class SectionCodingTest : public OutboxTest {
 protected:
  // Row keys (or places), and rows, of all sections in turn.
  struct Read {
    std::vector<uint32_t> row_keys;
    std::vector<std::byte> rows;
    std::vector<uint8_t> flags;  // of each section
    size_t coded = 0, sections = 0;
  };
  Read read(const Rows& rows, Encoding encoding, SectionCoding coding) {
    SectionDecoder decoder;
    decoder.reserve(kMessageBytes);
    outbox_.add(1, rows.send(encoding, coding));
    Read all;
    for (const Got& got : flush(1)) {
      Section section = {.header = got.header, .payload = got.payload};
      ++all.sections;
      if (SectionDecoder::is_coded(got.header)) {
        ++all.coded;
        EXPECT_TRUE(decoder.decode(&section));
        EXPECT_FALSE(SectionDecoder::is_coded(section.header));
        EXPECT_LT(got.payload.size(), section.payload.size());
      }
      EXPECT_EQ(section.header.payload_bytes, section.payload.size());
      all.flags.push_back(section.header.flags);
      const size_t rows_bytes =
          encoding == Encoding::kIds ? 0 : section.header.count * rows.width * sizeof(float);
      const auto before = section.payload.first(section.payload.size() - rows_bytes);
      if (encoding == Encoding::kListedRows) {
        for (size_t i = 0; i < std::max(8 * before.size(), size_t{section.header.count}); ++i) {
          const bool here =
              before.empty() || (before[i / 8] >> i % 8 & std::byte{1}) != std::byte{0};
          if (here) all.row_keys.push_back(static_cast<uint32_t>(section.header.first + i));
        }
      } else {
        for (size_t i = 0; i < before.size(); i += 4) {
          uint32_t row_key;
          std::memcpy(&row_key, &before[i], sizeof row_key);
          all.row_keys.push_back(row_key);
        }
      }
      const auto there = section.payload.subspan(before.size());
      all.rows.insert(all.rows.end(), there.begin(), there.end());
    }
    return all;
  }
};

TEST_F(SectionCodingTest, ComesOutAsItWas) {
  constexpr Encoding kEncodings[] = {Encoding::kRows, Encoding::kIds, Encoding::kValues,
                                     Encoding::kListedRows};
  constexpr SectionCoding kCodings[] = {{true, false}, {false, true}, {true, true}};
  for (const uint32_t width : {1u, 3u, 16u, 300u}) {
    for (const uint32_t count : {1u, 2u, 40u, 700u}) {
      for (const bool narrow : {true, false}) {
        const Rows rows(width * count, count, width, narrow);
        for (const Encoding encoding : kEncodings) {
          const Read plain = read(rows, encoding, {});
          EXPECT_EQ(plain.coded, 0u);
          for (const SectionCoding coding : kCodings) {
            const Read coded = read(rows, encoding, coding);
            ASSERT_EQ(coded.row_keys, plain.row_keys);
            ASSERT_EQ(coded.rows, plain.rows);
            std::vector<uint8_t> flags(coded.sections);
            flags.back() = kSectionLast;
            ASSERT_EQ(coded.flags, flags) << "of the last alone";
            ASSERT_LE(coded.sections, 2 * plain.sections);
          }
        }
      }
    }
  }
}

// What is spared is counted, and room for more: of rows of one number messages carry more.
TEST_F(SectionCodingTest, TakesFewerBytes) {
  const Rows rows(7, 3000, 1, true);
  read(rows, Encoding::kRows, {});
  const size_t plain_bytes = section_bytes_, plain_messages = messages_;
  section_bytes_ = messages_ = 0;
  const Read coded = read(rows, Encoding::kRows, {.row_keys = true, .numbers = true});
  EXPECT_EQ(coded.coded, coded.sections);
  EXPECT_LT(section_bytes_, 0.65 * plain_bytes);
  EXPECT_LT(messages_, plain_messages);
  // But for the headers of sections that were fewer.
  EXPECT_NEAR(section_bytes_ + spared_bytes_, plain_bytes, 32.0 * coded.sections);
}

TEST_F(SectionCodingTest, NothingIsCodedThatWouldNotBeSmaller) {
  EXPECT_EQ(read(Rows(3, 1, 1, true), Encoding::kRows, {true, true}).coded, 0u);
  EXPECT_EQ(read(Rows(3, 50, 40, false), Encoding::kValues, {true, true}).coded, 0u);
  EXPECT_EQ(spared_bytes_, 0u);
}

TEST_F(SectionCodingTest, RefusesWhatIsMalformed) {
  const Rows rows(5, 60, 4, true);
  outbox_.add(1, rows.send(Encoding::kRows, {.row_keys = true, .numbers = true}));
  const std::vector<Got> all = flush(1);
  ASSERT_EQ(all.size(), 1u);
  const Got& good = all[0];
  ASSERT_TRUE(SectionDecoder::is_coded(good.header));
  SectionDecoder decoder;
  decoder.reserve(kMessageBytes);
  const auto decodes = [&](SectionHeader header, std::vector<std::byte> payload) {
    Section section = {.header = header, .payload = payload};
    return decoder.decode(&section);
  };
  EXPECT_TRUE(decodes(good.header, good.payload));
  for (size_t bytes = 0; bytes < good.payload.size(); ++bytes) {
    EXPECT_FALSE(decodes(good.header, {good.payload.begin(), good.payload.begin() + bytes}));
  }
  std::vector<std::byte> longer = good.payload;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decodes(good.header, longer));
  SectionHeader other = good.header;
  other.encoding = Encoding::kDense;
  EXPECT_FALSE(decodes(other, good.payload)) << "no rows";
  other = good.header;
  ++other.count;
  EXPECT_FALSE(decodes(other, good.payload));
  SectionDecoder small;
  small.reserve(60 * 4 + 60 * 16 - 4);
  Section section = {.header = good.header, .payload = good.payload};
  EXPECT_FALSE(small.decode(&section)) << "more than a message holds";
  // Any byte of its head, and any bytes at all: refused, or of as many as it says.
  SeededRandom random(11);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> payload = good.payload;
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      payload[random.below(i % 2 == 0 ? sizeof(CodedHead) : payload.size())] =
          static_cast<std::byte>(random.below(256));
    }
    Section any = {.header = good.header, .payload = payload};
    if (decoder.decode(&any)) {
      EXPECT_LE(any.payload.size(), kMessageBytes);
    }
  }
}

}  // namespace
}  // namespace parallax::outbox_tests
