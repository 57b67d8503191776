// SPDX-License-Identifier: Apache-2.0
// Attacher: the handshake, during the rendezvous, by which the ranks of one host come to share
// memory. Every rank makes, for each peer, the ring of its messages to that peer, and hands it over
// with its bell (an eventfd) and its board on a connection to the peer's abstract socket; the peer
// maps both memories and answers. A pair is attached when both directions are. That both can map
// one memory is the proof that they are on one host. Of a pair's two connections the lower rank's
// stays.
//
// run() is the only place of the transport that blocks, up to its deadline. One thread. A peer that
// dies meanwhile hangs up its end of our connection: PEER_LOST. One that is stopped never answers:
// TIMEOUT. Both name the rank.
#ifndef PARALLAX_TRANSPORT_SHM_ATTACH_H_
#define PARALLAX_TRANSPORT_SHM_ATTACH_H_

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/endpoint.h"
#include "transport/shm/board_mapping.h"
#include "transport/shm/region.h"
#include "transport/shm/socket.h"

namespace parallax {

// What is left of the handshake with one peer.
struct ShmLink {
  uint32_t rank = 0;
  pid_t pid = 0;        // 0: not visible from this pid namespace
  SharedRegion out;     // ours: our messages to it
  SharedRegion in;      // the peer's: its messages to us
  BoardMapping board;   // the peer's
  UniqueFd bell;        // the peer's: written to wake it
  UniqueFd watch;       // the peer's pidfd, readable when its process has ended; invalid: none
  UniqueFd connection;  // one of each pair, for as long as both live
  bool ends_with_it = false;  // its process, which has no pidfd, with the connection
};

struct AttachOptions {
  uint32_t rank = 0;
  uint64_t job = 0;
  size_t ring_bytes = 0;
  bool use_pidfd = true;
  const Clock* clock = nullptr;
  const UniqueFd* listener = nullptr;
  const UniqueFd* bell = nullptr;
  int board = -1;  // descriptor; -1: no rank has one
};

class Attacher {
 public:
  explicit Attacher(const AttachOptions& options) : options_(options) {}

  // `peers` holds neither this rank nor a rank twice. On an error `links` is untouched.
  Status run(std::span<const Endpoint> peers, int64_t deadline_ns, std::vector<ShmLink>* links);

 private:
  enum class Phase { kConnect, kAnswer, kDone };

  struct Pair {
    const Endpoint* peer = nullptr;
    Phase phase = Phase::kConnect;  // of our offer to the peer
    bool offered = false;           // the peer's offer to us is taken and answered
    UniqueFd outgoing;
    ShmLink link;
  };

  struct Caller {  // accepted, has not said who it is
    UniqueFd socket;
    pid_t pid = 0;
  };

  bool done() const;
  // Memory, bell, and the board where ranks have one.
  size_t offered_fds() const { return options_.board >= 0 ? kFdsInPacketMax : kFdsInPacketMax - 1; }
  Status wait(int64_t deadline_ns);
  Status offer(Pair* pair);
  Status read_answer(Pair* pair);
  Status accept_callers();
  Status hear(Caller* caller, bool* finished);
  Status take_offer(Pair* pair, Caller* caller, size_t ring_bytes, std::span<UniqueFd> fds);
  Status watch(Pair* pair, const Caller& caller);
  Status lost(const Pair& pair, const char* why) const;
  Status no_descriptors(const Pair* pair) const;
  Status late() const;

  const AttachOptions options_;
  std::vector<Pair> pairs_;
  std::vector<Caller> callers_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SHM_ATTACH_H_
