// SPDX-License-Identifier: Apache-2.0
// IdSets: how the row ids that ranks contribute in a step are related. Tests only.
#ifndef PARALLAX_TESTS_SUPPORT_ID_SETS_H_
#define PARALLAX_TESTS_SUPPORT_ID_SETS_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace parallax::testkit {

enum class IdSets : uint8_t {
  kDrawn,      // by chance: some are the same, some others'
  kFew,        // of two rows, so that most are duplicates
  kDisjoint,   // no two ranks have one in common
  kIdentical,  // all ranks have the same, in the same order
  kSomeEmpty,  // every other rank has none
};

// What a rank of so many has drawn becomes what is asked for. `common`: the first rank's that had
// any, none before. Returns how many they are.
inline uint64_t make_id_set(IdSets sets, uint32_t rank, uint32_t ranks, uint64_t rows,
                            std::optional<std::vector<int64_t>>* common,
                            std::vector<int64_t>* ids) {
  if (sets == IdSets::kSomeEmpty && rank % 2 == 1) ids->clear();
  if (sets == IdSets::kIdentical && *common) *ids = **common;
  for (int64_t& id : *ids) {
    if (id < 0) continue;
    if (sets == IdSets::kFew) id = id % 2 % static_cast<int64_t>(rows);
    if (sets != IdSets::kDisjoint) continue;
    id = id / ranks * ranks + rank;
    if (id >= static_cast<int64_t>(rows)) id = -1;
  }
  if (!*common) *common = *ids;
  return ids->size();
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_ID_SETS_H_
