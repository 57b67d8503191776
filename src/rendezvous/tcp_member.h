// SPDX-License-Identifier: Apache-2.0
// TcpMember: the side of every rank but 0 in a tcp rendezvous. A thread of its own, from create()
// to finish_bootstrap(), finds rank 0 (trying again while nobody listens there), proves itself, and
// then keeps the keepalives going both ways. READ client_link.h (how it joins), member_round.h
// (what it exchanges) and roster_relay.h (how blobs come to it and go on from it) with it. State is
// shared with the caller under mutex_; nobody blocks while holding it. One thread calls.
//
// A host's name is looked up by the thread, and finish_bootstrap() and the destructor wait for the
// thread: they may wait as long as the system's resolver takes. Numeric addresses are never looked
// up.
#ifndef PARALLAX_RENDEZVOUS_TCP_MEMBER_H_
#define PARALLAX_RENDEZVOUS_TCP_MEMBER_H_

#include <memory>
#include <thread>

#include "base/mutex.h"
#include "rendezvous/client_link.h"
#include "rendezvous/ended_ranks.h"
#include "rendezvous/member_round.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/roster_relay.h"
#include "rendezvous/tcp_entry.h"
#include "rendezvous/wake_poll.h"

namespace parallax {

class TcpMember final : public Rendezvous {
 public:
  // INVALID: the address is numeric and not loopback, and there is no secret.
  static Status create(const RendezvousOptions& options, TcpEntry entry, TcpAddress tcp_address,
                       std::unique_ptr<Rendezvous>* rendezvous);
  ~TcpMember() override;

  std::string_view name() const override { return "tcp"; }
  Status allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                   std::vector<std::string>* all) override;
  void leave(const Status& why) override;
  Status verdict() override;
  void finish_bootstrap() override;
  Status finish() override;

 private:
  TcpMember(const RendezvousOptions& options, TcpEntry entry, TcpAddress tcp_address);

  void ask_locked() PARALLAX_REQUIRES(mutex_);
  bool wait_locked(int64_t deadline_ns) PARALLAX_REQUIRES(mutex_);
  bool over_locked() const PARALLAX_REQUIRES(mutex_);
  std::string missing_locked() const PARALLAX_REQUIRES(mutex_);
  void say_locked(FrameKind kind, std::string_view body) PARALLAX_REQUIRES(mutex_);

  // The thread's.
  void run();
  void look_up() PARALLAX_EXCLUDES(mutex_);
  Status find() PARALLAX_EXCLUDES(mutex_);
  int64_t prepare(std::vector<pollfd>* fds) PARALLAX_REQUIRES(mutex_);
  bool look() PARALLAX_REQUIRES(mutex_);
  void join(int64_t now_ns) PARALLAX_REQUIRES(mutex_);
  void offer_children_a_port() PARALLAX_REQUIRES(mutex_);
  void keep(int64_t now_ns) PARALLAX_REQUIRES(mutex_);
  bool on_frames(int64_t now_ns) PARALLAX_REQUIRES(mutex_);
  bool on_frame(const Frame& frame) PARALLAX_REQUIRES(mutex_);
  bool on_blobs(std::string_view body) PARALLAX_REQUIRES(mutex_);
  bool on_complete(std::string_view body) PARALLAX_REQUIRES(mutex_);
  bool check_blobs() PARALLAX_REQUIRES(mutex_);
  void relay(int64_t now_ns) PARALLAX_REQUIRES(mutex_);
  void mind_rank_0() PARALLAX_REQUIRES(mutex_);
  void end(Status why) PARALLAX_REQUIRES(mutex_);

  const RendezvousOptions options_;
  const TcpEntry entry_;
  const TcpAddress tcp_address_;
  WakePoll poll_;
  EndedRanks ended_;  // used by the thread alone

  Mutex mutex_;
  CondVar changed_;
  ClientLink link_ PARALLAX_GUARDED_BY(mutex_);    // to rank 0
  MemberRound round_ PARALLAX_GUARDED_BY(mutex_);  // the caller's, and what has come of it
  RosterRelay relay_ PARALLAX_GUARDED_BY(mutex_);
  int64_t complete_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;  // from when on blobs are waited for
  bool fetches_ PARALLAX_GUARDED_BY(mutex_) = false;     // them from rank 0
  int64_t looked_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  int64_t heard_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  int64_t keepalive_due_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  Status verdict_ PARALLAX_GUARDED_BY(mutex_);  // why the rendezvous is over
  bool bootstrapped_ PARALLAX_GUARDED_BY(mutex_) = false;
  bool left_ PARALLAX_GUARDED_BY(mutex_) = false;
  bool stopping_ PARALLAX_GUARDED_BY(mutex_) = false;
  int64_t stop_ns_ PARALLAX_GUARDED_BY(mutex_) = kNever;

  std::thread runner_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_TCP_MEMBER_H_
