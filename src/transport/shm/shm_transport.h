// SPDX-License-Identifier: Apache-2.0
// ShmTransport: messages between the ranks of one host through memory they share: one ring per
// direction and peer (ring.h), attached during the rendezvous (attach.h). A send copies the
// segments into the ring and completes at the sender's next poll; a receiver sees the message where
// it lies in the ring. Owned by the rank's engine. Threads as in transport.h. connect_all blocks,
// nothing else.
//
// Sleep and death. wait_fd() is an epoll descriptor over this rank's bell (an eventfd that peers
// write when they see it asleep) and one descriptor per peer that tells its process's end: a pidfd,
// or the pair's unix connection where the peer's pid cannot be seen (another pid namespace). A peer
// that closes its transport says so in the ring. Either way what it sent before is delivered first.
// A stopped peer is not dead: peer_activity() tells whether it still polls; leases are
// membership's.
//
// fork. All descriptors close on exec. A child that lives on without exec keeps the mappings, but
// cannot hide the parent's death from those who watch a pidfd; over the connection it can. The
// child's copy of the transport must not be used; destroying it says nothing to the peers.
//
// Boards. Each rank has one for all its peers (transport/boards.h), handed over as they attach,
// where that is asked for: of all ranks of the host, or of none.
//
// What peers write here is input: positions and lengths are checked, and a ring found corrupt loses
// that peer. A message's bytes can be changed by its sender while they are looked at: read once.
#ifndef PARALLAX_TRANSPORT_SHM_SHM_TRANSPORT_H_
#define PARALLAX_TRANSPORT_SHM_SHM_TRANSPORT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/sealed_memory.h"
#include "transport/boards.h"
#include "transport/shm/attach.h"
#include "transport/shm/ring.h"
#include "transport/shm/shared_buffers.h"
#include "transport/transport.h"

namespace parallax {

inline constexpr size_t kRingBytesDefault = size_t{1} << 20;

struct ShmOptions {
  uint32_t rank = 0;
  const Clock* clock = nullptr;           // outlives the transport
  size_t ring_bytes = kRingBytesDefault;  // per direction and peer; a power of two
  bool use_pidfd = true;                  // false: watch connections instead (tests)
  bool boards = false;                    // the same at all peers
};

// Equal for two ranks exactly if they can attach: the machine's boot and its network namespace.
std::string shm_machine_id();

class ShmTransport final : public Transport, private Boards {
 public:
  // Listens at a fresh address. INVALID for ring_bytes; LIMIT, IO.
  static Status create(const ShmOptions& options, std::unique_ptr<ShmTransport>* transport);
  ~ShmTransport() override;

  // For Endpoint.shm_address.
  const std::string& address() const { return address_; }

  // Attaches to all `peers` (the other ranks of this host), which call it at the same time. Once.
  // Blocks up to the deadline. PEER_LOST and TIMEOUT name the rank; LIMIT, IO.
  Status connect_all(std::span<const Endpoint> peers, uint64_t job, int64_t deadline_ns);
  bool attached(uint32_t rank) const { return find(rank) != nullptr; }

  std::string_view name() const override { return "shm"; }
  size_t message_bytes_max() const override { return kShmMessageBytesMax; }
  bool writable(uint32_t to) const override;
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override;
  bool copies_sends(uint32_t) const override { return true; }  // into the ring
  bool poll(Receiver& receiver) override;
  int wait_fd() const override { return epoll_.get(); }
  bool arm() override;
  void forget(uint32_t rank) override;
  PeerMemory* peer_memory() override { return &memory_; }
  Boards* boards() override { return options_.boards ? this : nullptr; }

  struct Activity {
    uint64_t polls = 0;     // how often the peer has polled
    bool sleeping = false;  // it is blocked, waiting for messages
  };
  // A peer whose polls stand still and that is not sleeping is stopped or stuck. Any thread after
  // connect_all; the peer's claim, not proof.
  Activity peer_activity(uint32_t rank) const;

 private:
  struct Peer {
    ShmLink link;
    mutable RingProducer out;  // writable() refreshes its view
    RingConsumer in;
    std::array<uint64_t, kSendsInFlightMax> cookies;  // sends to complete at the next poll
    uint32_t cookie_count = 0;
    bool gone = false;             // lost and reported, or forgotten
    bool dead = false;             // its process has ended; not yet reported
    bool garbled = false;          // it broke the protocol of its buffers; not yet reported
    mutable bool blocked = false;  // writable() was false for want of room
  };

  struct Parts {
    UniqueFd epoll, bell, listener;
    SealedMemory board;
  };

  ShmTransport(const ShmOptions& options, Parts parts, std::string address);
  std::byte* own() override { return static_cast<std::byte*>(board_.base()) + kBoardHeadBytes; }
  const std::byte* of(uint32_t rank) const override;
  void post() override;
  uint64_t posts() const override;
  void heed(bool posts) override;
  bool posts_seen();
  Status adopt(ShmLink link);
  Peer* find(uint32_t rank) const { return rank < by_rank_.size() ? by_rank_[rank] : nullptr; }
  static void ring_bell(const Peer& peer);
  bool deliver_completions(Receiver& receiver);
  bool deliver_messages(Peer* peer, Receiver& receiver);
  bool unblock(Peer* peer);
  void lose(Peer* peer, Loss loss, const std::string& why, Receiver& receiver);
  void drop(Peer* peer);
  void look_if_due();
  void look_at_descriptors();
  void look_at_connection(Peer* peer);
  void stop_watching(Peer* peer);
  void stay_awake();
  bool asleep_is_safe(Peer* peer);

  const ShmOptions options_;
  const pid_t owner_pid_;
  const std::string address_;
  UniqueFd epoll_;
  UniqueFd bell_;
  UniqueFd listener_;
  SealedMemory board_;
  SharedBuffers memory_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> by_rank_;
  size_t completions_pending_ = 0;
  uint64_t polls_ = 0;
  uint64_t posts_seen_ = 0;  // before a look at boards that followed
  bool armed_ = false;
  bool heeds_posts_ = true;   // in sleeps that begin now, or have begun
  int polls_until_look_ = 0;  // at descriptors, if that is due
  int64_t next_look_ns_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SHM_SHM_TRANSPORT_H_
