// SPDX-License-Identifier: Apache-2.0
// Blocks of rows for the caller's own rule. See rule_blocks.h.
#include "server/rule_blocks.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "base/float_environment.h"

namespace parallax {

namespace {

static_assert(std::is_trivially_destructible_v<bool>);
constinit thread_local bool within_rule = false;

}  // namespace

std::atomic<bool> RuleBlocks::any_{false};

bool RuleBlocks::within() { return within_rule; }

RuleBlocks::RuleBlocks(const Variable& variable)
    : variable_(variable), element_bytes_(bytes_of_sum(variable.sum_type())) {
  any_.store(true, std::memory_order_relaxed);
  row_bytes_[0] = variable.row_elements * element_bytes_;
  for (uint32_t state = 0; state < kStatesMax; ++state) {
    row_bytes_[state + 1] = variable.state_width(state) * element_bytes_;
  }
  // The gradient is as wide as the value.
  const size_t row_bytes = std::accumulate(row_bytes_.begin(), row_bytes_.end(), row_bytes_[0]);
  const uint64_t most = std::min(kRowsMax, variable.rows);
  block_rows_ = std::clamp<uint64_t>(kBytesMax / row_bytes, 1, most);
}

void RuleBlocks::lay_out(Arena& arena) {
  items_ = arena.take<Item>(block_rows_);
  ids_ = arena.take<int64_t>(block_rows_);
  gradient_ = arena.take<std::byte>(block_rows_ * row_bytes_[0]);
  // One row always lies together.
  const uint64_t apart = block_rows_ > 1 ? block_rows_ : 0;
  for (uint32_t array = 0; array <= kStatesMax; ++array) {
    gathered_[array] = arena.take<std::byte>(apart * row_bytes_[array]);
  }
}

void RuleBlocks::begin(const UpdateArguments& with, bool counted,
                       const std::array<std::span<std::byte>, 1 + kStatesMax>& arrays) {
  with_ = with;
  rates_ = {.size = sizeof rates_,
            .learning_rate = static_cast<float>(with.learning_rate),  // it was one
            .weight_decay = static_cast<float>(with.weight_decay),
            .decoupled = with.decoupled ? 1u : 0u,
            .maximize = with.maximize ? 1u : 0u,
            .clip_norm = static_cast<float>(with.clip_norm),
            .reserved = 0};
  counted_ = counted;
  count_ = 0;
  for (uint32_t array = 0; array <= kStatesMax; ++array) arrays_[array] = arrays[array].data();
}

int RuleBlocks::add(int64_t id, uint64_t row_here, const std::byte* gradient) {
  items_[count_++] = {id, row_here, gradient};
  return count_ == block_rows_ ? finish() : 0;
}

int RuleBlocks::finish() {
  if (count_ == 0) return 0;
  const std::span<Item> items = items_.first(count_);
  const auto by_id = [](const Item& a, const Item& b) { return a.id < b.id; };
  if (!std::is_sorted(items.begin(), items.end(), by_id)) {
    std::sort(items.begin(), items.end(), by_id);
  }
  for (uint64_t i = 0; i < count_; ++i) ids_[i] = items[i].id;
  const bool in_place = together();
  if (!in_place) gather();
  std::array<std::byte*, 1 + kStatesMax> parts = {};
  for (uint32_t array = 0; array <= kStatesMax; ++array) {
    if (row_bytes_[array] == 0) continue;
    parts[array] = in_place ? arrays_[array] + items.front().here * row_bytes_[array]
                            : gathered_[array].data();
  }
  with_sum_type(variable_.sum_type(), [&](auto tag) { scale<typename decltype(tag)::type>(); });
  const parallax_rule_block_t block = {.size = sizeof block,
                                       .variable = with_.variable,
                                       .dtype = dtype_of(variable_.sum_type()),
                                       .step = with_.step,
                                       .updates = with_.updates,
                                       .row_count = count_,
                                       .row_elements = variable_.row_elements,
                                       .rows = ids_.data(),
                                       .values = parts[0],
                                       .state = {parts[1], parts[2]},
                                       .gradient = gradient_.data(),
                                       .learning_rate = with_.learning_rate,
                                       .rates = &rates_};
  const int answer = call(block);
  if (!in_place) put_back();
  count_ = 0;
  return answer;
}

int RuleBlocks::call(const parallax_rule_block_t& block) const {
  struct Mark {
    Mark() { within_rule = true; }
    ~Mark() { within_rule = false; }  // also where it throws, which it must not
  };
  const Mark mark;
  const FloatEnvironment environment;  // what it does to it ends with it
  return variable_.own_rule.apply(variable_.own_rule.context, &block);
}

bool RuleBlocks::together() const {
  for (uint64_t i = 1; i < count_; ++i) {
    if (items_[i].here != items_[0].here + i) return false;
  }
  return true;
}

void RuleBlocks::gather() {
  for (uint32_t array = 0; array <= kStatesMax; ++array) {
    const size_t bytes = row_bytes_[array];
    if (bytes == 0) continue;
    for (uint64_t i = 0; i < count_; ++i) {
      std::memcpy(&gathered_[array][i * bytes], arrays_[array] + items_[i].here * bytes, bytes);
    }
  }
}

void RuleBlocks::put_back() {
  for (uint32_t array = 0; array <= kStatesMax; ++array) {
    const size_t bytes = row_bytes_[array];
    if (bytes == 0) continue;
    for (uint64_t i = 0; i < count_; ++i) {
      std::memcpy(arrays_[array] + items_[i].here * bytes, &gathered_[array][i * bytes], bytes);
    }
  }
}

// What comes before such a rule (parallax_rule_t, points 1 and 2), of all rows of the block.
template <typename T>
void RuleBlocks::scale() {
  // Integers have no such rule.
  if constexpr (std::is_floating_point_v<T>) {
    const double whole = Decay<T>(with_).sign * with_.scale;
    const size_t width = variable_.row_elements;
    for (uint64_t row = 0; row < count_; ++row) {
      const T* from = reinterpret_cast<const T*>(items_[row].gradient);
      T* const to = reinterpret_cast<T*>(gradient_.data()) + row * width;
      const T by =
          static_cast<T>(counted_ ? 1.0 / static_cast<double>(from[width]) * whole : whole);
      for (size_t i = 0; i < width; ++i) to[i] = from[i] * by;
    }
  }
}

}  // namespace parallax
