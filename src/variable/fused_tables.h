// SPDX-License-Identifier: Apache-2.0
// Fused tables: small tables of one kind that are one variable to everything below the calls of a
// job: the rows of one table behind those of another, in one exchange, one table and one list of
// what a step wants and gives. What a table costs by itself, whatever its rows, a set of them costs
// once. A caller goes on to know each by itself: its id, its name, its rows from 0, its initial
// values, and which of them it has pulled or pushed (Registry, SliceChecks, ContributionCalls).
//
// Which tables those are is a function of what all ranks have alike of them (encode_registry), so
// that no rank has to tell. Pure.
#ifndef PARALLAX_VARIABLE_FUSED_TABLES_H_
#define PARALLAX_VARIABLE_FUSED_TABLES_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "variable/variable.h"

namespace parallax {

// Those that may be, by the setting (its choices in their order).
enum class FuseTables : uint8_t { kManaged, kNone, kAll };

struct FusedMember {
  const Variable* variable = nullptr;
  uint64_t first_row = 0;  // of the whole
};

struct FusedTables {
  std::vector<FusedMember> members;
  // What is registered in their place: of all their rows. Its `fused` are the members, and its id
  // and what it is called the first one's.
  Variable whole;
};

// A table whose slice has more bytes of rows than one message fills needs no company.
inline constexpr uint64_t kFusedSliceBytesMax = 128 * 1024;
// Rows of so many bytes stay where a program has them, as long as that is (HeldPushes).
inline constexpr uint64_t kFusedRowBytesEnd = 1024;
// Of fewer the whole is not worth what it takes from them: each could go out by itself as soon as
// it is given.
inline constexpr size_t kFusedMin = 4;
// Of slices of all members of a set: with more, what comes first could be on its way while what
// comes last is summed.
inline constexpr uint64_t kFusedSetBytesMax = 640 * 1024;

// Managed by a rule of the library's, or by the framework, in host memory, with row ids, and small
// in a step.
bool may_be_fused(const Variable& variable);

// Sets of the variables, which outlive them. Names whose numbers ascend, as `t2` and `t10`, come in
// that order.
std::deque<FusedTables> fuse_tables(std::span<const Variable* const> variables);

// Which member a row of the whole is of.
const FusedMember& member_of(std::span<const FusedMember> members, uint64_t row);

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_FUSED_TABLES_H_
