// SPDX-License-Identifier: Apache-2.0
// TcpMember: the side of every rank but 0 in a tcp rendezvous. A thread of its own, from create()
// to finish_bootstrap(), finds rank 0 (trying again while nobody listens there), proves itself, and
// then keeps the keepalives going both ways. State is shared with the caller under mutex_; nobody
// blocks while holding it. One thread calls.
//
// A host's name is looked up by the thread, and finish_bootstrap() and the destructor wait for the
// thread: they may wait as long as the system's resolver takes. Numeric addresses are never looked
// up.
#ifndef PARALLAX_RENDEZVOUS_TCP_MEMBER_H_
#define PARALLAX_RENDEZVOUS_TCP_MEMBER_H_

#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "rendezvous/ended_ranks.h"
#include "rendezvous/handshake.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/tcp_address.h"
#include "rendezvous/tcp_host.h"

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
  enum class Phase { kSeeking, kConnecting, kTalking, kJoined, kOver };

  TcpMember(const RendezvousOptions& options, TcpEntry entry, TcpAddress tcp_address);

  void wake() const;
  void bring_locked() PARALLAX_REQUIRES(mutex_);
  void ask_locked() PARALLAX_REQUIRES(mutex_);
  bool wait_locked(int64_t deadline_ns) PARALLAX_REQUIRES(mutex_);
  bool met_locked() const PARALLAX_REQUIRES(mutex_);
  bool over_locked() const PARALLAX_REQUIRES(mutex_);
  std::string missing_locked() const PARALLAX_REQUIRES(mutex_);
  void say_locked(FrameKind kind, std::string_view body) PARALLAX_REQUIRES(mutex_);

  // The thread's.
  void run();
  Status find() PARALLAX_EXCLUDES(mutex_);
  void sleep(int fd, bool sends, int64_t due_ns) const;
  int64_t due_ns() const PARALLAX_REQUIRES(mutex_);
  bool look() PARALLAX_REQUIRES(mutex_);
  void seek(int64_t now_ns) PARALLAX_REQUIRES(mutex_);
  void on_connected(int64_t now_ns) PARALLAX_REQUIRES(mutex_);
  void talk(int64_t now_ns) PARALLAX_REQUIRES(mutex_);
  void keep(int64_t now_ns) PARALLAX_REQUIRES(mutex_);
  bool on_frame(const Frame& frame) PARALLAX_REQUIRES(mutex_);
  bool on_blobs(std::string_view body) PARALLAX_REQUIRES(mutex_);
  void mind_rank_0() PARALLAX_REQUIRES(mutex_);
  void again(const std::string& why) PARALLAX_REQUIRES(mutex_);
  void end(Status why) PARALLAX_REQUIRES(mutex_);

  const RendezvousOptions options_;
  const TcpEntry entry_;
  const TcpAddress tcp_address_;
  UniqueFd bell_;     // wakes the thread
  EndedRanks ended_;  // used by the thread alone

  Mutex mutex_;
  CondVar changed_;
  std::vector<SocketAddress> addresses_ PARALLAX_GUARDED_BY(mutex_);
  size_t address_ PARALLAX_GUARDED_BY(mutex_) = 0;  // the next to try
  Phase phase_ PARALLAX_GUARDED_BY(mutex_) = Phase::kSeeking;
  UniqueFd socket_ PARALLAX_GUARDED_BY(mutex_);
  std::optional<ClientHandshake> handshake_ PARALLAX_GUARDED_BY(mutex_);
  std::optional<Channel> channel_ PARALLAX_GUARDED_BY(mutex_);
  std::string in_ PARALLAX_GUARDED_BY(mutex_);
  std::string out_ PARALLAX_GUARDED_BY(mutex_);
  // Seeking: when to try next; later: when to give this try up.
  int64_t try_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  int64_t pause_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;  // between tries
  std::string last_try_ PARALLAX_GUARDED_BY(mutex_);  // what it came to
  int64_t looked_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  int64_t heard_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  int64_t keepalive_due_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  Status verdict_ PARALLAX_GUARDED_BY(mutex_);      // why the rendezvous is over
  uint64_t round_ PARALLAX_GUARDED_BY(mutex_) = 0;  // the caller's, and what has come of it
  std::string mine_ PARALLAX_GUARDED_BY(mutex_);
  bool brought_ PARALLAX_GUARDED_BY(mutex_) = true;  // mine_ is on its way
  std::vector<std::string> blobs_ PARALLAX_GUARDED_BY(mutex_);
  uint64_t asked_count_ PARALLAX_GUARDED_BY(mutex_) = 0;
  uint64_t answered_count_ PARALLAX_GUARDED_BY(mutex_) = 0;
  std::string missing_ PARALLAX_GUARDED_BY(mutex_);  // as rank 0 answered
  bool bootstrapped_ PARALLAX_GUARDED_BY(mutex_) = false;
  bool left_ PARALLAX_GUARDED_BY(mutex_) = false;
  bool stopping_ PARALLAX_GUARDED_BY(mutex_) = false;
  int64_t stop_ns_ PARALLAX_GUARDED_BY(mutex_) = kNever;

  std::thread runner_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_TCP_MEMBER_H_
