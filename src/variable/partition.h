// SPDX-License-Identifier: Apache-2.0
// Partition: who owns what of a variable. Pure arithmetic, a function of shapes and the map of
// slots alone, so every rank computes it alike and no table of rows exists.
//
// Rows (ids declared): a row id is mapped to a row key by a bijection of 0..rows-1 that looks
// random; row key k is of slot k % slots, and belongs to the owner of that slot. Neighbouring ids,
// which frequency-sorted vocabularies make alike in load, are thereby spread evenly. An owner's
// rows lie in the order of their row keys, one after the other: its slots take turns, so that a
// local row is found without a search. On the wire rows go by row key.
//
// Elements (dense): the flattened variable is cut into blocks of kBlockElements (or of as many of
// them as part no row, where a rule works on rows), the blocks into a
// contiguous range for each owner; who gets the first one rotates with the variable's number, so
// that the many small ones do not all fall to one owner. A rank without a slot has an empty range.
//
// What is sharded is given the slots of the view. What every rank holds is owned only for the time
// of a step, while it is summed: by all ranks alike, as by a map with a slot for each.
#ifndef PARALLAX_VARIABLE_PARTITION_H_
#define PARALLAX_VARIABLE_PARTITION_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>

#include "base/divisor.h"
#include "base/vector_code.h"
#include "world/slot_map.h"

namespace parallax {

inline constexpr uint64_t kBlockElements = 256;  // kDenseGrain of the wire

// The smallest blocks of dense elements that part no row.
constexpr uint64_t block_of_rows(uint64_t row_elements) {
  return std::lcm(kBlockElements, row_elements);
}

// Row keys, or rows, that vectors take at once, and how many of them where fewer are left: of still
// fewer GCC makes no vectors, but takes them one by one.
inline constexpr size_t kKeysTogether = 32, kKeysAtLeast = 16;

// Calls some_of(std::integral_constant<size_t, n>(), from, to) for n of `count` numbers at a time:
// where they lie, as what is written just before in pieces vectors wait for. Behind the last ones
// there are zeros, which are rows and row keys, too.
template <typename SomeOf>
void each_together(const uint32_t* from, size_t count, uint32_t* to, const SomeOf& some_of) {
  in_vectors([=, &some_of] {
    constexpr std::integral_constant<size_t, kKeysTogether> kMany;
    constexpr std::integral_constant<size_t, kKeysAtLeast> kFew;
    size_t first = 0;
    for (; count - first >= kMany; first += kMany) some_of(kMany, from + first, to + first);
    for (; count - first >= kFew; first += kFew) some_of(kFew, from + first, to + first);
    if (first == count) return;
    std::array<uint32_t, kKeysAtLeast> last = {};
    for (size_t i = 0; first + i < count; ++i) last[i] = from[first + i];
    some_of(kFew, last.data(), last.data());
    for (size_t i = 0; first + i < count; ++i) to[first + i] = last[i];
  });
}

// A bijection of [0, size): two rounds of xor-shift and odd multiplication on the next power of
// two, repeated until the result falls below size (cycle walking; Black & Rogaway 2002). Under two
// rounds of the walk on average.
class RowPermutation {
 public:
  explicit RowPermutation(uint64_t size) : size_(size) {
    const int bits = std::max(2, static_cast<int>(std::bit_width(size - 1)));
    mask_ = bits >= 64 ? ~0ull : (1ull << bits) - 1;
    shift_ = (bits + 1) / 2;  // at least half the bits: then the xor-shift is its own inverse
    inverse_a_ = inverse(kA);
    inverse_b_ = inverse(kB);
    // Of eight times so many all have then arrived, of seven. To do so much in any case is faster
    // than to look: the processor begins before it knows of those in front.
    const double outside = 1 - static_cast<double>(size) / (static_cast<double>(mask_) + 1);
    surely_ = 1;
    constexpr int kSurelyMax = 8;
    for (double left = outside * kKeysTogether; left > 1.0 / 8 && surely_ < kSurelyMax;
         left *= outside) {
      ++surely_;
    }
  }

