// SPDX-License-Identifier: Apache-2.0
// RowAccessGarbage: row access to which a test hands sections of its own making, in the name of any
// rank.
#ifndef PARALLAX_TESTS_UNIT_SERVER_ROWS_GARBAGE_H_
#define PARALLAX_TESTS_UNIT_SERVER_ROWS_GARBAGE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "server/row_access.h"
#include "unit/server/rows_job.h"

namespace parallax::testkit::rows_garbage {

enum : uint32_t { kRows, kDense, kMirror };
inline constexpr uint64_t kRowCount = 90;
inline constexpr uint64_t kWidth = 3;
inline constexpr size_t kRowBytes = kWidth * sizeof(float);
inline constexpr size_t kItemBytes = sizeof(uint32_t) + kRowBytes;  // a row key and its row

// What kRowsAsk carries.
struct AskBytes {
  uint64_t step = 0, first_row = 0, row_count = 0;
  uint32_t arrays = 1, listed = 0;
};

class RowAccessGarbage : public testing::Test {
 protected:
  RowAccessGarbage() { begin(); }

  // Three hosts of a rank each; row key p is rank p % 3's. Both states beside the value.
  void begin() {
    const std::vector<Placed> placed = {
        {managed_variable(kRowCount, kWidth, true, PARALLAX_RULE_ADAM)},
        {managed_variable(13, 100, false, PARALLAX_RULE_ADAM)},
        {managed_variable(kRowCount, kWidth, true, PARALLAX_RULE_SGD), false}};
    job_ = std::make_unique<RowsJob>(std::vector<uint32_t>{0, 1, 2}, placed, 1);
  }

  static SectionHeader header_of(SectionKind kind, uint32_t tag = kRows, uint64_t number = 1) {
    SectionHeader header{.kind = kind, .tag = tag};
    header.step = number;
    return header;
  }
  static SectionHeader rows_header(SectionKind kind, uint32_t count, uint32_t tag = kRows) {
    SectionHeader header = header_of(kind, tag);
    header.encoding = Encoding::kRows;
    header.count = count;
    return header;
  }
  static SectionHeader last_header(SectionKind kind, uint32_t tag = kRows) {
    SectionHeader header = header_of(kind, tag);
    header.flags = kSectionLast;
    return header;
  }
  // Row keys, and zeros for their rows.
  static std::vector<std::byte> rows_payload(const std::vector<uint32_t>& row_keys) {
    std::vector<std::byte> payload(row_keys.size() * kItemBytes);
    const auto bytes = as_payload(row_keys);
    std::copy(bytes.begin(), bytes.end(), payload.begin());
    return payload;
  }
  static std::vector<std::byte> ask_payload(const AskBytes& ask,
                                            const std::vector<uint32_t>& row_keys) {
    const auto head = std::as_bytes(std::span(&ask, 1));
    const auto bytes = as_payload(row_keys);
    std::vector<std::byte> payload(head.begin(), head.end());
    payload.insert(payload.end(), bytes.begin(), bytes.end());
    return payload;
  }
  // What a rank owns of kRows, from its `first` row on.
  static std::vector<uint32_t> owned_by(uint32_t rank, uint32_t first, uint32_t count) {
    std::vector<uint32_t> row_keys;
    for (uint32_t i = first; i < first + count; ++i) row_keys.push_back(rank + 3 * i);
    return row_keys;
  }

  bool receive(uint32_t to, uint32_t from, const SectionHeader& header,
               std::span<const std::byte> payload) {
    const OwnedSection section(header, payload);
    RowAccess& exchange = job_->exchange(to);
    return exchange.on_section(from, section.view());
  }
  // By rank 1, of rank 0.
  bool receive_ask(const AskBytes& ask, const std::vector<uint32_t>& row_keys = {},
                   uint32_t tag = kRows, uint64_t number = 1) {
    return receive(0, 1, header_of(SectionKind::kRowsAsk, tag, number), ask_payload(ask, row_keys));
  }
  bool receive_bytes(uint32_t from, const SectionHeader& header, size_t bytes) {
    return receive(0, from, header, std::vector<std::byte>(bytes));
  }
  Range range_of(uint32_t owner) const { return job_->partition(kDense).range_of(owner); }

  std::unique_ptr<RowsJob> job_;
};

}  // namespace parallax::testkit::rows_garbage

#endif  // PARALLAX_TESTS_UNIT_SERVER_ROWS_GARBAGE_H_
