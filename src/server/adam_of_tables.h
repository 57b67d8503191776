// SPDX-License-Identifier: Apache-2.0
// AdamOfTables: ADAM of fused tables (fused_tables.h) of which some were updated more often than
// others: of each row by the t of its own table. As a rule of RowUpdater. Owned by the call that
// applies; one thread.
#ifndef PARALLAX_SERVER_ADAM_OF_TABLES_H_
#define PARALLAX_SERVER_ADAM_OF_TABLES_H_

#include <cstdint>

#include "server/update_counts.h"
#include "server/update_rules.h"

namespace parallax {

template <typename T>
class AdamOfTables {
 public:
  // `counts` and what they tell of outlive this.
  AdamOfTables(const UpdateArguments& with, const UpdateCounts& counts, uint64_t row_elements)
      : counts_(counts), row_elements_(row_elements), with_(with), rule_(with) {}

  // That of the row whose first element it is. Rows of a table mostly follow each other.
  const AdamRule<T>& at(uint64_t first) const {
    const uint64_t row = first / row_elements_;
    if (table_.has(row)) return rule_;
    table_ = counts_.of_row(row);
    with_.updates = table_.count;
    rule_ = AdamRule<T>(with_);
    return rule_;
  }

 private:
  const UpdateCounts& counts_;
  uint64_t row_elements_;
  // The last one asked for.
  mutable UpdateArguments with_;
  mutable UpdateCounts::Of table_;
  mutable AdamRule<T> rule_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_ADAM_OF_TABLES_H_
