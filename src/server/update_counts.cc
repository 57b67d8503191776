// SPDX-License-Identifier: Apache-2.0
// Counts of updates by table. See update_counts.h.
#include "server/update_counts.h"

#include <algorithm>
#include <cstring>

#include "variable/fused_tables.h"

namespace parallax {

void UpdateCounts::add_step(const TablesLeftOut& left_out) {
  if (variable_.fused.empty() || !left_out.any()) {
    for (uint64_t& each : counts_) ++each;
    return;
  }
  for (uint32_t i = 0; i < counts_.size(); ++i) {
    if (!left_out.has(variable_.first_member + i)) ++counts_[i];
  }
  compare();
}

UpdateCounts::Of UpdateCounts::of_row(uint64_t row) const {
  if (variable_.fused.empty()) return {.count = counts_[0]};
  const FusedMember& member = member_of(variable_.fused, row);
  const auto table = static_cast<size_t>(&member - variable_.fused.data());
  return {.table = table, .first_row = member.first_row, .count = counts_[table]};
}

void UpdateCounts::set(uint64_t row, uint64_t count) {
  counts_[of_row(row).table] = count;
  compare();
}

bool UpdateCounts::place(uint64_t first, std::span<const std::byte> counts) {
  const uint64_t count = counts.size() / sizeof(uint64_t);
  // A peer's numbers, so no sum that could wrap.
  if (first > counts_.size() || count > counts_.size() - first) return false;
  if (count > 0) std::memcpy(&counts_[first], counts.data(), count * sizeof(uint64_t));
  compare();
  return true;
}

void UpdateCounts::compare() {
  alike_ = std::all_of(counts_.begin(), counts_.end(),
                       [this](uint64_t each) { return each == counts_[0]; });
}

}  // namespace parallax
