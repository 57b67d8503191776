// SPDX-License-Identifier: Apache-2.0
// What a reducer takes of a host: rows with row keys, and rows that name those of a pull.
#include "collectives/row_intake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "aggregate/pulled_keys.h"
#include "support/host_map_of.h"
#include "support/outbox_world.h"
#include "support/slot_maps.h"

namespace parallax {
namespace {

constexpr uint64_t kRows = 40, kWidth = 2, kStep = 3;
constexpr uint32_t kOwner = 0, kOther = 1;

class RowIntakeTest : public testing::Test, public PulledLists, public HostRows::User {
 protected:
  struct NoPart {
    bool on_section(uint32_t, const Section&) { return false; }
  };

  void start(uint32_t wire, bool knows_pulls) {
    options_ = {.method = Method::kPushPull,
                .rows_max = 12,
                .wire = wire,
                .pulled = knows_pulls ? this : nullptr};
    host_rows_.emplace(columns_, partition_, world_.outbox(kOwner), compute_, options_,
                       HostRows::Owners::kHashed, *this);
    intake_.emplace(columns_, partition_, *host_rows_, options_, ReduceTo::kOwner);
    const std::vector<uint64_t> rows_max = {12, 12};
    const auto lay_out = [&](Arena& arena) {
      intake_->lay_out(arena);
      keys_.lay_out(arena, rows_max);
      total_.lay_out(arena,
                     {.sources = 2, .rows_max = 24, .source_rows_max = 12, .row_elements = kWidth});
    };
    Arena measure;
    lay_out(measure);
    ASSERT_TRUE(arena_.reserve(measure.used_bytes()).ok());
    lay_out(arena_);
    total_.clear();
    for (uint32_t key = 0; key < kRows && mine_.size() < 5; ++key) {
      if (partition_.owner_of(key) == kOwner) mine_.push_back(key);
    }
    for (const uint32_t key : mine_) keys_.add(kStep, kOther, std::as_bytes(std::span(&key, 1)));
  }

  const PulledKeys* asked(uint32_t) const override { return nullptr; }
  const PulledKeys* listed(uint32_t) const override { return sharded_ ? &keys_ : nullptr; }
  void on_host_sum(uint64_t) override {}

  // A section of the other host's: row keys or bits, and then as many rows as it says, in ones.
  template <typename Number>
  bool add(Encoding encoding, uint64_t first, uint32_t count, const std::vector<uint32_t>& row_keys,
           Number one, uint64_t step = kStep) {
    std::vector<std::byte> payload(row_keys.size() * sizeof(uint32_t));
    if (!row_keys.empty()) std::memcpy(payload.data(), row_keys.data(), payload.size());
    const std::vector<Number> ones(count * kWidth, one);
    const auto bytes = std::as_bytes(std::span(ones));
    payload.insert(payload.end(), bytes.begin(), bytes.end());
    Section section;
    section.header = {.kind = SectionKind::kHostReduce, .encoding = encoding, .step = step};
    section.header.first = first;
    section.header.count = count;
    section.payload = payload;
    return intake_->add(kOther, section, &total_);
  }
  std::vector<uint32_t> summed() const {
    return {total_.row_keys(), total_.row_keys() + total_.row_count()};
  }
  float value(uint32_t slot) const {
    float value;
    std::memcpy(&value, total_.row(slot), sizeof value);
    return value;
  }

  const HostMap hosts_ = testkit::host_map({0, 1});
  const Columns columns_{hosts_, kOwner};
  const Partition partition_{kRows, kWidth, true, testkit::even_slots(2), 0};
  testkit::OutboxWorld<NoPart> world_{2, [](uint32_t, Outbox&) { return nullptr; }};
  InlineCompute compute_;
  ExchangeOptions options_;
  std::optional<HostRows> host_rows_;
  std::optional<RowIntake> intake_;
  Arena arena_;
  PulledKeys keys_;
  RowAccumulator total_;
  std::vector<uint32_t> mine_;
  bool sharded_ = true;
};

TEST_F(RowIntakeTest, RowsWithAndWithoutRowKeys) {
  start(ExchangeOptions::kSumsOwn, true);
  EXPECT_TRUE(add(Encoding::kRows, 0, 2, {mine_[4], mine_[0]}, 1.0f));
  EXPECT_TRUE(add(Encoding::kListedRows, 3, 2, {}, 2.0f));
  EXPECT_EQ(summed(), (std::vector<uint32_t>{mine_[4], mine_[0], mine_[3]}));
  EXPECT_EQ(value(0), 3.0f);
  EXPECT_EQ(value(1), 1.0f);
  EXPECT_EQ(value(2), 2.0f);
}

TEST_F(RowIntakeTest, ListedRowsThatAreNarrowOnTheWay) {
  start(PARALLAX_BF16, true);
  EXPECT_TRUE(add(Encoding::kListedRows, 1, 2, {}, uint16_t{0x3f80}));
  EXPECT_EQ(summed(), (std::vector<uint32_t>{mine_[1], mine_[2]}));
  EXPECT_EQ(value(1), 1.0f);
}

TEST_F(RowIntakeTest, RefusesWhatIsNotDue) {
  start(ExchangeOptions::kSumsOwn, true);
  uint32_t of_other = 0;
  while (partition_.owner_of(of_other) == kOwner) ++of_other;
  EXPECT_FALSE(add(Encoding::kRows, 0, 1, {of_other}, 1.0f));
  EXPECT_FALSE(add(Encoding::kRows, 0, 1, {kRows}, 1.0f));
  EXPECT_FALSE(add(Encoding::kRows, 0, 3, {mine_[0]}, 1.0f)) << "fewer row keys than rows";
  EXPECT_FALSE(add(Encoding::kListedRows, 4, 2, {}, 1.0f)) << "beyond what was pulled";
  EXPECT_FALSE(add(Encoding::kListedRows, 0, 1, {}, 1.0f, kStep + 1)) << "of another step";
  EXPECT_FALSE(add(Encoding::kListedRows, 0, 1, {}, uint16_t{1})) << "of another type";
  EXPECT_FALSE(add(Encoding::kValues, 0, 1, {}, 1.0f));
  sharded_ = false;
  EXPECT_FALSE(add(Encoding::kListedRows, 0, 1, {}, 1.0f)) << "not sharded any more";
  EXPECT_EQ(summed(), std::vector<uint32_t>());
}

TEST_F(RowIntakeTest, WhoKnowsNoPullsTakesNoListedRows) {
  start(ExchangeOptions::kSumsOwn, false);
  EXPECT_FALSE(add(Encoding::kListedRows, 0, 1, {}, 1.0f));
  EXPECT_TRUE(add(Encoding::kRows, 0, 1, {mine_[0]}, 1.0f));
}

}  // namespace
}  // namespace parallax
