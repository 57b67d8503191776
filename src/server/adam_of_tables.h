// SPDX-License-Identifier: Apache-2.0
// AdamOfTables: ADAM of fused tables (fused_tables.h) of which some were updated more often than
// others: of each row by the t of its own table. As a rule of RowUpdater. Owned by the call that
// applies; one thread.
#ifndef PARALLAX_SERVER_ADAM_OF_TABLES_H_
#define PARALLAX_SERVER_ADAM_OF_TABLES_H_

#include <cstdint>
#include <span>

#include "server/update_counts.h"
#include "server/update_rules.h"

namespace parallax {

template <typename T>
class AdamOfTables {
 public:
  // `times`: one for each table, kept from step to step. All that is given outlives this.
  AdamOfTables(const UpdateArguments& with, const UpdateCounts& counts, uint64_t row_elements,
               std::span<AdamTime> times)
      : with_(with), counts_(counts), row_elements_(row_elements), times_(times) {}

  // That of the row whose first element it is. Rows come in any order.
  AdamRule<T> at(uint64_t first) const {
    const UpdateCounts::Of of = counts_.of_row(first / row_elements_);
    AdamTime& time = times_[of.table];
    if (time.updates != of.count) time = AdamTime::of(with_, of.count);
    return AdamRule<T>(with_, time);
  }

 private:
  const UpdateArguments& with_;
  const UpdateCounts& counts_;
  uint64_t row_elements_;
  std::span<AdamTime> times_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_ADAM_OF_TABLES_H_
