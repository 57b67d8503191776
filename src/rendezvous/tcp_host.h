// SPDX-License-Identifier: Apache-2.0
// TcpHost: rank 0's side of a tcp rendezvous: it listens, hosts the exchange for all ranks, and
// takes part in it itself. READ roster.h (what it knows), tcp_acceptor.h (whom it listens to),
// handshake.h (whom it believes) and roster_feed.h (what it sends to whom) with it.
//
// A thread of its own serves the sockets from create() until the last rank has hung up. The
// listener is closed at finish_bootstrap(); the ranks are served until they have hung up, or a
// lease has passed, since blobs that they still wait for may be in this rank's buffers. State is
// shared with the caller under mutex_; nobody blocks while holding it: sockets are non-blocking.
// One thread calls.
#ifndef PARALLAX_RENDEZVOUS_TCP_HOST_H_
#define PARALLAX_RENDEZVOUS_TCP_HOST_H_

#include <memory>
#include <thread>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "rendezvous/roster.h"
#include "rendezvous/roster_feed.h"
#include "rendezvous/tcp_acceptor.h"
#include "rendezvous/tcp_entry.h"
#include "rendezvous/wake_poll.h"

namespace parallax {

class TcpHost final : public Rendezvous {
 public:
  // LIMIT when the system gives no thread or descriptor.
  static Status create(const RendezvousOptions& options, TcpEntry entry, UniqueFd listener,
                       std::unique_ptr<Rendezvous>* rendezvous);
  ~TcpHost() override;

  std::string_view name() const override { return "tcp"; }
  Status allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                   std::vector<std::string>* all) override;
  void leave(const Status& why) override;
  Status verdict() override;
  void finish_bootstrap() override;
  Status finish() override;

 private:
  TcpHost(const RendezvousOptions& options, TcpEntry entry, UniqueFd listener);

  std::string missing_locked(uint64_t round) const PARALLAX_REQUIRES(mutex_);

  // The thread's: one pass reads what has arrived, finds out who is silent, and sends what is due.
  void serve();
  int64_t prepare(std::vector<pollfd>* fds) PARALLAX_REQUIRES(mutex_);
  bool look() PARALLAX_REQUIRES(mutex_);
  void accept_all(int64_t now_ns) PARALLAX_REQUIRES(mutex_);
  void receive(ServerLink& link) PARALLAX_REQUIRES(mutex_);
  void on_frames(ServerLink& link) PARALLAX_REQUIRES(mutex_);
  bool on_frame(ServerLink& link, const Frame& frame) PARALLAX_REQUIRES(mutex_);
  bool on_ask(ServerLink& link, std::string_view body) PARALLAX_REQUIRES(mutex_);
  void feed(ServerLink& link) PARALLAX_REQUIRES(mutex_);
  void fill(ServerLink& link) PARALLAX_REQUIRES(mutex_);
  void send(ServerLink& link) PARALLAX_REQUIRES(mutex_);
  void lose(ServerLink& link) PARALLAX_REQUIRES(mutex_);
  bool over() const PARALLAX_REQUIRES(mutex_);

  const RendezvousOptions options_;
  const TcpEntry entry_;
  WakePoll poll_;
  EndedRanks ended_;  // used by the thread alone

  mutable Mutex mutex_;
  CondVar changed_;
  TcpAcceptor acceptor_ PARALLAX_GUARDED_BY(mutex_);
  Roster roster_ PARALLAX_GUARDED_BY(mutex_);
  std::vector<RosterFeed> feeds_ PARALLAX_GUARDED_BY(mutex_);  // by rank
  int64_t looked_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  int64_t keepalive_due_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  int64_t stop_ns_ PARALLAX_GUARDED_BY(mutex_) = kNever;  // the thread ends then at the latest
  uint64_t round_ PARALLAX_GUARDED_BY(mutex_) = 0;        // the caller's next one
  bool bootstrapped_ PARALLAX_GUARDED_BY(mutex_) = false;
  bool left_ PARALLAX_GUARDED_BY(mutex_) = false;

  std::thread server_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_TCP_HOST_H_
