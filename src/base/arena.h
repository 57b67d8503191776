// SPDX-License-Identifier: Apache-2.0
// Arena: one reservation of address space, or, if it is small, of the heap, handed out front to
// back and given back whole. The bound of everything a job may stage is known at commit, so it is
// reserved then; pages cost memory only once touched, and a step never allocates. Before reserve()
// an arena only measures: take() adds up and answers null spans, so that one piece of code both
// sizes and lays out what it needs. Not thread-safe: the engine's owner alone uses it.
#ifndef PARALLAX_BASE_ARENA_H_
#define PARALLAX_BASE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/byte_range.h"
#include "base/sealed_memory.h"
#include "base/status.h"

namespace parallax {

inline constexpr size_t kArenaAlignmentBytes = 64;  // a cache line

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Bytes that an array of `count` elements takes from an arena.
  template <typename T>
  static constexpr size_t bytes_for(size_t count) {
    return (count * sizeof(T) + kArenaAlignmentBytes - 1) / kArenaAlignmentBytes *
           kArenaAlignmentBytes;
  }

  // Reserves `bytes` of zeroed address space and starts over; `huge`: such as can have huge pages
  // (will_be_written). LIMIT when the kernel refuses.
  Status reserve(size_t bytes, bool huge = false);
  // The same in pages that other processes can be let map.
  Status reserve_sealed(size_t bytes,
                        SealedMemory::Writers writers = SealedMemory::Writers::kOwner);
  // The same out of what is left of another arena, which outlives this one.
  void reserve_in(Arena& other, size_t bytes);
  bool lies_in(const Arena& other) const { return other_ == &other; }
  // What it lies in, where other processes can be let map that; else null.
  const SealedMemory* sealed() const { return sealed_.base() == nullptr ? nullptr : &sealed_; }

  // `count` zeroed elements, aligned to a cache line; checks that the reservation holds them.
  template <typename T>
  std::span<T> take(size_t count) {
    return {static_cast<T*>(take_bytes(bytes_for<T>(count))), count};
  }

  // All these bytes of the arena are about to be written, and what they hold may be lost before:
  // they get huge pages, as far as it was reserved so and the kernel has some.
  void will_be_written(std::span<const std::byte> bytes);

  size_t reserved_bytes() const { return reserved_bytes_; }
  // Of them, those in pages that cost memory by now. Asks the kernel, some ms for a GiB; 0 where it
  // does not say.
  size_t touched_bytes() const;
  size_t used_bytes() const { return used_bytes_; }
  size_t left_bytes() const { return reserved_bytes_ - used_bytes_; }

 private:
  // Up to here of the heap. Thousands of small arenas, each at the start of a page of its own,
  // would fight for the same few sets of every cache, and for entries of the TLB.
  static constexpr size_t kHeapBytesMax = size_t{16} << 10;

  Status reserve_of_heap(size_t bytes);
  void* take_bytes(size_t bytes);

  void* heap_ = nullptr;    // what base_ lies in, where it is of the heap
  SealedMemory sealed_;     // the same
  Arena* other_ = nullptr;  // the same
  bool huge_ = false;       // and until it is refused
  ByteRange had_;           // the last huge pages that were asked for
  std::byte* base_ = nullptr;
  size_t reserved_bytes_ = 0;
  size_t used_bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_ARENA_H_
