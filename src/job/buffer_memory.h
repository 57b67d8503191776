// SPDX-License-Identifier: Apache-2.0
// BufferMemory: the pages of one buffer of parallax_buffer_alloc, mapped in this process. They are
// those of a memfd of their own, which neither shrinks nor grows (sealed), so that it can be handed
// to another rank of the host and mapped there; to be read, where the kernel can seal that too
// (F_SEAL_FUTURE_WRITE, Linux 5.1). Its descriptor is kept for that.
//
// Pages are zero and cost memory once touched. Where they then lie is asked of the kernel and not
// insisted on: a machine with one node, or a container that refuses mbind, places them as it likes.
//
// Not thread-safe; movable. Making one asks the kernel and does not block; its end unmaps, which
// takes a while for GiB.
#ifndef PARALLAX_JOB_BUFFER_MEMORY_H_
#define PARALLAX_JOB_BUFFER_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "base/binding.h"
#include "base/byte_range.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "parallax/parallax.h"
#include "transport/peer_memory.h"

namespace parallax {

class BufferMemory {
 public:
  BufferMemory() = default;
  ~BufferMemory() { unmap(); }
  BufferMemory(BufferMemory&& other) noexcept;
  BufferMemory& operator=(BufferMemory&& other) noexcept;

  // `bytes` of whole pages, placed by `binding`, unless the options name a node. INVALID and
  // UNSUPPORTED name the field, LIMIT the number of bytes.
  static Status make(uint64_t bytes, const parallax_buffer_options_t& options, Binding& binding,
                     BufferMemory* memory);

  void* base() const { return base_; }
  // What was asked for, without what fills up the last page.
  ByteRange range() const { return ByteRange::at(base_, bytes_); }
  // For whoever may map it; the descriptor stays this object's.
  SharedMemory shared() const {
    return {static_cast<const std::byte*>(base_), mapped_bytes_, fd_.get()};
  }
  // In pages that cost memory by now. Asks the kernel for one number.
  uint64_t touched_bytes() const;

 private:
  void unmap();

  UniqueFd fd_;
  void* base_ = nullptr;
  uint64_t bytes_ = 0;
  size_t mapped_bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_JOB_BUFFER_MEMORY_H_
