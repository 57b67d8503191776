// SPDX-License-Identifier: Apache-2.0
// RowAccumulator: the sum of the rows that several sources send for one variable in one step, added
// as they arrive. It serves at both levels: ranks of a host, then hosts. (Elements without rows:
// dense_accumulator.h.)
//
// By default contributions are added in the order of their arrival. An `ordered` accumulator adds
// source 0 first, then 1, 2, ...; what comes early is held back (a copy) until its turn, so the sum
// is bit for bit the same at any timing. Every sum starts at +0; adding what a source does not have
// is then the same as adding zeros (+0 + x is never -0), which makes rows, dense slices and absent
// ranks agree.
//
// Row keys, counts and bytes come from peers: add() returns false, having changed nothing that
// matters, when they do not fit. What each source may send is counted on its arrival, so that one
// that sends too much is named, never one that comes after it. Owned by the engine's owner; nothing
// allocates after lay_out.
#ifndef PARALLAX_AGGREGATE_ACCUMULATOR_H_
#define PARALLAX_AGGREGATE_ACCUMULATOR_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aggregate/row_index.h"
#include "aggregate/row_scratch.h"
#include "base/arena.h"
#include "base/number.h"
#include "variable/partition.h"

namespace parallax {

// What stands in each element of a row that nobody contributed, where rows are made dense for the
// wire. A sum of contributed rows starts from +0 and so is never -0; adding -0 changes nothing. So
// a row whose contributions add up to zero is still told from one without any. Integers have no
// such value: the planner never makes their rows dense.
template <typename T>
inline constexpr T kNoRowOf = static_cast<T>(-0.0);
inline constexpr float kNoRow = kNoRowOf<float>;
inline bool is_no_row(const float* row) {
  return std::bit_cast<uint32_t>(*row) == std::bit_cast<uint32_t>(kNoRow);
}
inline bool is_no_row(const double* row) {
  return std::bit_cast<uint64_t>(*row) == std::bit_cast<uint64_t>(kNoRowOf<double>);
}
template <typename Integer>
bool is_no_row(const Integer*) {
  return false;
}
// Writes `count` elements of rows that nobody contributed.
void fill_no_row(SumType sum, std::byte* values, size_t count);

// Contributions that came before their source's turn, one list per source, in a bump buffer of
// fixed size.
class ReorderBuffer {
 public:
  struct Part {
    uint32_t count;
    std::span<const std::byte> payload;
  };

  void lay_out(Arena& arena, uint32_t sources, size_t bytes_max);
  void clear();
  // False when the bound is passed.
  // Of rows in two parts, as they are behind one another then.
  bool hold(uint32_t source, uint32_t count, std::span<const std::byte> payload,
            std::span<const std::byte> rest = {});
  // Calls visit(part) for each part of a source in order of arrival.
  template <typename Visit>
  void drain(uint32_t source, Visit visit) {
    for (uint64_t at = heads_[source]; at != kEnd;) {
      const Node& node = *reinterpret_cast<const Node*>(bytes_.data() + at);
      visit(Part{node.count, bytes_.subspan(at + sizeof(Node), node.payload_bytes)});
      at = node.next;
    }
    heads_[source] = tails_[source] = kEnd;
  }
  static size_t bytes_for_part(size_t payload_bytes) {
    return sizeof(Node) + (payload_bytes + 7) / 8 * 8;
  }

 private:
  static constexpr uint64_t kEnd = UINT64_MAX;
  struct Node {
    uint64_t next;
    uint32_t count;
    uint32_t payload_bytes;
  };

  std::span<std::byte> bytes_;
  size_t used_ = 0;
  std::span<uint64_t> heads_, tails_;
};

// Who has ended, whose turn it is, what each may still send.
class AccumulatorSources {
 public:
  // `most`: rows of each source.
  void lay_out(Arena& arena, std::span<const uint64_t> most, bool ordered);
  void clear();
  bool ordered() const { return ordered_; }
  bool admits(uint32_t source) const { return !ordered_ || source == turn_; }
  bool known(uint32_t source) const { return source < sources_.size(); }
  bool ended(uint32_t source) const { return sources_[source].ended; }
  bool complete() const { return ended_count_ == sources_.size(); }
  // Counts rows of a source; false if it sent more than it may.
  [[nodiscard]] bool spend(uint32_t source, uint64_t rows) {
    uint64_t& left = sources_[source].left;
    if (rows > left) return false;
    left -= rows;
    return true;
  }
  // True if the source had not ended before.
  bool end(uint32_t source);
  // Moves the turn past sources that have ended; true if a source got its turn by this.
  bool advance();
  uint32_t turn() const { return turn_; }

 private:
  struct Source {
    uint64_t most, left;  // rows
    bool ended;
  };

