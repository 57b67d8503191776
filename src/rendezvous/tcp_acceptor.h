// SPDX-License-Identifier: Apache-2.0
// TcpAcceptor: a rank's port of the tcp rendezvous: it accepts connections and bounds what
// strangers may cost: kStrangersMax descriptors, each with kHandshakeBodyBytesMax bytes, for
// kIntroductionNs at most. When more connect, of those that have said who they are and those that
// have not the more numerous lose their oldest; a rank that is dropped so tries again. Where fewer
// than kDescriptorsSpare descriptors are left, only kStrangersScarce strangers are kept.
//
// What members send is the owner's. Never blocks. One thread, or under its owner's lock.
#ifndef PARALLAX_RENDEZVOUS_TCP_ACCEPTOR_H_
#define PARALLAX_RENDEZVOUS_TCP_ACCEPTOR_H_

#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "base/tcp_socket.h"
#include "base/unique_fd.h"
#include "rendezvous/server_link.h"
#include "rendezvous/tcp_entry.h"

namespace parallax {

inline constexpr size_t kStrangersMax = 256;
inline constexpr size_t kStrangersScarce = 8;
inline constexpr int64_t kDescriptorsSpare = 64;
inline constexpr int kAcceptsPerPass = 64;

class TcpAcceptor {
 public:
  // `options` and `entry` outlive it. `where` is the address it listens at, for messages.
  TcpAcceptor(const RendezvousOptions& options, const TcpEntry& entry, std::string where,
              UniqueFd listener);

  // Accepts at most one connection, which is then the last of links(). kNoDescriptor: not even by
  // dropping a stranger; it then accepts none for a moment.
  Accepted accept(int64_t now_ns);
  // Reads what has arrived, and turns away who is no rank. False: the connection is at its end.
  bool receive(ServerLink& link, const ServerLink::Admit& admit);
  // Turns away strangers that have not said in time who they are.
  void expire(int64_t now_ns);
  // Forgets the connections that are closed.
  void sweep();
  void stop_listening() { listener_.reset(); }
  // As if there had never been any.
  void drop_all();

  std::vector<std::unique_ptr<ServerLink>>& links() { return links_; }
  const std::vector<std::unique_ptr<ServerLink>>& links() const { return links_; }
  bool has_members() const;
  // What to wait for; returns until when.
  int64_t waits(int64_t now_ns, std::vector<pollfd>* fds) const;
  // "; 2 connections were turned away, the last from ...", or "".
  std::string turned_away() const;

 private:
  void make_room_for(const UniqueFd& socket);
  bool make_room();
  void turn_away(ServerLink& link, const std::string& why);

  const RendezvousOptions& options_;
  const TcpEntry& entry_;
  const std::string where_;
  const int64_t descriptors_max_;
  UniqueFd listener_;
  std::vector<std::unique_ptr<ServerLink>> links_;
  int64_t accept_again_ns_ = 0;  // descriptors had run out
  uint64_t turned_away_count_ = 0;
  std::string turned_away_last_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_TCP_ACCEPTOR_H_
