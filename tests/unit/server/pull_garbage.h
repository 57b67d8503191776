// SPDX-License-Identifier: Apache-2.0
// PullGarbage: pull exchanges to which a test hands sections of its own making, in the name of
// any rank.
#ifndef PARALLAX_TESTS_UNIT_SERVER_PULL_GARBAGE_H_
#define PARALLAX_TESTS_UNIT_SERVER_PULL_GARBAGE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "unit/server/pull_job.h"

namespace parallax::testkit::pull_garbage {

enum : uint32_t { kRows, kDense, kFew, kIntegers };
inline constexpr uint32_t kEnd = UINT32_MAX;  // the tag that ends a rank's pull
inline constexpr uint64_t kRowCount = 60;
inline constexpr uint32_t kRowsMax = 16;
inline constexpr size_t kRowBytes = 3 * sizeof(float);

inline std::vector<Variable> variables() {
  return {pulled_variable(kRowCount, 3, kRowsMax, PARALLAX_F32),
          pulled_variable(17, 100, 0, PARALLAX_F32), pulled_variable(2, 1, 2, PARALLAX_F32),
          pulled_variable(kRowCount, 3, kRowsMax, PARALLAX_I32)};
}

inline uint8_t flags_of(uint32_t dtype) {
  return static_cast<uint8_t>(dtype << kSectionDtypeShift);
}

// Given two columns: hosts {0, 1, 2} and {3, 4}, owners {0, 2, 3} and {1, 4}; rank 2 leads none.
class PullGarbage : public testing::Test {
 protected:
  PullGarbage() { begin(); }

  // A job in which nothing was sent.
  void begin(uint32_t staleness = 0) {
    job_ = std::make_unique<PullJob>(hosts_, variables(), 1, SlotMap(), 0, false,
                                     PullExchange::kNeverEarly, staleness);
    job_->expect_any_values();
  }

  PullExchange& exchange(uint32_t rank) { return job_->exchange(rank); }

  // A section of `count` row keys.
  static SectionHeader ids_header(SectionKind kind, uint32_t count) {
    SectionHeader header{.kind = kind, .encoding = Encoding::kIds, .tag = kRows};
    header.step = 1;
    header.count = count;
    return header;
  }
  static SectionHeader values_header(SectionKind kind, uint32_t count) {
    SectionHeader header = ids_header(kind, count);
    header.encoding = Encoding::kValues;
    return header;
  }
  // The piece that begins at item `first`.
  static SectionHeader following(SectionHeader header, uint64_t first) {
    header.first = first;
    return header;
  }
  // Row keys that an owner owns, or that a column does.
  std::vector<uint32_t> owned_by(uint32_t owner, uint32_t count) const {
    std::vector<uint32_t> row_keys;
    for (uint32_t i = 0; i < count; ++i) row_keys.push_back(owner + job_->world() * i);
    return row_keys;
  }

  bool receive(uint32_t to, uint32_t from, const SectionHeader& header,
               std::span<const std::byte> payload) {
    const OwnedSection section(header, payload);
    return exchange(to).on_section(from, section.view());
  }
  bool receive_ids(uint32_t to, uint32_t from, const SectionHeader& header,
                   const std::vector<uint32_t>& row_keys) {
    return receive(to, from, header, as_payload(row_keys));
  }
  bool receive_bytes(uint32_t to, uint32_t from, const SectionHeader& header, size_t bytes) {
    return receive(to, from, header, std::vector<std::byte>(bytes));
  }
  SectionHeader end_header() const {
    SectionHeader header{.kind = SectionKind::kPullLocal, .flags = kSectionLast, .tag = kEnd};
    header.step = 1;
    return header;
  }

  // Rows of rank 0's column are asked for by rank 1, of two owners, which have not answered: four
  // rows of rank 0, two of rank 3.
  void ask() {
    begin();
    std::vector<uint32_t> row_keys = owned_by(0, 4);
    const std::vector<uint32_t> more = owned_by(3, 2);
    row_keys.insert(row_keys.end(), more.begin(), more.end());
    ASSERT_TRUE(receive_ids(0, 1, ids_header(SectionKind::kPullLocal, 6), row_keys));
    ASSERT_TRUE(receive(0, 1, end_header(), {}));
  }
  void ask_dense() {
    begin();
    SectionHeader header{.kind = SectionKind::kPullLocal, .tag = kDense};
    header.step = 1;
    ASSERT_TRUE(receive(0, 1, header, {}));
    ASSERT_TRUE(receive(0, 1, end_header(), {}));
  }
  Range range_of(uint32_t owner) const { return job_->partition(kDense).range_of(owner); }

  const std::vector<uint32_t> hosts_ = {0, 0, 0, 1, 1};
  std::unique_ptr<PullJob> job_;
};

// Rank 1 wants three rows of column 0 and two of column 1, and a dense variable.
class PullGarbageLocal : public PullGarbage {
 protected:
  void pull() {
    begin();
    Wish rows(kRows, {});
    for (const uint32_t row_key : {0u, 5u, 10u, 1u, 6u}) {
      rows.ids.push_back(static_cast<int64_t>(job_->partition(kRows).row_of(row_key)));
    }
    pull_ = &job_->pull(1, 1, {rows, Wish::whole(kDense)});
  }
  SectionHeader dense_header(uint32_t count) const {
    SectionHeader header = values_header(SectionKind::kValuesLocal, count);
    header.encoding = Encoding::kDense;
    header.tag = kDense;
    return header;
  }
  Pull* pull_ = nullptr;
};

}  // namespace parallax::testkit::pull_garbage

#endif  // PARALLAX_TESTS_UNIT_SERVER_PULL_GARBAGE_H_