  std::span<Source> sources_;
  uint32_t ended_count_ = 0;
  uint32_t turn_ = 0;
  bool ordered_ = false;
};

struct RowAccumulatorOptions {
  uint32_t sources = 1;
  uint64_t rows_max = 0;                   // distinct rows in all
  uint64_t source_rows_max = 0;            // rows of one source
  std::vector<uint64_t> rows_max_of = {};  // by source, where they differ
  uint32_t row_elements = 1;
  bool ordered = false;
  bool rows_stay = false;  // of joined rows those that come once are not copied
  // By which joined rows are found, and others that are added to them, as long as nobody else
  // takes it; outlives the accumulator. Null: by its own.
  RowScratch* scratch = nullptr;
  SumType sum = SumType::kF32;
};

class RowAccumulator {
 public:
  void lay_out(Arena& arena, const RowAccumulatorOptions& options);
  void clear();
  uint64_t rows_max() const { return options_.rows_max; }

  // `count` rows: payload is count uint32 row keys, then count x row_elements numbers of the sum
  // type.
  [[nodiscard]] bool add(uint32_t source, uint32_t count, std::span<const std::byte> payload) {
    const size_t keys_bytes = std::min(payload.size(), sizeof(uint32_t) * count);
    return add(source, count, payload.first(keys_bytes), payload.subspan(keys_bytes));
  }
  // The same of row keys and numbers in two places.
  [[nodiscard]] bool add(uint32_t source, uint32_t count, std::span<const std::byte> row_keys,
                         std::span<const std::byte> values);
  // The same of rows that a source has where they can be read, in two parts. That it will give so
  // many; false: it may not.
  [[nodiscard]] bool spend(uint32_t source, uint32_t count) {
    if (sources_.ended(source) || !sources_.spend(source, count)) return false;
    joined_max_ += count;
    return true;
  }
  // And then rows of it, kRowsTogether at most, in a call; where sums are ordered, in its turn.
  // Rows are aligned; where they stay they are not to change any more, and one that was not begun
  // from +0, as sums are, may be -0. False: more distinct rows than the ranks registered for, which
  // fails the job: nothing is added to it any more.
  [[nodiscard]] bool join(std::span<const uint32_t> row_keys, const std::byte* const* rows);
  // The same of rows that stay, of the first source there is, which gives each of them once: none
  // is looked up, and for those that come later they are put into an index once such do.
  void join_distinct(std::span<const uint32_t> row_keys, const std::byte* const* rows);
  // Rows that a source gives where another accumulator has them, by slot, and where they stay; no
  // other one of its. It may, and there is room.
  void join_rows_of(uint32_t source, const RowAccumulator& other,
                    std::span<const uint32_t> row_keys, std::span<const uint32_t> slots);
  // The source sends nothing more.
  void end(uint32_t source);
  bool ended(uint32_t source) const { return sources_.ended(source); }
  bool complete() const { return sources_.complete(); }
  bool contributed() const { return row_count() > 0; }

  // Once complete: distinct rows in order of first arrival.
  uint32_t row_count() const { return count_; }
  const uint32_t* row_keys() const { return row_keys_.data(); }
  // By which each is found, until more are added.
  const RowIndex& index() { return own_index(); }
  // One behind the other, unless they stay; then places() has where each is.
  const std::byte* values() const { return options_.rows_stay ? nullptr : values_.data(); }
  const std::byte* const* places() const { return options_.rows_stay ? places_.data() : nullptr; }
  const std::byte* row(uint32_t slot) const {
    return options_.rows_stay ? places_[slot] : &values_[slot * row_bytes_];
  }

 private:
  [[nodiscard]] bool sum(uint32_t count, const std::byte* row_keys, const std::byte* values);
  template <typename T>
  [[nodiscard]] bool sum_some(RowIndex** index, std::span<const uint32_t> row_keys,
                              const std::byte* const* rows, bool stay);
  RowIndex& index_for(uint64_t rows);
  RowIndex& own_index();
  RowIndex& larger(RowIndex& index, uint64_t rows);
  uint64_t room_for(uint64_t rows) const;
  void insert_all(RowIndex& index);
  template <typename T>
  void add_rows(std::span<const uint32_t> row_keys, const uint32_t* slots,
                const std::byte* const* rows, bool stay);
  template <typename T>
  void add_staying_rows(std::span<const uint32_t> row_keys, const uint32_t* slots,
                        const std::byte* const* rows);
  template <typename T>
  T* new_row(uint32_t slot);
  // As numbers: it may lie anywhere.
  bool is_here(const std::byte* row) const {
    return reinterpret_cast<uintptr_t>(row) - reinterpret_cast<uintptr_t>(values_.data()) <
           values_.size();
  }

  RowAccumulatorOptions options_;
  size_t row_bytes_ = 0;
  AccumulatorSources sources_;
  RowIndex index_;
  enum class Indexed : uint8_t { kHere, kInScratch, kNowhere };
  Indexed indexed_ = Indexed::kHere;  // where the rows are
  uint64_t likely_rows_ = 0;          // of the step, by an earlier one
  uint64_t joined_max_ = 0;           // rows that are going to be joined
  uint32_t count_ = 0;
  ReorderBuffer reorder_;
  std::span<uint32_t> row_keys_;
  std::span<std::byte> values_;
  // By slot, where rows stay: of `values_`, or of what was joined.
  std::span<const std::byte*> places_;
  uint32_t rows_here_ = 0;  // of `values_`, where rows stay
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ACCUMULATOR_H_
