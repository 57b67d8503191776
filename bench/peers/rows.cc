// SPDX-License-Identifier: Apache-2.0
// Grouping, sums and updates. See rows.h.
#include "rows.h"

#include <bit>
#include <cstring>

#include "base/vector_code.h"

namespace parallax::peers {
namespace {

ZeroPages zeros(uint64_t count) {
  auto* const memory = static_cast<float*>(std::calloc(count, sizeof(float)));
  if (memory == nullptr) fail("no memory for a table");
  return {memory, &std::free};
}

void copy_row(float* __restrict to, const float* __restrict from, uint64_t width) {
  for (uint64_t at = 0; at < width; ++at) to[at] = from[at];
}

void add_row(float* __restrict to, const float* __restrict from, uint64_t width) {
  for (uint64_t at = 0; at < width; ++at) to[at] += from[at];
}

void update_place(Rule rule, uint64_t width, int32_t place, const float* gradient, float* values,
                  float* state) {
  const uint64_t first = static_cast<uint64_t>(place) * width;
  update(rule, values + first, rule == Rule::kSgd ? nullptr : state + first, gradient, width);
}

}  // namespace

void RowIndex::begin(uint64_t ids_max) {
  const auto bits = static_cast<uint32_t>(std::bit_width(2 * ids_max));
  if (entries_.size() < uint64_t{1} << bits) entries_.assign(uint64_t{1} << bits, {});
  shift_ = 32 - bits;
  mask_ = (1U << bits) - 1;
  if (++round_ != 0) return;
  entries_.assign(entries_.size(), {});
  round_ = 1;
}

void Groups::group(const SparseStep& step, const int64_t* ids, uint32_t owners) {
  step_ = step;
  counts_.assign(owners * step.tables.size(), 0);
  distinct_.clear();
  distinct_of_.resize(step.ids);
  in_vectors([&] { number_ids(ids, owners); });
  lay_out(owners);
}

void Groups::number_ids(const int64_t* ids, uint32_t owners) {
  auto of = distinct_of_.begin();
  for (size_t table = 0; table < step_.tables.size(); ++table) {
    const auto before = static_cast<uint32_t>(distinct_.size());
    index_.begin(step_.tables[table].ids);
    for (uint64_t at = 0; at < step_.tables[table].ids; ++at, ++ids) {
      const auto id = static_cast<uint32_t>(*ids);
      const auto next = static_cast<uint32_t>(distinct_.size()) - before;
      const uint32_t number = index_.number(static_cast<int32_t>(id), next);
      *of++ = before + number;
      if (number != next) continue;
      const uint32_t owner = id % owners;
      distinct_.push_back({static_cast<int32_t>(id / owners), owner, 0});
      ++counts_[owner * step_.tables.size() + table];
    }
  }
}

void Groups::lay_out(uint32_t owners) {
  owner_ids_.assign(owners, 0);
  owner_values_.assign(owners, 0);
  const size_t tables = step_.tables.size();
  std::vector<uint64_t> next_id(counts_.size()), next_value(counts_.size());
  uint64_t id = 0;
  values_ = 0;
  for (size_t part = 0; part < counts_.size(); ++part) {
    next_id[part] = id;
    next_value[part] = values_;
    const auto count = static_cast<uint64_t>(counts_[part]);
    const uint64_t values = count * step_.tables[part % tables].width;
    id += count;
    values_ += values;
    owner_ids_[part / tables] += counts_[part];
    owner_values_[part / tables] += static_cast<int>(values);
  }
  places_.resize(distinct_.size());
  size_t table = 0;
  std::vector<uint32_t> ends;  // of each table, in distinct_
  for (size_t each = 0, end = 0; each < tables; ++each) {
    for (uint32_t owner = 0; owner < owners; ++owner) {
      end += static_cast<size_t>(counts_[owner * tables + each]);
    }
    ends.push_back(static_cast<uint32_t>(end));
  }
  for (size_t number = 0; number < distinct_.size(); ++number) {
    while (number == ends[table]) ++table;
    auto& distinct = distinct_[number];
    const size_t part = distinct.owner * tables + table;
    places_[next_id[part]++] = distinct.place;
    distinct.first_value = next_value[part];
    next_value[part] += step_.tables[table].width;
  }
}

void Groups::sum(const float* gradients, float* out) const {
  in_vectors([&] {
    uint32_t next = 0;  // whoever has this number comes for the first time
    auto of = distinct_of_.begin();
    for (const auto& table : step_.tables) {
      for (uint64_t at = 0; at < table.ids; ++at, ++of, gradients += table.width) {
        float* const row = out + distinct_[*of].first_value;
        if (*of == next) {
          copy_row(row, gradients, table.width);
          ++next;
        } else {
          add_row(row, gradients, table.width);
        }
      }
    }
  });
}

void Groups::expand(const float* rows, float* values) const {
  auto of = distinct_of_.begin();
  for (const auto& table : step_.tables) {
    for (uint64_t at = 0; at < table.ids; ++at, ++of, values += table.width) {
      std::memcpy(values, rows + distinct_[*of].first_value, table.width * sizeof(float));
    }
  }
}

TableParts::TableParts(const SparseStep& step, uint32_t owners) {
  for (const auto& table : step.tables) {
    const uint64_t count = (table.rows / owners + 1) * table.width;
    values_.push_back(zeros(count));
    state_.push_back(zeros(step.rule == Rule::kAdagrad ? count : 1));
  }
}

std::span<const Updater::Sum> Updater::sum_table(uint64_t width, std::span<const GivenRows> given) {
  uint64_t count = 0;
  for (const auto& each : given) count += each.count;
  index_.begin(count);
  sums_.clear();
  in_vectors([&] {
    for (const auto& each : given) {
      for (uint64_t at = 0; at < each.count; ++at) {
        const auto next = static_cast<uint32_t>(sums_.size());
        const uint32_t number = index_.number(each.places[at], next);
        float* const row = each.rows + at * width;
        if (number == next) {
          sums_.push_back({each.places[at], row});
        } else {
          add_row(sums_[number].row, row, width);
        }
      }
    }
  });
  return sums_;
}

void Updater::update_table(Rule rule, uint64_t width, std::span<const GivenRows> given,
                           float* values, float* state) {
  const auto sums = sum_table(width, given);
  in_vectors([&] {
    for (const auto& sum : sums) update_place(rule, width, sum.place, sum.row, values, state);
  });
}

void update_rows(Rule rule, uint64_t width, const GivenRows& given, float* values, float* state) {
  in_vectors([&] {
    for (uint64_t at = 0; at < given.count; ++at) {
      update_place(rule, width, given.places[at], given.rows + at * width, values, state);
    }
  });
}

void look_up(const Table& table, const int64_t* ids, const float* rows, float* values) {
  for (uint64_t at = 0; at < table.ids; ++at, values += table.width) {
    std::memcpy(values, rows + static_cast<uint64_t>(ids[at]) * table.width,
                table.width * sizeof(float));
  }
}

}  // namespace parallax::peers
