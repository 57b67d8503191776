// SPDX-License-Identifier: Apache-2.0
// What hand-written exchanges of rows do on either side of the wire in bench/peers: grouping ids by
// whom their rows go to, summing rows of one id, and updating a table by rows of several ranks. The
// loops run in the widest vectors of the machine, as libparallax's do.
#ifndef PARALLAX_BENCH_PEERS_ROWS_H_
#define PARALLAX_BENCH_PEERS_ROWS_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "sparse.h"

namespace parallax::peers {

// Numbers ids in the order in which each first comes. Only the part that `ids_max` ids need is
// used, so that it stays in the cache, and nothing is cleared in between.
class RowIndex {
 public:
  void begin(uint64_t ids_max);
  // The number of `id`, `next` if it is new.
  uint32_t number(int32_t id, uint32_t next) {
    uint32_t at = (static_cast<uint32_t>(id) * 2654435769U) >> shift_;
    while (true) {
      auto& entry = entries_[at];
      if (entry.round != round_) {
        entry = {round_, id, next};
        return next;
      }
      if (entry.id == id) return entry.number;
      at = (at + 1) & mask_;
    }
  }

 private:
  struct Entry {
    uint32_t round;
    int32_t id;
    uint32_t number;
  };
  std::vector<Entry> entries_;
  uint32_t round_ = 0, shift_ = 0, mask_ = 0;
};

// The distinct ids of a step, by owner: row `id` is number id / owners of owner id % owners.
class Groups {
 public:
  void group(const SparseStep& step, const int64_t* ids, uint32_t owners);
  // By owner, and of each by table: how many, then their places at the owner.
  const std::vector<int>& counts() const { return counts_; }
  const std::vector<int32_t>& places() const { return places_; }
  // Ids, or numbers of their rows, of each owner.
  const std::vector<int>& owner_ids() const { return owner_ids_; }
  const std::vector<int>& owner_values() const { return owner_values_; }
  uint64_t values() const { return values_; }
  // The rows of all ids, summed by id, in the order of places().
  void sum(const float* gradients, float* out) const;
  // And back: a row for each id.
  void expand(const float* rows, float* values) const;

 private:
  void number_ids(const int64_t* ids, uint32_t owners);
  void lay_out(uint32_t owners);

  struct Distinct {
    int32_t place;
    uint32_t owner;
    uint64_t first_value;
  };
  SparseStep step_;
  RowIndex index_;
  std::vector<Distinct> distinct_;     // in the order in which they first come, table by table
  std::vector<uint32_t> distinct_of_;  // of each id
  std::vector<int> counts_, owner_ids_, owner_values_;
  std::vector<int32_t> places_;
  uint64_t values_ = 0;
};

using ZeroPages = std::unique_ptr<float, decltype(&std::free)>;

// Tables of zeros, or the part of them of one of `owners`; memory is had as it is first touched.
class TableParts {
 public:
  TableParts(const SparseStep& step, uint32_t owners);
  float* values(size_t table) const { return values_[table].get(); }
  float* state(size_t table) const { return state_[table].get(); }

 private:
  std::vector<ZeroPages> values_, state_;
};

// Rows that a rank gave of one table; they are summed where they lie.
struct GivenRows {
  const int32_t* places;
  float* rows;
  uint64_t count;
};

class Updater {
 public:
  struct Sum {
    int32_t place;
    float* row;
  };
  // Sums what `given` has of each place, in the order of ranks, where it lies. Good until the next
  // call.
  std::span<const Sum> sum_table(uint64_t width, std::span<const GivenRows> given);
  // And updates `values` by it.
  void update_table(Rule rule, uint64_t width, std::span<const GivenRows> given, float* values,
                    float* state);

 private:
  RowIndex index_;
  std::vector<Sum> sums_;
};

// Updates `values` by rows of places that do not come twice.
void update_rows(Rule rule, uint64_t width, const GivenRows& given, float* values, float* state);

// A row of `table` for each of its ids.
void look_up(const Table& table, const int64_t* ids, const float* rows, float* values);

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_ROWS_H_
