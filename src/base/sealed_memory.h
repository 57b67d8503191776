// SPDX-License-Identifier: Apache-2.0
// SealedMemory: whole pages of a memfd of their own, mapped here to be read and written, which
// neither shrink nor grow (sealed): so they can be handed to another rank of the host and mapped
// there; to be read alone, where that is asked for and the kernel can seal it too
// (F_SEAL_FUTURE_WRITE, Linux 5.1). The descriptor is kept for that.
//
// Pages are zero and cost memory once touched. Not thread-safe; movable. Making one asks the kernel
// and does not block; its end unmaps, which takes a while for GiB.
#ifndef PARALLAX_BASE_SEALED_MEMORY_H_
#define PARALLAX_BASE_SEALED_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "base/unique_fd.h"

namespace parallax {

// Of this machine's pages.
uint64_t bytes_of_page();

class SealedMemory {
 public:
  // Who may write: this mapping alone, or whoever has the descriptor.
  enum class Writers { kOwner, kAll };

  SealedMemory() = default;
  ~SealedMemory() { unmap(); }
  SealedMemory(SealedMemory&& other) noexcept;
  SealedMemory& operator=(SealedMemory&& other) noexcept;

  // At least one byte, filled up to whole pages. LIMIT names the call that failed, and a remedy.
  static Status make(uint64_t bytes, SealedMemory* memory, Writers writers = Writers::kOwner);

  void* base() const { return base_; }  // null: none was made
  size_t mapped_bytes() const { return mapped_bytes_; }
  int fd() const { return fd_.get(); }

 private:
  void unmap();

  UniqueFd fd_;
  void* base_ = nullptr;
  size_t mapped_bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_SEALED_MEMORY_H_
