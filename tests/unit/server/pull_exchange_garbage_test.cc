// SPDX-License-Identifier: Apache-2.0
// Sections of nobody's making: they read and write nothing that is not the exchange's own.
#include <gtest/gtest.h>

#include "support/sanitizers.h"
#include "unit/server/pull_garbage.h"

namespace parallax::testkit::pull_garbage {
namespace {

SectionHeader draw_header(SeededRandom& random) {
  SectionHeader header;
  header.kind = static_cast<SectionKind>(random.between(13, 16));
  header.encoding = static_cast<Encoding>(random.below(5));
  header.flags = flags_of(random.chance(80) ? 0 : static_cast<uint32_t>(random.below(16)));
  header.part = static_cast<uint8_t>(random.chance(95) ? 0 : random.next());
  header.tag = static_cast<uint32_t>(random.chance(80) ? random.below(4) : random.next());
  if (random.chance(10)) header.tag = kEnd;
  header.step = random.chance(90) ? 1 : random.next();
  header.first = random.chance(60) ? 0 : random.chance(80) ? random.below(1800) : random.next();
  header.count = static_cast<uint32_t>(random.chance(95) ? random.below(20) : random.next());
  return header;
}

// One that might be due, as far as its own words go.
SectionHeader draw_likely_header(SeededRandom& random) {
  SectionHeader header;
  header.kind = static_cast<SectionKind>(random.between(13, 16));
  header.tag = static_cast<uint32_t>(random.below(4));
  header.step = 1;
  const bool dense = header.tag == kDense;
  const bool asks = header.kind == SectionKind::kPullLocal || header.kind == SectionKind::kPullHost;
  if (asks) {
    header.encoding = dense ? Encoding::kBytes : Encoding::kIds;
  } else {
    header.encoding = dense ? Encoding::kDense : Encoding::kValues;
  }
  header.flags = flags_of(header.tag == kIntegers ? PARALLAX_I32 : PARALLAX_F32);
  if (random.chance(50)) header.flags |= kSectionLast;
  header.first = random.chance(60) ? 0 : random.below(4);
  header.count = static_cast<uint32_t>(asks && dense ? 0 : random.between(1, 3));
  if (random.chance(10)) {
    header.tag = kEnd;
    header.encoding = Encoding::kBytes;
    header.count = 0;
  }
  return header;
}

// Given a pull under way, receive anything from anybody: expect what cannot be used to be
// refused, and no memory touched but the exchange's own; the rest is the sanitizers'.
TEST_F(PullGarbageLocal, NoSectionHarms) {
  uint32_t refused = 0, taken = 0;
  for (uint64_t seed = 1; seed <= (kThreadSanitizer ? 50 : 400); ++seed) {
    SeededRandom random(seed);
    pull();
    for (uint32_t i = 0; i < 30; ++i) {
      const bool likely = random.chance(50);
      const SectionHeader header = likely ? draw_likely_header(random) : draw_header(random);
      const size_t sizes[] = {header.count * size_t{4}, header.count * kRowBytes, 0,
                              random.below(500)};
      std::vector<uint32_t> payload(
          std::min<size_t>(sizes[random.below(likely ? 2 : 4)], 20 * kRowBytes) / 4);
      for (uint32_t& word : payload) {
        // Rows of rank 0, or of anybody.
        word = static_cast<uint32_t>(likely ? 5 * random.below(12) : random.below(kRowCount + 2));
      }
      const auto to = static_cast<uint32_t>(random.below(2));
      const auto from = static_cast<uint32_t>(random.below(5));
      ++(receive_ids(to, from, header, payload) ? taken : refused);
      if (random.chance(20)) job_->network().move();
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(taken, kThreadSanitizer ? 10u : 100u);
}

}  // namespace
}  // namespace parallax::testkit::pull_garbage
