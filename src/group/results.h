// SPDX-License-Identifier: Apache-2.0
// Results: what a reduce hands back to its caller: a framework-held sum, divided as the variable's
// reduction says, in the form and the dtype of the caller's slice. Sums are multiplied in the type
// that they were summed in, then rounded once. How a sum came here is the exchange's business.
//
// Once there was room for the rows of a variable, handing them back allocates nothing. Engine's
// owner only; nothing blocks.
#ifndef PARALLAX_GROUP_RESULTS_H_
#define PARALLAX_GROUP_RESULTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "aggregate/reduced_gradient.h"
#include "aggregate/scaled_numbers.h"
#include "base/unset_bytes.h"
#include "group/variable_runtime.h"
#include "server/pull_exchange.h"

namespace parallax {

// The union of rows that a reduce gives back; ids ascending.
struct RowsResult {
  std::vector<int64_t> ids;
  UnsetBytes values;
  uint32_t dtype = 0;  // that the slice asked for
};

class Results {
 public:
  explicit Results(uint32_t world) : world_(world) {}

  // Rows that the union of all ranks' slices can have at most.
  uint64_t most_rows(const Variable& variable) const;
  // Rows of the variable, which is the runtime's, or one of its fused tables, are given in that
  // dtype. Room for the most that a union can be, so that later steps allocate nothing; for nothing
  // if the variable has no row ids. Throws std::bad_alloc.
  void reserve(const VariableRuntime& runtime, const Variable& variable, uint32_t dtype,
               RowsResult* rows);

  // What came of the slice of a reduce in a step: all of the sum (Exchange::whole) to where the
  // slice wants it, where the exchange may have put it already; of a slice of rows their union into
  // *rows, which was reserved. Of fused tables that of the slice's.
  void give(const VariableRuntime& runtime, uint64_t step, const ReducedGradient& whole,
            const PullSlice& slice, RowsResult* rows);

 private:
  // Of each row of a union its id in the upper half, and which row of the sum's values it is; with
  // as much room again to sort them in.
  struct Union {
    uint64_t step = 0;
    UnsetVector<uint64_t> room;
    std::span<const uint64_t> rows;  // by ascending id
  };

  double factor(const Variable& variable, const ReducedGradient& whole) const;
  void give_dense(const Variable& variable, const ReducedGradient& whole,
                  const PullSlice& slice) const;
  void give_every_row(const VariableRuntime& runtime, const ReducedGradient& whole,
                      const PullSlice& slice) const;
  void give_row(const Variable& variable, const ReducedGradient& whole, const std::byte* row,
                const NumberFormat& to) const;
  void give_alone(const VariableRuntime& runtime, const ReducedGradient& whole, RowsResult* out);
  void give_member(const VariableRuntime& runtime, uint64_t step, const ReducedGradient& whole,
                   const PullSlice& slice, RowsResult* out);
  static void sort_rows(const VariableRuntime& runtime, const ReducedGradient& whole,
                        Union* sorted);
  void give_union(const FusedMember& of, const ReducedGradient& whole,
                  std::span<const uint64_t> rows, RowsResult* out) const;
  static const std::byte* row_in(const Variable& variable, const ReducedGradient& whole,
                                 uint64_t row);
  void give_rows(const Variable& variable, const ReducedGradient& whole,
                 std::span<const uint64_t> rows, const NumberFormat& to) const;

  const uint32_t world_;
  Union union_;                                  // of the variable that is given back
  std::unordered_map<uint32_t, Union> of_sets_;  // by number: of fused tables, for all of a step
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_RESULTS_H_
