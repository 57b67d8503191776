// SPDX-License-Identifier: Apache-2.0
// Ids, gradients and the oracle. See sparse.h.
#include "sparse.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <random>
#include <sstream>
#include <thread>
#include <unordered_map>

#include "tool/bench/zipf.h"

namespace parallax::peers {
namespace {

// So many ids of a rank in all batches together, and so many batches at most: rows of the first
// ones are not in the caches any more as they come again.
constexpr uint64_t kIdsMax = 400'000;
constexpr uint64_t kBatchesMax = 16;
constexpr float kTolerance = 1e-5F;           // of Adagrad, relative; sums and SGD are exact
constexpr float kHalfTolerance = 1.0F / 256;  // of Adagrad, of rows that are kept as bf16

constexpr size_t kClassesMax = 32;  // so that their weights have 64 bits

// Of the numbers below the sum of all rows' weights, each row has as many as its weight, the power
// of two of its class: so one number that is drawn says class and row.
std::vector<int64_t> draw_by_class(const Table& table, size_t number, uint32_t rank,
                                   uint64_t batch) {
  uint64_t weights = 0;
  for (const uint64_t rows : table.classes) weights = 2 * weights + rows;
  const auto seed = {static_cast<uint64_t>(number), batch, static_cast<uint64_t>(rank)};
  std::seed_seq seeds(seed.begin(), seed.end());
  std::mt19937_64 random(seeds);
  std::vector<int64_t> ids(table.ids);
  for (int64_t& id : ids) {
    // As even as it has to be: weights are far below 2^64.
    uint64_t at = random() % weights;
    uint64_t first = 0;
    auto shift = table.classes.size() - 1;
    for (const uint64_t rows : table.classes) {
      if (at < rows << shift) break;
      at -= rows << shift--;
      first += rows;
    }
    id = static_cast<int64_t>(first + (at >> shift));
  }
  return ids;
}

std::vector<int64_t> ids_of(const SparseStep& step, size_t table, uint32_t rank, uint64_t batch) {
  const auto& each = step.tables[table];
  if (!each.classes.empty()) return draw_by_class(each, table, rank, batch);
  return tool::bench::draw_ids(each.rows, step.exponent, table * kBatchesMax + batch, rank,
                               each.ids);
}

// Small whole numbers: every sum is exact, in any order.
float gradient_of(uint32_t rank, uint64_t id_at, uint64_t column) {
  return static_cast<float>(1 + (id_at * 7 + column * 3 + rank * 5) % 7);
}

// As gradients are: so that what is sent takes as many bits as theirs, where it is coded.
std::vector<float> noise_of(uint32_t rank, size_t count) {
  std::mt19937 random(rank + 1);
  std::normal_distribution<float> normal(0, 0.01F);
  std::vector<float> noise(count);
  for (float& each : noise) each = normal(random);
  return noise;
}

void fill_gradients(const SparseStep& step, uint32_t rank, float* gradients) {
  for (const auto& table : step.tables) {
    for (uint64_t at = 0; at < table.ids; ++at) {
      for (uint64_t column = 0; column < table.width; ++column) {
        *gradients++ = gradient_of(rank, table.first_id + at, column);
      }
    }
  }
}

// `words`: ROWSxWIDTHxIDS; fails where it is none.
Table read_table(const std::string& words) {
  Table table = {};
  std::istringstream numbers(words);
  char mark = ':';
  for (uint64_t rows = 0; mark == ':' && numbers >> rows >> mark; table.rows += rows) {
    table.classes.push_back(rows);
  }
  char by = 0;
  const bool is_whole = static_cast<bool>(numbers >> table.width >> by >> table.ids);
  if (!is_whole || mark != 'x' || by != 'x' || table.rows * table.width * table.ids == 0 ||
      table.rows > INT32_MAX || table.classes.size() > kClassesMax) {
    fail("no table: " + words);
  }
  if (table.classes.size() == 1) table.classes.clear();
  return table;
}

// The nearest, of ties the even one; of what is finite.
float to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

}  // namespace

SparseStep SparseStep::read(const std::string& words) {
  SparseStep step;
  std::istringstream parts(words);
  std::string rule, exponent, type, compute_us, tables, each;
  for (auto* const part : {&rule, &exponent, &type, &compute_us}) std::getline(parts, *part, '/');
  if (!std::getline(parts, tables) || (rule != "sgd" && rule != "adagrad") ||
      (type != "f32" && type != "bf16")) {
    fail("no step of row ids: " + words);
  }
  step.is_bf16 = type == "bf16";
  step.compute_us = static_cast<uint32_t>(std::stoul(compute_us));
  step.rule = rule == "sgd" ? Rule::kSgd : Rule::kAdagrad;
  step.exponent = std::stod(exponent);
  for (std::istringstream list(tables); std::getline(list, each, ',');) {
    Table table = read_table(each);
    table.first_id = step.ids;
    table.first_value = step.values;
    step.ids += table.ids;
    step.values += table.ids * table.width;
    step.tables.push_back(table);
  }
  return step;
}

void compute(const SparseStep& step) {
  if (step.compute_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(step.compute_us));
}

uint64_t batch_count(const SparseStep& step) {
  return std::clamp<uint64_t>(kIdsMax / step.ids, 2, kBatchesMax);
}

Batches::Batches(const SparseStep& step, uint32_t rank, uint64_t count)
    : count_(count), step_ids_(step.ids) {
  for (uint64_t batch = 0; batch < count; ++batch) {
    for (size_t table = 0; table < step.tables.size(); ++table) {
      const auto ids = ids_of(step, table, rank, batch);
      ids_.insert(ids_.end(), ids.begin(), ids.end());
    }
  }
}

Oracle::Oracle(const SparseStep& step, uint32_t rank, uint32_t world) : step_(step) {
  uint64_t values = 0;
  for (size_t table = 0; table < step.tables.size(); ++table) {
    const auto& each = step.tables[table];
    std::unordered_map<int64_t, uint32_t> known;
    for (const int64_t id : ids_of(step, table, rank, 0)) {
      const auto [at, is_new] = known.emplace(id, static_cast<uint32_t>(all_.size()));
      row_of_.push_back(at->second);
      if (!is_new) continue;
      all_.push_back({each.width, values});
      values += each.width;
    }
    sums_.resize(values);
    for (uint32_t of = 0; of < world; ++of) {
      uint64_t id_at = each.first_id;
      for (const int64_t id : ids_of(step, table, of, 0)) {
        const auto found = known.find(id);
        for (uint64_t column = 0; found != known.end() && column < each.width; ++column) {
          sums_[all_[found->second].first + column] += gradient_of(of, id_at, column);
        }
        ++id_at;
      }
    }
  }
  rows_.resize(values);
  state_.resize(values);
}

uint64_t Oracle::take(std::span<const float> values) {
  std::vector<bool> known(all_.size());
  uint64_t wrong = 0;
  const float* value = values.data();
  for (const uint32_t of : row_of_) {
    const Row& row = all_[of];
    float* const here = &rows_[row.first];
    if (!known[of]) std::copy_n(value, row.width, here);
    known[of] = true;
    for (uint64_t column = 0; column < row.width; ++column, ++value) {
      if (!(*value == here[column])) ++wrong;
    }
  }
  return wrong;
}

void Oracle::apply() {
  for (const auto& row : all_) {
    update(step_.rule, &rows_[row.first], &state_[row.first], &sums_[row.first], row.width);
  }
  if (!step_.is_bf16) return;
  for (float& value : rows_) value = to_bf16(value);
}

uint64_t Oracle::count_wrong(std::span<const float> values, float sgd_tolerance) const {
  const float tolerance = step_.rule == Rule::kSgd ? sgd_tolerance
                          : step_.is_bf16          ? kHalfTolerance
                                                   : kTolerance;
  uint64_t wrong = 0;
  const float* value = values.data();
  for (const uint32_t of : row_of_) {
    const float* want = &rows_[all_[of].first];
    for (uint64_t column = 0; column < all_[of].width; ++column, ++want, ++value) {
      // What is not a number is wrong, too.
      if (!(std::fabs(*value - *want) <= tolerance * std::fabs(*want))) ++wrong;
    }
  }
  return wrong;
}

uint64_t Sparse::check(const std::string& variant, const std::string& words) {
  if (words != words_) {
    step_ = SparseStep::read(words);
    words_ = words;
    batches_ = std::make_unique<Batches>(step_, rank_, batch_count(step_));
    oracles_.clear();
    known_.clear();
    open(step_);
  }
  buffers_ = choose(variant);
  auto& oracle = oracles_[tables_of(variant)];
  if (oracle == nullptr) oracle = std::make_unique<Oracle>(step_, rank_, world_);
  free_gradients();
  fill_gradients(step_, rank_, buffers_.gradients.data());
  is_new_ = known_.insert(variant).second;
  run(batches_->ids(0), batches_->ids(is_new_ ? 1 : 0));
  uint64_t wrong =
      step_.rule == Rule::kSgd ? oracle->take(looked_up()) : oracle->count_wrong(looked_up(), 0);
  oracle->apply();
  // Gradients of zeros leave the tables as they are.
  free_gradients();
  std::fill(buffers_.gradients.begin(), buffers_.gradients.end(), 0.0F);
  // Once with other ids between: what is given for some must not go to the next step's.
  if (is_new_) run(batches_->ids(1), batches_->ids(0));
  run(batches_->ids(0), batches_->ids((steps_ + 1) % batches_->count()));
  wrong += oracle->count_wrong(looked_up(), sgd_tolerance());
  refill();
  return wrong;
}

// Of Adagrad zeros: what its sums of squares are then, the oracle cannot see.
void Sparse::refill() {
  free_gradients();
  if (step_.rule != Rule::kSgd) {
    std::fill(buffers_.gradients.begin(), buffers_.gradients.end(), 0.0F);
    return;
  }
  if (noise_.size() != buffers_.gradients.size()) {
    noise_ = noise_of(rank_, buffers_.gradients.size());
  }
  std::copy(noise_.begin(), noise_.end(), buffers_.gradients.begin());
}

Took Sparse::iterate() {
  ++steps_;
  return run(batches_->ids(steps_ % batches_->count()),
             batches_->ids((steps_ + 1) % batches_->count()));
}

}  // namespace parallax::peers
