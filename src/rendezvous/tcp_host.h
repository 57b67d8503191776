// SPDX-License-Identifier: Apache-2.0
// TcpHost: rank 0's side of a tcp rendezvous: it listens, hosts the exchange for all ranks, and
// takes part in it itself. READ roster.h (what it knows) and handshake.h (whom it believes) with
// it.
//
// A thread of its own serves the sockets from create() until the last rank has hung up. The
// listener is closed at finish_bootstrap(); the ranks are served until they have hung up, or a
// lease has passed, since blobs that they still wait for may be in this rank's buffers. State is
// shared with the caller under mutex_; nobody blocks while holding it: sockets are non-blocking.
// One thread calls.
//
// What strangers may cost: kStrangersMax descriptors, each with kHandshakeBodyBytesMax bytes, for
// kIntroductionNs at most. When more connect, the oldest is dropped, first of those that have sent
// nothing; a rank that is dropped so tries again. Where fewer than kDescriptorsSpare descriptors
// are left, only kStrangersScarce strangers are kept.
#ifndef PARALLAX_RENDEZVOUS_TCP_HOST_H_
#define PARALLAX_RENDEZVOUS_TCP_HOST_H_

#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "rendezvous/handshake.h"
#include "rendezvous/roster.h"
#include "rendezvous/tcp_address.h"

namespace parallax {

// The clock is injected, but a condition variable waits by real time: so the clock is read this
// often.
inline constexpr std::chrono::milliseconds kLookAtClock{5};
// How long ranks that were told the verdict have to hang up by themselves.
inline constexpr int64_t kGoodbyeNs = 500 * kNanosecondsPerMillisecond;
inline constexpr size_t kStrangersMax = 256;
inline constexpr size_t kStrangersScarce = 8;
inline constexpr int64_t kDescriptorsSpare = 64;
inline constexpr int64_t kIntroductionNs = 5000 * kNanosecondsPerMillisecond;

// The label under which a job's key is derived from the secret.
inline constexpr std::string_view kJobKey = "parallax rendezvous 1: key of a job";

// What either side needs to enter a tcp rendezvous.
struct TcpEntry {
  std::string where;  // "127.0.0.1:29500", for messages
  std::string job;
  bool secret = false;
  Key key;
};

Introduction introduce(const RendezvousOptions& options, const TcpEntry& entry);

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
  enum class Stage { kStranger, kMember, kClosing, kClosed };
  struct Connection {
    UniqueFd socket;
    std::string from;
    int64_t deadline_ns = 0;  // of a stranger, or one that is closing
    ServerHandshake handshake;
    Stage stage = Stage::kStranger;
    std::optional<Channel> channel;  // a member's
    uint32_t rank = 0;
    std::string in;
    std::string out;
    uint64_t round = 0;  // the round whose blobs it is sent next,
    uint32_t next = 0;   // from this rank's blob on
    bool told = false;   // it was sent the verdict
    bool shut = false;
  };

  TcpHost(const RendezvousOptions& options, TcpEntry entry, UniqueFd listener);

  std::string missing_locked(uint64_t round) const PARALLAX_REQUIRES(mutex_);
  void wake() const;

  // The thread's.
  void serve();
  void sleep(std::vector<pollfd>* fds, int64_t due_ns) const;
  int64_t prepare(std::vector<pollfd>* fds) PARALLAX_REQUIRES(mutex_);
  bool look() PARALLAX_REQUIRES(mutex_);
  void accept_all() PARALLAX_REQUIRES(mutex_);
  void make_room_for(const UniqueFd& socket) PARALLAX_REQUIRES(mutex_);
  bool make_room() PARALLAX_REQUIRES(mutex_);
  void receive(Connection& connection) PARALLAX_REQUIRES(mutex_);
  void on_handshake(Connection& connection, bool open) PARALLAX_REQUIRES(mutex_);
  void on_frames(Connection& connection) PARALLAX_REQUIRES(mutex_);
  bool on_frame(Connection& connection, const Frame& frame) PARALLAX_REQUIRES(mutex_);
  bool on_ask(Connection& connection, std::string_view body) PARALLAX_REQUIRES(mutex_);
  void fill(Connection& connection) PARALLAX_REQUIRES(mutex_);
  void fill_blobs(Connection& connection) PARALLAX_REQUIRES(mutex_);
  void send(Connection& connection) PARALLAX_REQUIRES(mutex_);
  void lose(Connection& connection) PARALLAX_REQUIRES(mutex_);
  void turn_away(Connection& connection, const std::string& why) PARALLAX_REQUIRES(mutex_);
  bool over() const PARALLAX_REQUIRES(mutex_);

  const RendezvousOptions options_;
  const TcpEntry entry_;
  const int64_t descriptors_max_;
  UniqueFd bell_;     // wakes the thread
  EndedRanks ended_;  // used by the thread alone

  mutable Mutex mutex_;
  CondVar changed_;
  UniqueFd listener_ PARALLAX_GUARDED_BY(mutex_);
  Roster roster_ PARALLAX_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Connection>> connections_ PARALLAX_GUARDED_BY(mutex_);
  int64_t looked_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  int64_t keepalive_due_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;
  int64_t accept_again_ns_ PARALLAX_GUARDED_BY(mutex_) = 0;  // descriptors had run out
  uint64_t turned_away_count_ PARALLAX_GUARDED_BY(mutex_) = 0;
  std::string turned_away_last_ PARALLAX_GUARDED_BY(mutex_);
  int64_t stop_ns_ PARALLAX_GUARDED_BY(mutex_) = kNever;  // the thread ends then at the latest
  uint64_t round_ PARALLAX_GUARDED_BY(mutex_) = 0;        // the caller's next one
  bool bootstrapped_ PARALLAX_GUARDED_BY(mutex_) = false;
  bool left_ PARALLAX_GUARDED_BY(mutex_) = false;

  std::thread server_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_TCP_HOST_H_
