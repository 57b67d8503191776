// SPDX-License-Identifier: Apache-2.0
// SharedBuffers: the PeerMemory of ranks that share a host. Each pair keeps the connection over
// which it attached (attach.h); over it a rank hands the descriptors of its buffers, and says when
// one goes. Owned by the ShmTransport, which tells it when a connection has news.
//
// Design notes
//  - Mapped as it is announced, not when it is first needed: to map costs the kernel a record and
//    no page, a step never waits for it, and who announced knows by the answer what can be read.
//  - Packets that find a connection full wait here, in order; epoll tells when there is room. What
//    was not announced yet is not announced any more once it is freed, so a peer that is stopped
//    leaves at most one packet a buffer and one a freed one.
//  - What a peer says is input. A descriptor that is not as said, or one too many, is refused, and
//    then not shared; a packet that no rank sends is the peer's end (kGarbled). Packets are read so
//    many at a time, and one who lets our answers pile up is garbled too.
//  - Numbers are counted from 1 and given once, so that no answer to a freed buffer is taken for
//    one to a new buffer at its address.
//
// Not thread-safe: the transport's owner. Nothing blocks.
#ifndef PARALLAX_TRANSPORT_SHM_SHARED_BUFFERS_H_
#define PARALLAX_TRANSPORT_SHM_SHARED_BUFFERS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/unique_fd.h"
#include "transport/peer_memory.h"
#include "transport/shm/peer_buffers.h"

namespace parallax {

// A packet on the connection, as it lies in memory: of one machine, between one version.
struct BufferPacket {
  enum class Kind : uint32_t { kShare = 1, kUnshare = 2, kMapped = 3, kRefused = 4 };

  uint32_t magic = 0;
  Kind kind = Kind::kShare;
  uint64_t buffer = 0;
  uint64_t bytes = 0;  // kShare, which carries the descriptor too; else 0
};
inline constexpr uint32_t kBufferMagic = 0x46554250;  // "PBUF"

class SharedBuffers final : public PeerMemory {
 public:
  // `epoll` is told of connections, and outlives this.
  explicit SharedBuffers(int epoll, const PeerBufferLimits& limits = {})
      : epoll_(epoll), limits_(limits) {}

  // A connection's news are epoll events that carry `tag`. False: the kernel does not watch it.
  bool add(uint32_t rank, UniqueFd connection, uint32_t tag);
  // Words in memory that both ranks see, which outlive this: where this rank says that it retracts,
  // and where the other does.
  void set_marks(uint32_t rank, std::atomic<uint32_t>* own, const std::atomic<uint32_t>* peers);
  // The rank is lost or forgotten: what is mapped of it goes, and it is told nothing more.
  void drop(uint32_t rank);
  // In a forked child: its copy gives nothing back and tells nobody.
  void leave();

  enum class News {
    kHeard,    // all that was there, or as much as is read at a time
    kHungUp,   // the other end is closed; what was mapped of it is gone
    kGarbled,  // it breaks the protocol; the same
  };
  // After an event of the connection.
  News look(uint32_t rank);

  bool share(const SharedMemory& memory) override;
  void unshare(const void* base) override;
  BufferPlace place_of(const void* data, uint64_t bytes) const override;
  uint64_t used_bytes(uint64_t buffer) const override;
  bool mapped_by(uint32_t rank, uint64_t buffer) const override;
  const std::byte* find(uint32_t rank, const BufferPlace& place, uint64_t bytes) override;
  std::byte* find_writable(uint32_t rank, const BufferPlace& place, uint64_t bytes) override;
  void retract(uint32_t rank) override;
  bool was_meant(uint32_t rank) const override;
  bool make_private(const ByteRange& pages) override;
  PeerMemoryCounts counts() const override;

 private:
  // In all, of one peer: see the design notes.
  static constexpr size_t kPacketsWaitingMax = 4096;
  // Of all peers.
  static constexpr size_t kMappingsMax = 8192;

  struct Own {
    SharedMemory memory;
    uint64_t number = 0;
    std::set<uint32_t> mapped_by;  // ranks
    std::vector<bool> apart;       // by page: it is not what they have mapped; empty: none is
  };
  using OwnBuffers = std::map<uintptr_t, Own>;  // by their first byte

  struct Peer {
    explicit Peer(const PeerBufferLimits& limits) : buffers(limits) {}
    UniqueFd connection;  // invalid: nothing is shared with it any more
    uint32_t tag = 0;
    bool awaits_room = false;
    std::deque<BufferPacket> waiting;
    uint64_t last_number = 0;  // that it gave a buffer
    PeerBuffers buffers;
    std::atomic<uint32_t>* own_mark = nullptr;
    const std::atomic<uint32_t>* peers_mark = nullptr;
  };

  Peer* peer_of(uint32_t rank) const { return rank < peers_.size() ? peers_[rank].get() : nullptr; }
  News hear(uint32_t rank, Peer* peer);
  bool take(uint32_t rank, Peer* peer, const BufferPacket& packet, const UniqueFd& fd);
  void answer_share(Peer* peer, const BufferPacket& packet, const UniqueFd& fd);
  void tell(Peer* peer, const BufferPacket& packet);
  void flush(Peer* peer);
  void await_room(Peer* peer, bool wanted);
  void close(uint32_t rank, Peer* peer);
  Own* own_of(uint64_t number);
  size_t mapped_count() const;

  const int epoll_;
  const PeerBufferLimits limits_;
  OwnBuffers own_;
  std::map<uint64_t, uintptr_t> first_of_;    // a number's buffer
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank
  uint64_t numbers_given_ = 0;
  uint64_t refused_ = 0;
  uint64_t refused_us_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SHM_SHARED_BUFFERS_H_
