// SPDX-License-Identifier: Apache-2.0
// HostStaging: memory of a rank in which the ranks of its host read what it pushes (host_rows.h):
// of each variable with row ids a block for each of the two steps under way, in chunks of a commit
// each; and a slab of each of these steps for dense slices that lie in memory which nobody else
// maps (group/lent_runs.h). What the kernel, a bound or the transport refuses is not here: its rows
// lie in memory of their exchange, and go by messages.
//
// A block is written by its rank alone, from the time on that the rank may start the step, and read
// by those whom the rank has told where it lies, until the step is decided; of rows that stay where
// they lie until they are applied, until then. Both are over everywhere before the step after the
// next may start: nobody looks twice at what was read.
//
// Made with the group, before its exchanges. Engine's owner only, but for what a job writes into a
// block; nothing blocks.
#ifndef PARALLAX_COLLECTIVES_HOST_STAGING_H_
#define PARALLAX_COLLECTIVES_HOST_STAGING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/arena.h"
#include "message/lending.h"
#include "world/patterns.h"

namespace parallax {

class HostStaging {
 public:
  // Both outlive this object. `rows`: else there are no blocks.
  HostStaging(const Columns& columns, Lending& lending, bool rows = true)
      : columns_(columns), lending_(lending), rows_(rows) {}
  ~HostStaging();
  HostStaging(const HostStaging&) = delete;
  HostStaging& operator=(const HostStaging&) = delete;

  // Of the variables that one more commit brings, in the order of their numbers: the bytes of a
  // block of each, 0 for those without row ids.
  void add(std::span<const uint64_t> block_bytes);

  // Once, so many bytes for each of the two steps under way, whole pages, which ranks of the host
  // may write, too.
  void add_slab(uint64_t bytes);
  // That of a step; empty: there is none.
  std::span<std::byte> slab(uint64_t step) const { return slabs_[step & 1]; }

  // A variable's block of a step, aligned to a cache line; empty: it has none here.
  std::span<std::byte> block(uint32_t variable, uint64_t step) const;
  // Where a rank of this host reads it; in no buffer: it can't.
  BufferPlace place_for(uint32_t rank, uint32_t variable, uint64_t step) const;

  // Rows of a step stay in a block of that rank until they are applied.
  void lean_on(uint32_t rank, const BufferPlace& block, const std::byte* at, uint64_t step);
  // All that rows of the step stay in is where it was. Else a rank is gone, and its loss ends the
  // step.
  bool readable(uint64_t step) const;

  // Of both blocks of a variable.
  uint64_t reserved_bytes(uint32_t variable) const;
  uint64_t reserved_bytes() const;
  uint64_t touched_bytes() const;

  // So many commits have memory here: beyond, a process may have few descriptors left.
  static constexpr size_t kChunksMax = 64;

 private:
  struct Chunk {
    Arena arena;
    uint64_t buffer = 0;  // as others know it
  };
  struct Blocks {
    const Chunk* chunk = nullptr;
    std::array<std::span<std::byte>, 2> of_steps;
  };
  struct Leant {
    uint32_t rank = 0;
    uint64_t buffer = 0;
    const std::byte* first = nullptr;  // of the buffer
  };
  struct LeantStep {
    uint64_t step = 0;
    std::vector<Leant> on;
  };

  bool is_read_by_neighbours() const;
  Chunk* add_chunk(uint64_t bytes, SealedMemory::Writers writers);

  const Columns& columns_;
  Lending& lending_;
  const bool rows_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<Blocks> blocks_;  // by variable
  std::array<std::span<std::byte>, 2> slabs_;
  std::array<LeantStep, 2> leant_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_HOST_STAGING_H_
