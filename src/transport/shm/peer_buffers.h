// SPDX-License-Identifier: Apache-2.0
// PeerBuffers: the buffers of one other rank that this one has mapped. Their descriptors are that
// rank's word and nothing else: a mapping is made only of memory that cannot vanish under its
// reader (SIGBUS), and of no more than the bounds allow. What is sealed against writers is mapped
// to be read alone. A descriptor is not kept: the mapping holds the memory. Mappings do not pass to
// a forked child, and are no part of a core dump.
//
// Not thread-safe. Nothing blocks; to unmap takes a while for GiB.
#ifndef PARALLAX_TRANSPORT_SHM_PEER_BUFFERS_H_
#define PARALLAX_TRANSPORT_SHM_PEER_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/peer_memory.h"

namespace parallax {

// Of one other rank, so that none can make this one map without end. A mapping costs the kernel a
// record of it, of which a process has 65,530 (vm.max_map_count), and addresses, of which it has
// 128 TiB; pages only as they are read.
struct PeerBufferLimits {
  uint32_t buffers = 1024;
  uint64_t bytes = uint64_t{1} << 40;
};

class PeerBuffers {
 public:
  explicit PeerBuffers(const PeerBufferLimits& limits = {}) : limits_(limits) {}
  ~PeerBuffers() { clear(); }
  PeerBuffers(PeerBuffers&&) = delete;

  // `fd` and `bytes` are the peer's word. IO: it is not memory that stays as it is, or not as much.
  // LIMIT: a bound, or the kernel's. INVALID: the number is in use.
  Status map(uint64_t buffer, const UniqueFd& fd, uint64_t bytes);
  // False: it is not mapped.
  bool unmap(uint64_t buffer);
  void clear();
  // In a forked child, where the mappings are not: forgets them.
  void leave() { mapped_.clear(); }

  // Null: not all of these bytes are mapped.
  const std::byte* find(const BufferPlace& place, uint64_t bytes) const;
  // Null: besides, they are mapped to be read alone.
  std::byte* find_writable(const BufferPlace& place, uint64_t bytes) const;

  size_t count() const { return mapped_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Mapping {
    void* base = nullptr;
    uint64_t bytes = 0;
    bool writable = false;
  };

  const Mapping* mapping_of(const BufferPlace& place, uint64_t bytes) const;

  const PeerBufferLimits limits_;
  std::map<uint64_t, Mapping> mapped_;
  uint64_t bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SHM_PEER_BUFFERS_H_