  uint64_t row_key(uint64_t row) const {
    do {
      row ^= row >> shift_;
      row = (row * kA) & mask_;
      row ^= row >> shift_;
      row = (row * kB) & mask_;
      row ^= row >> shift_;
    } while (row >= size_);
    return row;
  }
  // The same of so many rows, in vectors: how many walks one takes cannot be foreseen, so some walk
  // together until the last has arrived. Of no more than 2^32 rows, whose walk is one of 32 bits.
  // `to` may be where the rows are.
  void row_keys(const uint32_t* rows, size_t count, uint32_t* to) const {
    const auto last = static_cast<uint32_t>(size_ - 1), mask = static_cast<uint32_t>(mask_);
    const auto walk = [mask, shift = shift_](uint32_t row) {
      row ^= row >> shift;
      row = (row * static_cast<uint32_t>(kA)) & mask;
      row ^= row >> shift;
      row = (row * static_cast<uint32_t>(kB)) & mask;
      return row ^ row >> shift;
    };
    each_together(rows, count, to,
                  [=, surely = surely_](auto together, const uint32_t* from, uint32_t* arrived) {
                    // Of its own, which nothing else can be: else the compiler takes them one by
                    // one.
                    std::array<uint32_t, together> at;
                    for (size_t i = 0; i < together; ++i) at[i] = walk(from[i]);
                    for (int walks = 1;; ++walks) {
                      if (walks >= surely) {
                        uint32_t any = 0;
                        for (const uint32_t each : at) any |= each > last ? UINT32_MAX : 0;
                        if (any == 0) break;
                      }
                      for (uint32_t& each : at) {
                        const uint32_t outside = each > last ? UINT32_MAX : 0;
                        each ^= (each ^ walk(each)) & outside;
                      }
                    }
                    std::copy(at.begin(), at.end(), arrived);
                  });
  }

  uint64_t row(uint64_t row_key) const {
    do {
      row_key ^= row_key >> shift_;
      row_key = (row_key * inverse_b_) & mask_;
      row_key ^= row_key >> shift_;
      row_key = (row_key * inverse_a_) & mask_;
      row_key ^= row_key >> shift_;
    } while (row_key >= size_);
    return row_key;
  }

 private:
  static constexpr uint64_t kA = 0x9e3779b97f4a7c15;  // odd; the constants of splitmix64
  static constexpr uint64_t kB = 0xbf58476d1ce4e5b9;

  // Inverse of an odd number modulo 2^64, by Newton's iteration (5 bits double each time).
  static constexpr uint64_t inverse(uint64_t odd) {
    uint64_t x = odd * 3 ^ 2;
    for (int i = 0; i < 4; ++i) x *= 2 - odd * x;
    return x;
  }

  uint64_t size_, mask_, inverse_a_, inverse_b_;
  int shift_;
  int surely_;
};

// A contiguous run of elements.
struct Range {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t end() const { return first + count; }
  bool operator==(const Range&) const = default;
};

class Partition {
 public:
  // Spread: over how many of the owners the slots of this variable lie; 0: all of them.
  Partition(uint64_t rows, uint64_t row_elements, bool ids_declared, const SlotMap& slots,
            uint32_t variable, uint32_t spread = 0, uint64_t block = kBlockElements)
      : rows_(rows),
        row_elements_(row_elements),
        slots_(slots.spread_over(spread, variable)),
        slot_(slots_.data()),
        slot_count_(slots_.slots()),
        owner_count_(static_cast<uint32_t>(slots_.owners().size())),
        rotation_(variable % owner_count_),
        block_(block),
        permutation_(ids_declared ? rows : 1),
        ids_declared_(ids_declared) {}

  // The same of so many rows, among the same owners.
  Partition of_rows(uint64_t rows) const {
    Partition other = *this;
    other.rows_ = rows;
    other.permutation_ = RowPermutation(ids_declared_ ? rows : 1);
    return other;
  }

