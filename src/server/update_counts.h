// SPDX-License-Identifier: Apache-2.0
// UpdateCounts: in how many committed steps some rank gave a gradient of a table; of fused tables
// (fused_tables.h) of each. ADAM's t, and what stochastic rounding draws by. Every rank that holds
// rows of a table has the same count. Owned by the table; a step allocates nothing.
#ifndef PARALLAX_SERVER_UPDATE_COUNTS_H_
#define PARALLAX_SERVER_UPDATE_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "variable/tables_left_out.h"
#include "variable/variable.h"

namespace parallax {

class UpdateCounts {
 public:
  // Which of fused tables, where its rows begin among those of all, and its count; of a table by
  // itself 0 and 0.
  struct Of {
    size_t table = 0;
    uint64_t first_row = 0;
    uint64_t count = 0;
  };

  // Of the variable that a table is of, which outlives this.
  explicit UpdateCounts(const Variable& variable)
      : variable_(variable), counts_(variable.fused.empty() ? 1 : variable.fused.size()) {}

  // One step more, of all but those that are left out.
  void add_step(const TablesLeftOut& left_out);

  // All of them have the same.
  bool alike() const { return alike_; }
  uint64_t of_first() const { return counts_[0]; }
  // Of the table that a row is of.
  Of of_row(uint64_t row) const;
  void set(uint64_t row, uint64_t count);

  // All, to be moved, and what has come of them: false if there are not so many.
  std::span<const uint64_t> all() const { return counts_; }
  [[nodiscard]] bool place(uint64_t first, std::span<const std::byte> counts);

 private:
  void compare();

  const Variable& variable_;
  std::vector<uint64_t> counts_;
  bool alike_ = true;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_UPDATE_COUNTS_H_
