// SPDX-License-Identifier: Apache-2.0
// RowIntake: what hosts send a reducer of a variable's rows (kHostReduce), checked and added up:
// the row keys as they come, or named by what was pulled (listed_rows.h); the rows as they are, or
// widened, where they cross in another type. Part of RowExchange; engine's owner only.
#ifndef PARALLAX_COLLECTIVES_ROW_INTAKE_H_
#define PARALLAX_COLLECTIVES_ROW_INTAKE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aggregate/accumulator.h"
#include "base/arena.h"
#include "collectives/algorithms.h"
#include "collectives/exchange.h"
#include "collectives/host_rows.h"
#include "message/wire.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class RowIntake {
 public:
  // All references outlive it.
  RowIntake(const Columns& columns, const Partition& partition, const HostRows& host_rows,
            const ExchangeOptions& options, ReduceTo to);

  void lay_out(Arena& arena);
  // Rows of the variable that are summed here; and of them, by host, those that its ranks may give.
  uint64_t rows_summed() const;
  std::vector<uint64_t> rows_max_of_hosts() const;
  // What rows travel as.
  uint32_t dtype() const { return dtype_; }
  // False: not what a source may send.
  [[nodiscard]] bool add(uint32_t source, const Section& section, RowAccumulator* total);

  // They are narrower than what they are summed in.
  bool widens() const { return dtype_ != dtype_of(options_.sum); }

 private:
  bool are_mine(const Section& section) const;
  [[nodiscard]] bool find_row_keys(uint32_t source, const Section& section,
                                   std::span<const std::byte>* row_keys,
                                   std::span<const std::byte>* rows);

  const Columns& columns_;
  const Partition& partition_;
  const HostRows& host_rows_;
  const ExchangeOptions options_;
  const ReduceTo to_;
  const uint32_t dtype_;
  std::span<std::byte> widened_;  // rows of the sum type; empty: none are rounded
  std::span<uint32_t> listed_;    // row keys of a section that has none
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ROW_INTAKE_H_
