// SPDX-License-Identifier: Apache-2.0
// Which tables go together. See fused_tables.h.
#include "variable/fused_tables.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace parallax {

namespace {

bool is_digit(char each) { return each >= '0' && each <= '9'; }

// The digits that a name goes on with from `at` on, without leading zeros.
std::string_view digits_at(std::string_view name, size_t* at) {
  size_t end = *at;
  while (end < name.size() && is_digit(name[end])) ++end;
  size_t first = *at;
  while (first + 1 < end && name[first] == '0') ++first;
  *at = end;
  return name.substr(first, end - first);
}

// By the numbers in names, where all before them is the same; names that differ in zeros alone, as
// bytes.
bool comes_before(const std::string& a, const std::string& b) {
  size_t in_a = 0, in_b = 0;
  while (in_a < a.size() && in_b < b.size()) {
    if (is_digit(a[in_a]) && is_digit(b[in_b])) {
      const std::string_view of_a = digits_at(a, &in_a), of_b = digits_at(b, &in_b);
      if (of_a.size() != of_b.size()) return of_a.size() < of_b.size();
      if (of_a != of_b) return of_a < of_b;
    } else if (a[in_a] != b[in_b]) {
      return static_cast<unsigned char>(a[in_a]) < static_cast<unsigned char>(b[in_b]);
    } else {
      ++in_a;
      ++in_b;
    }
  }
  const size_t left_a = a.size() - in_a, left_b = b.size() - in_b;
  return left_a != left_b ? left_a < left_b : a < b;
}

// Of what a rank gives in a step at most.
uint64_t slice_bytes(const Variable& variable) {
  const bool made_dense = variable.pin.method == PARALLAX_METHOD_MADE_DENSE;
  return (made_dense ? variable.rows : variable.rows_max) * variable.row_elements *
         bytes_of_sum(variable.sum_type());
}

// As a dense slice, which goes as rows then.
bool may_be_given_whole(const Variable& variable) { return variable.rows_max >= variable.rows; }

FusedTables make_whole(std::span<const Variable* const> variables) {
  FusedTables made;
  made.whole = *variables.front();
  Variable& whole = made.whole;
  whole.rows = whole.rows_max = 0;
  whole.initial = nullptr;  // each member has its own
  for (const Variable* each : variables) {
    made.members.push_back({.variable = each, .first_row = whole.rows});
    whole.rows += each->rows;
    whole.rows_max += each->rows_max;
    // Of these each rank has its own.
    whole.priority = std::max(whole.priority, each->priority);
    whole.accumulate = whole.accumulate || each->accumulate;
  }
  whole.name += " and " + std::to_string(variables.size() - 1) + " more";
  return made;
}

// Into sets of about the same bytes, as many as it takes.
void cut(std::span<const Variable* const> kind, std::deque<FusedTables>* sets) {
  uint64_t bytes = 0;
  for (const Variable* each : kind) bytes += slice_bytes(*each);
  const uint64_t parts = (bytes + kFusedSetBytesMax - 1) / kFusedSetBytesMax;
  uint64_t before = 0;
  for (size_t first = 0; first < kind.size();) {
    const uint64_t part = before * parts / bytes;
    uint64_t rows = 0;
    size_t end = first;
    for (; end < kind.size() && before * parts / bytes == part; ++end) {
      if (rows + kind[end]->rows > INT32_MAX) break;
      rows += kind[end]->rows;
      before += slice_bytes(*kind[end]);
    }
    if (end - first >= kFusedMin) sets->push_back(make_whole(kind.subspan(first, end - first)));
    first = end;
  }
}

}  // namespace

bool may_be_fused(const Variable& variable) {
  return variable.fuse_tables && variable.rows_max > 0 && variable.rows <= INT32_MAX &&
         !variable.traits().calls_back && !variable.counts_contributors() &&
         variable.exchange_bytes_max == 0 && variable.memory == PARALLAX_MEMORY_HOST &&
         variable.table_memory == PARALLAX_MEMORY_HOST &&
         slice_bytes(variable) <= kFusedSliceBytesMax &&
         variable.row_elements * bytes_of_sum(variable.sum_type()) < kFusedRowBytesEnd;
}

std::deque<FusedTables> fuse_tables(std::span<const Variable* const> variables) {
  std::map<std::string, std::vector<const Variable*>> kinds;
  for (const Variable* each : variables) {
    if (!may_be_fused(*each)) continue;
    // Which way is best goes by how many of their rows are touched.
    const char* const density = may_be_given_whole(*each) ? "dense" : "sparse";
    // Values out of rank 0 come for all of a variable.
    const char* const initial = each->init == PARALLAX_INIT_BROADCAST ? "sent" : "";
    kinds[density + (initial + encode_kind(*each))].push_back(each);
  }
  std::deque<FusedTables> sets;
  for (auto& [kind, of_kind] : kinds) {
    std::sort(of_kind.begin(), of_kind.end(),
              [](const Variable* a, const Variable* b) { return comes_before(a->name, b->name); });
    cut(of_kind, &sets);
  }
  for (FusedTables& each : sets) each.whole.fused = each.members;
  return sets;
}

const FusedMember& member_of(std::span<const FusedMember> members, uint64_t row) {
  return *std::prev(
      std::upper_bound(members.begin(), members.end(), row,
                       [](uint64_t at, const FusedMember& each) { return at < each.first_row; }));
}

}  // namespace parallax
