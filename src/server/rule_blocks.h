// SPDX-License-Identifier: Apache-2.0
// RuleBlocks: the caller's own rule (PARALLAX_RULE_CALLBACK) over the rows of a table. Rows are
// given one by one and handed to rule_fn in blocks: by ascending id within a block, in place where
// they lie next to each other in the table so, else gathered and put back. Their gradients are
// scaled by the arithmetic of update_rules.h; weight decay is left to the function, which gets the
// rates.
//
// Where blocks are cut is nobody's to know: the bounds may change. Scratch is laid out with the
// table; applying allocates nothing. Owned by the table; used by the thread that applies.
#ifndef PARALLAX_SERVER_RULE_BLOCKS_H_
#define PARALLAX_SERVER_RULE_BLOCKS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/arena.h"
#include "server/update_rules.h"
#include "variable/variable.h"

namespace parallax {

class RuleBlocks {
 public:
  // Rows of a block: so many, or fewer where they are wide, so that value, states and gradient are
  // still in the cache when the function comes to them. One at least.
  static constexpr uint64_t kRowsMax = 256;
  static constexpr size_t kBytesMax = size_t{1} << 18;

  // The variable, which outlives this, has such a rule.
  explicit RuleBlocks(const Variable& variable);

  // Of an arena that only measures, too.
  void lay_out(Arena& arena);

  // Begins a step on these arrays: value, then states. `counted`: gradients end in their number of
  // ranks, by which they are divided.
  void begin(const UpdateArguments& with, bool counted,
             const std::array<std::span<std::byte>, 1 + kStatesMax>& arrays);
  // The next row: its id, which row of the arrays it is, and its reduced gradient, not scaled yet.
  // What rule_fn answered, if a block was full; once that is not 0, no more is to be given.
  [[nodiscard]] int add(int64_t id, uint64_t row_here, const std::byte* gradient);
  // Hands over what is left.
  [[nodiscard]] int finish();

  // This thread is within a rule_fn, and may hold the engine mutex: who calls a job there would
  // wait for itself.
  static bool calling() { return any_.load(std::memory_order_relaxed) && within(); }

 private:
  struct Item {
    int64_t id;
    uint64_t here;
    const std::byte* gradient;
  };

  static bool within();
  int call(const parallax_rule_block_t& block) const;
  bool together() const;
  void gather();
  void put_back();
  template <typename T>
  void scale();

  // Some variable of the process has such a rule: spares the calls of others a look at the thread.
  static std::atomic<bool> any_;

  const Variable& variable_;
  const size_t element_bytes_;
  std::array<size_t, 1 + kStatesMax> row_bytes_ = {};  // of the arrays; 0: none
  uint64_t block_rows_ = 1;
  // Of the step.
  UpdateArguments with_;
  parallax_rates_t rates_ = {};
  bool counted_ = false;
  std::array<std::byte*, 1 + kStatesMax> arrays_ = {};
  // Of the block.
  uint64_t count_ = 0;
  std::span<Item> items_;
  std::span<int64_t> ids_;
  std::span<std::byte> gradient_;
  std::array<std::span<std::byte>, 1 + kStatesMax> gathered_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_RULE_BLOCKS_H_
