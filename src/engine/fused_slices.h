// SPDX-License-Identifier: Apache-2.0
// FusedSlices: of a call, which of its slices are of the same fused tables (fused_tables.h), and
// how they go out. A note of ContributionCalls; a call allocates nothing.
#ifndef PARALLAX_ENGINE_FUSED_SLICES_H_
#define PARALLAX_ENGINE_FUSED_SLICES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace parallax {

class FusedSlices {
 public:
  struct Set {
    uint32_t number = 0;  // of the tables
    uint32_t count = 0;   // slices
    size_t first = 0, last = 0;
    bool tied = false;      // a table comes more than once
    bool more = false;      // a slice says so
    bool as_parts = false;  // else they are added to this rank's sum of the step
  };

  void reserve(size_t sets_max) {
    sets_.reserve(sets_max);
    set_of_.resize(sets_max);
  }
  void clear() { sets_.clear(); }
  // The next slice of the call that is of any.
  void add(uint32_t number, size_t slice, bool tied, bool more) {
    if (number >= set_of_.size()) set_of_.resize(number + 1);  // grows with what was registered
    if (!has(number)) {
      set_of_[number] = static_cast<uint32_t>(sets_.size());
      sets_.push_back({.number = number, .first = slice});
    }
    Set& set = sets_[set_of_[number]];
    ++set.count;
    set.last = slice;
    set.tied = set.tied || tied;
    set.more = set.more || more;
  }
  const Set& of(uint32_t number) const { return sets_[set_of_[number]]; }
  std::vector<Set>& all() { return sets_; }
  bool any() const { return !sets_.empty(); }

 private:
  // A place that an earlier call left is told by the set there.
  bool has(uint32_t number) const {
    return set_of_[number] < sets_.size() && sets_[set_of_[number]].number == number;
  }

  std::vector<Set> sets_;
  std::vector<uint32_t> set_of_;  // by number
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_FUSED_SLICES_H_
