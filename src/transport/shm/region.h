// SPDX-License-Identifier: Apache-2.0
// SharedRegion: the mapping of one ring, a sealed memfd of a header page and the data. The producer
// makes it and passes the descriptor on; the consumer attaches. A memfd needs no /dev/shm and has
// no limit but memory; the seals forbid either side to shrink it under the other's feet (SIGBUS).
// The descriptor is not kept: the mapping holds the memory. Not thread-safe; nothing blocks.
#ifndef PARALLAX_TRANSPORT_SHM_REGION_H_
#define PARALLAX_TRANSPORT_SHM_REGION_H_

#include <cstddef>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/shm/ring.h"

namespace parallax {

class SharedRegion {
 public:
  SharedRegion() = default;
  ~SharedRegion();
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;

  // `fd` goes to the consumer. LIMIT names what ran out.
  static Status make(size_t data_bytes, SharedRegion* region, UniqueFd* fd);
  // `fd` is a peer's: its size and seals are checked.
  static Status attach(const UniqueFd& fd, size_t data_bytes, SharedRegion* region);

  bool valid() const { return base_ != nullptr; }
  RingHeader* header() const { return reinterpret_cast<RingHeader*>(base_); }
  std::byte* data() const { return base_ + kRingHeaderBytes; }
  size_t data_bytes() const { return data_bytes_; }

 private:
  Status map(int fd, size_t data_bytes);
  void unmap();

  std::byte* base_ = nullptr;
  size_t data_bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SHM_REGION_H_
