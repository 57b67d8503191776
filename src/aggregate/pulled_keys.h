// SPDX-License-Identifier: Apache-2.0
// PulledKeys: the row keys that a host asks an owner for in a step, in the order of asking, as both
// ends have them: so what the host pushes of these rows can name each by its place there, and no
// row key travels a second time (collectives/listed_rows.h). Two steps at a time, since the rows of
// one are asked for while those of the step before are pushed.
//
// Both ends keep the first of them, as many as there is room for, which both know. Engine's owner
// only; allocates nothing but in lay_out.
#ifndef PARALLAX_AGGREGATE_PULLED_KEYS_H_
#define PARALLAX_AGGREGATE_PULLED_KEYS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/arena.h"

namespace parallax {

class PulledKeys {
 public:
  // `rows_max`: by peer; 0: nothing is kept of it.
  void lay_out(Arena& memory, std::span<const uint64_t> rows_max) {
    lists_.assign(rows_max.size(), {});
    for (size_t peer = 0; peer < rows_max.size(); ++peer) {
      for (List& each : lists_[peer]) each.row_keys = memory.take<uint32_t>(rows_max[peer]);
    }
  }

  // A peer is asked for more rows, or asks for them. The row keys need not be aligned.
  void add(uint64_t step, uint32_t peer, std::span<const std::byte> row_keys) {
    if (peer >= lists_.size() || row_keys.empty()) return;
    List& list = lists_[peer][step & 1];
    if (list.step != step) list = {.row_keys = list.row_keys, .step = step};
    const size_t count = row_keys.size() / sizeof(uint32_t);
    const size_t kept = std::min<size_t>(count, list.row_keys.size() - list.count);
    if (kept > 0) {
      std::memcpy(&list.row_keys[list.count], row_keys.data(), kept * sizeof(uint32_t));
    }
    list.asked += count;
    list.count += static_cast<uint32_t>(kept);
  }
  // It has answered so many more, and so has the list as far as it was asked.
  void answered(uint64_t step, uint32_t peer, uint64_t count) {
    if (peer >= lists_.size()) return;
    List& list = lists_[peer][step & 1];
    if (list.step == step) list.answered += count;
  }

  // Of a step that is not over: what is kept; nothing where the peer was not asked.
  std::span<const uint32_t> of(uint64_t step, uint32_t peer) const {
    if (peer >= lists_.size()) return {};
    const List& list = lists_[peer][step & 1];
    if (list.step != step) return {};
    return list.row_keys.first(list.count);
  }
  // The same at the asking end, once the peer is known to have all of it.
  std::span<const uint32_t> known(uint64_t step, uint32_t peer) const {
    if (peer >= lists_.size()) return {};
    const List& list = lists_[peer][step & 1];
    return list.asked == list.answered ? of(step, peer) : std::span<const uint32_t>();
  }

 private:
  struct List {
    std::span<uint32_t> row_keys;
    uint64_t step = 0;
    uint32_t count = 0;
    uint64_t asked = 0, answered = 0;
  };
  std::vector<std::array<List, 2>> lists_;
};

// What is kept of a variable's pulls, for its pushes. Implemented by PullExchange.
class PulledLists {
 public:
  // Of the host that this rank leads, by the owner's place in its column; of an owner, by host.
  // Null: the variable is not sharded.
  virtual const PulledKeys* asked(uint32_t variable) const = 0;
  virtual const PulledKeys* listed(uint32_t variable) const = 0;

 protected:
  ~PulledLists() = default;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_PULLED_KEYS_H_
