// SPDX-License-Identifier: Apache-2.0
// BufferMemory: the pages of one buffer of parallax_buffer_alloc, mapped in this process: sealed
// ones (base/sealed_memory.h), so that the ranks of the host may map them, to read and to write
// (transport/peer_memory.h).
//
// Where they lie is asked of the kernel and not insisted on: a machine with one node, or a
// container that refuses mbind, places them as it likes.
//
// Not thread-safe; movable. Making one asks the kernel and does not block; its end unmaps, which
// takes a while for GiB.
#ifndef PARALLAX_JOB_BUFFER_MEMORY_H_
#define PARALLAX_JOB_BUFFER_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "base/binding.h"
#include "base/byte_range.h"
#include "base/sealed_memory.h"
#include "base/status.h"
#include "parallax/parallax.h"
#include "transport/peer_memory.h"

namespace parallax {

class BufferMemory {
 public:
  // `bytes` of whole pages, placed by `binding`, unless the options name a node. INVALID and
  // UNSUPPORTED name the field, LIMIT the number of bytes.
  static Status make(uint64_t bytes, const parallax_buffer_options_t& options, Binding& binding,
                     BufferMemory* memory);

  void* base() const { return pages_.base(); }
  // What was asked for, without what fills up the last page.
  ByteRange range() const { return ByteRange::at(base(), bytes_); }
  // For whoever may map it; the descriptor stays this object's.
  SharedMemory shared() const {
    return {static_cast<const std::byte*>(base()), pages_.mapped_bytes(), pages_.fd(), bytes_};
  }
  // In pages that cost memory by now. Asks the kernel for one number.
  uint64_t touched_bytes() const;

 private:
  SealedMemory pages_;
  uint64_t bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_JOB_BUFFER_MEMORY_H_
