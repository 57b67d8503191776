// SPDX-License-Identifier: Apache-2.0
// The reader of messages on any bytes: a peer's are not to be trusted.
#include "message/wire.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

std::vector<std::byte> message_with(uint32_t sections, uint32_t payload_bytes) {
  std::vector<std::byte> bytes(sizeof(MessageHeader));
  const MessageHeader header{kWireMagic, 1, 1, sections};
  std::memcpy(bytes.data(), &header, sizeof header);
  for (uint32_t i = 0; i < sections; ++i) {
    SectionHeader section;
    section.kind = SectionKind::kHostReduce;
    section.count = payload_bytes;
    section.payload_bytes = payload_bytes;
    const size_t at = bytes.size();
    bytes.resize(at + sizeof section + payload_bytes);
    std::memcpy(&bytes[at], &section, sizeof section);
  }
  return bytes;
}

bool reads_well(std::span<const std::byte> bytes) {
  // Behind its own allocation, so that reading beyond the end is found.
  const std::vector<std::byte> exact(bytes.begin(), bytes.end());
  SectionReader reader(exact);
  Section section;
  size_t inside = 0;
  while (reader.next(&section)) {
    inside += section.payload.size();
    for (const std::byte byte : section.payload) inside += static_cast<size_t>(byte) & 0;
    EXPECT_LE(inside, exact.size());
  }
  EXPECT_FALSE(reader.next(&section)) << "the end stays the end";
  return !reader.malformed();
}

// Given a head alone and how many bytes follow it, expect its one section if these are its payload,
// and nothing else to be taken.
TEST(SectionReader, AHeadIsReadWithoutItsRest) {
  const auto read = [](std::vector<std::byte> head, size_t rest_bytes) {
    SectionReader reader(head, rest_bytes);
    Section section;
    if (!reader.next(&section)) return false;
    EXPECT_TRUE(section.in_place);
    EXPECT_TRUE(section.payload.empty());
    EXPECT_EQ(section.header.payload_bytes, rest_bytes);
    EXPECT_FALSE(reader.next(&section) || reader.malformed());
    return true;
  };
  const auto head_of = [](uint32_t sections, uint32_t payload_bytes) {
    std::vector<std::byte> head = message_with(sections, payload_bytes);
    head.resize(kMessageHeadBytes);
    return head;
  };
  EXPECT_TRUE(read(head_of(1, 1000), 1000));
  EXPECT_FALSE(read(head_of(1, 1000), 999));
  EXPECT_FALSE(read(head_of(1, 1000), 1001));
  EXPECT_FALSE(read(head_of(2, 1000), 2 * 1000 + sizeof(SectionHeader)));
  EXPECT_FALSE(read(head_of(0, 1000), 1000));
  for (size_t cut = 0; cut < kMessageHeadBytes; ++cut) {
    std::vector<std::byte> head = head_of(1, 1000);
    head.resize(cut);
    EXPECT_FALSE(read(head, 1000)) << "cut at " << cut;
  }
}

TEST(SectionReader, TakesWholeMessagesOnly) {
  EXPECT_TRUE(reads_well(message_with(0, 0)));
  const auto whole = message_with(3, 10);
  EXPECT_TRUE(reads_well(whole));
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    EXPECT_FALSE(reads_well(std::span(whole).first(cut))) << "cut at " << cut;
  }
  auto longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(reads_well(longer)) << "something left over";
}

TEST(SectionReader, RefusesUnknownKindsEncodingsAndMagic) {
  const auto spoil = [](size_t at, uint8_t value) {
    auto bytes = message_with(1, 4);
    bytes[at] = static_cast<std::byte>(value);
    return reads_well(bytes);
  };
  const size_t kind_at = sizeof(MessageHeader);
  EXPECT_FALSE(spoil(0, 0)) << "magic";
  EXPECT_FALSE(spoil(kind_at, 0));
  EXPECT_FALSE(spoil(kind_at, static_cast<uint8_t>(SectionKind::kKindCount)));
  EXPECT_FALSE(spoil(kind_at, 255));
  EXPECT_FALSE(spoil(kind_at + 1, 5)) << "encoding";
  EXPECT_TRUE(spoil(kind_at, 1));
  EXPECT_FALSE(spoil(kind_at + 28, 5)) << "longer than the message";
  EXPECT_FALSE(spoil(kind_at + 31, 255));
}

TEST(SectionReader, NeverReadsBeyondAnyBytes) {
  SeededRandom random(9);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = message_with(static_cast<uint32_t>(random.below(4)),
                                                static_cast<uint32_t>(random.below(30)));
    if (random.chance(30)) bytes.resize(random.below(bytes.size() + 1));
    for (uint64_t i = random.below(6); i > 0 && !bytes.empty(); --i) {
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
    }
    (void)reads_well(bytes);
  }
}

}  // namespace
}  // namespace parallax
