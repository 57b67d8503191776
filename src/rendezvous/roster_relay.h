// SPDX-License-Identifier: Apache-2.0
// RosterRelay: a member's place in the tree of ranks down which the blobs of a tcp rendezvous
// spread: its connection to its parent, the port at which its children connect, and what it passes
// on to them, of one round at a time: when the next one is complete, every rank has all of this.
// The owner checks what comes, and has nothing passed on that it has not checked.
// Parent and child prove to each other who they are as rank 0 and a member do.
//
// Nobody is lost because of these connections: rank 0 alone judges, by its own to each rank. Where
// one cannot be made or breaks, the child gets its blobs from rank 0. Never blocks. One thread, or
// under its owner's lock.
#ifndef PARALLAX_RENDEZVOUS_ROSTER_RELAY_H_
#define PARALLAX_RENDEZVOUS_ROSTER_RELAY_H_

#include <poll.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/client_link.h"
#include "rendezvous/tcp_acceptor.h"

namespace parallax {

class RosterRelay {
 public:
  // The body of a kBlobs; false: it is not what comes next, or not true.
  using TakeBlobs = std::function<bool(std::string_view body)>;

  // Both outlive it.
  RosterRelay(const RendezvousOptions& options, const TcpEntry& entry);

  bool has_children() const { return !children_.empty(); }
  // Listens for its children at this address; at which port, 0 where that fails.
  uint16_t listen(const SocketAddress& address);
  // Of kParent, from rank 0, whom this rank reached at `rank_0`. False: rank 0 sends no such thing.
  bool on_parent(std::string_view body, const SocketAddress& rank_0);
  // Whether blobs may come from the parent.
  bool has_parent() const { return parent_.has_value(); }
  void drop_parent() { parent_.reset(); }
  // As drop_parent, and says who it was in the log: it sent what is not true.
  void distrust_parent();
  // "rank 8 at 10.0.0.2:4711"
  const std::string& parent_name() const { return parent_name_; }

  // The blobs of a round for the children: the bodies of kBlobs.
  void pass_on(std::vector<std::string> bodies);
  // One pass: hears the parent, accepts children, sends what is due to them.
  void advance(int64_t now_ns, const TakeBlobs& take);
  // Whether the children that are here were sent all there is for them.
  bool flushed() const;
  // What to wait for; returns until when.
  int64_t waits(int64_t now_ns, std::vector<pollfd>* fds) const;
  void close();

 private:
  void hear(int64_t now_ns, const TakeBlobs& take);
  bool take_frames(const TakeBlobs& take);
  Status admit(const Introduction& peer) const;
  void receive(ServerLink& link);
  void send(ServerLink& link);

  const RendezvousOptions& options_;
  const TcpEntry& entry_;
  const std::vector<uint32_t> children_;
  bool parent_told_ = false;
  std::string parent_name_;
  std::optional<ClientLink> parent_;
  std::optional<TcpAcceptor> acceptor_;
  std::vector<std::string> bodies_;          // of one round
  std::map<uint32_t, size_t> passed_count_;  // of bodies_, by child
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_ROSTER_RELAY_H_
