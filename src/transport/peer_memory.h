// SPDX-License-Identifier: Apache-2.0
// PeerMemory: buffers of a rank that other ranks can read where they lie, and write where it lets
// them. What a transport offers beside messages, where it has a way: ranks of one host, who map one
// memory (transport.h).
//
// A rank says which of its buffers others may map, and which of these only to read; they do as they
// hear of it, and answer. Which bytes are meant for them, and for how long, is for messages to
// settle (message/lending.h). A reader that was late reads what is no longer meant, and harms
// nobody. A writer that was late would write into what is its owner's again: so who gives up a rank
// that may still write somewhere first has other pages put there (make_private), and what the late
// one writes is nobody's.
//
// Threads: as the transport's, and one owner with it. Nothing blocks.
#ifndef PARALLAX_TRANSPORT_PEER_MEMORY_H_
#define PARALLAX_TRANSPORT_PEER_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "base/byte_range.h"

namespace parallax {

// A buffer of this rank: all of a memfd that neither shrinks nor grows. Borrowed until unshare().
struct SharedMemory {
  const std::byte* base = nullptr;
  uint64_t bytes = 0;  // the memfd's, whole pages
  int fd = -1;
  uint64_t used_bytes = 0;  // of these, those before what only fills up the last page; 0: all
};

// Where some bytes lie: in which of a rank's buffers, and how far from its beginning. The number is
// never used again by that rank.
struct BufferPlace {
  uint64_t buffer = 0;  // 0: in none
  uint64_t offset = 0;
};

struct PeerMemoryCounts {
  uint64_t shared = 0;        // buffers of this rank that may be read
  uint64_t mapped = 0;        // others' buffers that this rank has mapped
  uint64_t mapped_bytes = 0;  // of those
  uint64_t refused = 0;       // of others, so far: a bound was reached, or they were not as said
  uint64_t refused_us = 0;    // of this rank's, so far, by others
};

class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  // Lets the others map it. False: so many are shared that this one stays this rank's alone.
  virtual bool share(const SharedMemory& memory) = 0;
  // Before its memory goes. The others unmap it as they hear of it; until then they hold its pages,
  // which are nobody's else.
  virtual void unshare(const void* base) = 0;

  // Of this rank: where these bytes lie, if all of them lie in one shared buffer.
  virtual BufferPlace place_of(const void* data, uint64_t bytes) const = 0;
  // Of a buffer of this rank: all but what fills up its last page, and nobody uses. 0: there is no
  // such buffer.
  virtual uint64_t used_bytes(uint64_t) const { return 0; }
  // That rank has said that it has this rank's buffer mapped.
  virtual bool mapped_by(uint32_t rank, uint64_t buffer) const = 0;

  // Others may write there at all, where this rank lets them.
  virtual bool may_be_written() const { return true; }

  // Another rank's bytes. Null: they do not all lie in a buffer of its that is mapped here. Valid
  // until the next poll() or forget() of the transport; they change as their owner writes.
  virtual const std::byte* find(uint32_t rank, const BufferPlace& place, uint64_t bytes) = 0;
  // The same, to be written as far as that rank lets this one. Null: besides, that buffer is its
  // owner's alone to write, as all are where nothing else is said.
  virtual std::byte* find_writable(uint32_t, const BufferPlace&, uint64_t) { return nullptr; }

  // For good: what that rank may still read here is no longer meant, and no message settles it.
  // When this returns, this rank may write there again. Also done as the rank is lost or forgotten.
  virtual void retract(uint32_t rank) = 0;
  // After the last of that rank's bytes was read. False: it may have written there meanwhile, since
  // it has given this rank up, or its end has been seen here: what was made of them is worth
  // nothing.
  virtual bool was_meant(uint32_t rank) const = 0;

  // For good: whole pages of a buffer of this rank are no other rank's any more, whatever it has
  // mapped. They hold what they held, or half of what another rank was writing; what this process
  // writes there meanwhile stays; and no place is given in that buffer any more, since others do
  // not see all of it. False: the kernel gives no memory for that, or not for all of them.
  [[nodiscard]] virtual bool make_private(const ByteRange&) { return true; }

  virtual PeerMemoryCounts counts() const = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_PEER_MEMORY_H_