  // Rows.
  uint32_t row_key_of(uint64_t row) const {
    return static_cast<uint32_t>(permutation_.row_key(row));
  }
  // Of so many rows, all of which exist. `to` may be where they are.
  void row_keys_of(const uint32_t* rows, size_t count, uint32_t* to) const {
    permutation_.row_keys(rows, count, to);
  }
  uint64_t row_of(uint32_t row_key) const { return permutation_.row(row_key); }
  // For every row of a step: two multiplications and a lookup.
  uint32_t owner_of(uint32_t row_key) const { return slot_[slot_count_.remainder(row_key)].owner; }
  // Its place among its owner's rows.
  uint64_t local_row(uint32_t row_key) const { return home_of(row_key).local_row; }
  // Both at once.
  struct Home {
    uint32_t owner = 0;
    uint64_t local_row = 0;
  };
  Home home_of(uint32_t row_key) const {
    const SlotTurn at = turn_of(row_key);
    const SlotMap::Slot& slot = slot_[at.slot];
    return {slot.owner, uint64_t{at.turn} * slot.owner_slots + slot.place};
  }
  // A row key as its slot, and which of that slot's rows it is: of the slot's owner's rows the
  // (turn * owner_slots + place)-th.
  struct SlotTurn {
    uint32_t slot = 0, turn = 0;
  };
  SlotTurn turn_of(uint32_t row_key) const {
    const uint32_t turn = slot_count_.quotient(row_key);
    return {row_key - turn * slot_count_.value(), turn};
  }
  // The same of so many row keys.
  void turns_of(const uint32_t* row_keys, size_t count, uint32_t* turns) const {
    each_together(row_keys, count, turns,
                  [divisor = slot_count_](auto together, const uint32_t* from, uint32_t* to) {
                    for (size_t i = 0; i < together; ++i)
                      to[i] = divisor.quotient_in_vectors(from[i]);
                  });
  }
  std::span<const SlotMap::Slot> slots() const { return {slot_, slot_count_.value()}; }
  // Of so many row keys what of_owner(owner) says of their owners. `numbers` may be where the row
  // keys are.
  template <typename OfOwner>
  void look_up_owners(const uint32_t* row_keys, size_t count, OfOwner of_owner,
                      uint32_t* numbers) const {
    each_together(row_keys, count, numbers,
                  [divisor = slot_count_](auto together, const uint32_t* from, uint32_t* to) {
                    for (size_t i = 0; i < together; ++i)
                      to[i] = divisor.remainder_in_vectors(from[i]);
                  });
    for (size_t i = 0; i < count; ++i) numbers[i] = of_owner(slot_[numbers[i]].owner);
  }
  // Owners of so many row keys.
  void owners_of(const uint32_t* row_keys, size_t count, uint32_t* owners) const {
    look_up_owners(
        row_keys, count, [](uint32_t owner) { return owner; }, owners);
  }
  // The local row must be one of the owner's.
  uint32_t row_key_at(uint32_t owner, uint64_t local_row) const {
    const std::span<const uint32_t> slots = slots_.slots_of(owner);
    return static_cast<uint32_t>(local_row / slots.size() * slot_count_.value() +
                                 slots[local_row % slots.size()]);
  }
  uint64_t rows_owned(uint32_t owner) const {
    const std::span<const uint32_t> slots = slots_.slots_of(owner);
    const uint64_t turns = rows_ / slot_count_.value();
    // Those of its slots that have a row in the last, broken turn.
    const auto rest = std::lower_bound(slots.begin(), slots.end(), rows_ % slot_count_.value());
    return turns * slots.size() + static_cast<uint64_t>(rest - slots.begin());
  }

  // Elements. A variable with ids, made dense, is cut at rows of its row keys instead of blocks,
  // so that no row has two owners.
  Range range_of(uint32_t owner) const {
    const uint32_t index = slots_.index_of(owner);
    if (index == kNoOwner) return {};
    if (ids_declared_) {
      const uint64_t first_row = rows_ * index / owner_count_;
      const uint64_t end_row = rows_ * (uint64_t{index} + 1) / owner_count_;
      return {first_row * row_elements_, (end_row - first_row) * row_elements_};
    }
    const uint64_t elements = rows_ * row_elements_;
    const uint64_t blocks = (elements + block_ - 1) / block_;
    const uint64_t turn = (index + rotation_) % owner_count_;
    const uint64_t first = std::min(elements, blocks * turn / owner_count_ * block_);
    const uint64_t end = std::min(elements, blocks * (turn + 1) / owner_count_ * block_);
    return {first, end - first};
  }

  // Whose range holds the row at a row key, where ids are declared.
  uint32_t range_owner_of(uint32_t row_key) const {
    return slots_.owners()[((uint64_t{row_key} + 1) * owner_count_ - 1) / rows_];
  }

  uint64_t rows() const { return rows_; }
  uint64_t row_elements() const { return row_elements_; }
  uint64_t elements() const { return rows_ * row_elements_; }
  bool ids_declared() const { return ids_declared_; }

 private:
  uint64_t rows_, row_elements_;
  SlotMap slots_;
  const SlotMap::Slot* slot_;  // slots_.data(), by slot
  Divisor slot_count_;
  uint32_t owner_count_, rotation_;
  uint64_t block_;  // elements
  RowPermutation permutation_;
  bool ids_declared_;
};

// Which groups rows are of: of_owner(owner).
template <typename OfOwner>
struct GroupByOwner {
  const Partition& partition;
  const OfOwner of_owner;

  void find(const uint32_t* row_keys, size_t count, uint32_t* groups) const {
    partition.look_up_owners(row_keys, count, of_owner, groups);
  }
};

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_PARTITION_H_
