// SPDX-License-Identifier: Apache-2.0
// Attacher: see the header for the handshake, and for what blocks.
#include "transport/shm/attach.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace parallax {

namespace {

constexpr uint32_t kOfferMagic = 0x52464f50;   // "POFR"
constexpr uint32_t kAnswerMagic = 0x534e4150;  // "PANS"
constexpr int kWaitMillisecondsMax = 20;       // then the clock and the connects are looked at
constexpr size_t kCallersToSpare = 64;         // callers beyond one per peer; the oldest goes

// Same-machine structs, sent as they lie in memory.
struct Offer {
  uint32_t magic;
  uint32_t from;
  uint32_t to;
  uint32_t reserved;
  uint64_t job;
  uint64_t ring_bytes;
};

enum class Verdict : uint32_t { kTaken = 0, kOtherJob = 1, kNotExpected = 2, kBadMemory = 3 };

struct Answer {
  uint32_t magic;
  uint32_t verdict;
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

std::string name_of(const Endpoint& peer) {
  return "rank " + std::to_string(peer.rank) + " (host " + peer.host + ")";
}

const char* verdict_text(uint32_t verdict) {
  switch (static_cast<Verdict>(verdict)) {
    case Verdict::kOtherJob:
      return "it is of another job";
    case Verdict::kNotExpected:
      return "it does not expect this rank on its host";
    case Verdict::kBadMemory:
      return "it could not map our memory";
    default:
      return "its answer is garbled";
  }
}

bool hung_up(const UniqueFd& socket) {
  std::byte byte;
  return ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

}  // namespace

Status Attacher::run(std::span<const Endpoint> peers, int64_t deadline_ns,
                     std::vector<ShmLink>* links) {
  pairs_.resize(peers.size());
  for (size_t i = 0; i < peers.size(); ++i) {
    PARALLAX_CHECK(peers[i].rank != options_.rank);
    pairs_[i].peer = &peers[i];
    pairs_[i].link.rank = peers[i].rank;
  }
  while (!done()) {
    for (Pair& pair : pairs_) {
      if (pair.phase == Phase::kConnect) PARALLAX_RETURN_IF_ERROR(offer(&pair));
    }
    PARALLAX_RETURN_IF_ERROR(wait(deadline_ns));
    for (Pair& pair : pairs_) {
      if (pair.phase == Phase::kAnswer) PARALLAX_RETURN_IF_ERROR(read_answer(&pair));
    }
    PARALLAX_RETURN_IF_ERROR(accept_callers());
    for (size_t i = callers_.size(); i-- > 0;) {
      bool finished = false;
      PARALLAX_RETURN_IF_ERROR(hear(&callers_[i], &finished));
      if (finished) callers_.erase(callers_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  for (Pair& pair : pairs_) links->push_back(std::move(pair.link));
  return {};
}

bool Attacher::done() const {
  return std::all_of(pairs_.begin(), pairs_.end(),
                     [](const Pair& pair) { return pair.phase == Phase::kDone && pair.offered; });
}

Status Attacher::wait(int64_t deadline_ns) {
  const int64_t left_ns = deadline_ns - options_.clock->now_ns();
  if (left_ns <= 0) return late();
  std::vector<pollfd> polled;
  polled.push_back({options_.listener->get(), POLLIN, 0});
  int wait_ms = static_cast<int>(
      std::min<int64_t>(kWaitMillisecondsMax, left_ns / kNanosecondsPerMillisecond + 1));
  for (const Pair& pair : pairs_) {
    if (pair.phase == Phase::kAnswer) polled.push_back({pair.outgoing.get(), POLLIN, 0});
    if (pair.phase == Phase::kConnect) wait_ms = 1;  // its queue was full: try again soon
  }
  for (const Caller& caller : callers_) polled.push_back({caller.socket.get(), POLLIN, 0});
  ::poll(polled.data(), polled.size(), wait_ms);
  return {};
}

Status Attacher::offer(Pair* pair) {
  UniqueFd memory;
  switch (connect_abstract(pair->peer->shm_address, &pair->outgoing)) {
    case SocketNews::kOk:
      break;
    case SocketNews::kAgain:
      return {};
    case SocketNews::kNoDescriptors:
      return no_descriptors(pair);
    case SocketNews::kRefused:
      return lost(*pair,
                  "nobody listens at its shared-memory address: it has ended, or its host "
                  "name is ours but its machine or network namespace is not");
    case SocketNews::kOtherUser:
      return lost(*pair, "another user listens at its shared-memory address: it has ended");
    case SocketNews::kFailed:
      return lost(*pair, std::strerror(errno));
  }
  if (!pair->link.out.valid()) {
    Status made = SharedRegion::make(options_.ring_bytes, &pair->link.out, &memory);
    if (!made.ok()) {
      return {made.code(), made.message() + " (for " + name_of(*pair->peer) + ")"};
    }
  }
  const Offer message{.magic = kOfferMagic,
                      .from = options_.rank,
                      .to = pair->peer->rank,
                      .reserved = 0,
                      .job = options_.job,
                      .ring_bytes = options_.ring_bytes};
  const std::array<int, kFdsInPacketMax> fds{memory.get(), options_.bell->get(), options_.board};
  const SocketNews sent =
      send_packet(pair->outgoing, bytes_of(message), std::span(fds).first(offered_fds()));
  if (sent == SocketNews::kNoDescriptors) return no_descriptors(pair);
  if (sent != SocketNews::kOk) return lost(*pair, "it hung up while shared memory was attached");
  pair->phase = Phase::kAnswer;
  return {};
}

Status Attacher::read_answer(Pair* pair) {
  Answer answer{};
  size_t bytes = 0;
  size_t fd_count = 0;
  std::array<UniqueFd, kFdsInPacketMax> fds;
  const SocketNews news = receive_packet(
      pair->outgoing, std::as_writable_bytes(std::span(&answer, 1)), &bytes, fds, &fd_count);
  if (news == SocketNews::kAgain) return {};
  if (news != SocketNews::kOk || bytes == 0) {
    return lost(*pair, "it ended while shared memory was attached");
  }
  if (bytes != sizeof answer || answer.magic != kAnswerMagic || answer.verdict != 0) {
    const uint32_t verdict = answer.magic == kAnswerMagic ? answer.verdict : UINT32_MAX;
    return io_error(name_of(*pair->peer) + " refused shared memory: " + verdict_text(verdict));
  }
  if (options_.rank < pair->peer->rank) pair->link.connection = std::move(pair->outgoing);
  pair->outgoing.reset();
  pair->phase = Phase::kDone;
  return {};
}

Status Attacher::accept_callers() {
  for (;;) {
    Caller caller;
    const SocketNews news = accept_same_user(*options_.listener, &caller.socket, &caller.pid);
    if (news == SocketNews::kNoDescriptors) return no_descriptors(nullptr);
    if (news != SocketNews::kOk) return {};
    if (callers_.size() >= pairs_.size() + kCallersToSpare) callers_.erase(callers_.begin());
    callers_.push_back(std::move(caller));
  }
}

Status Attacher::hear(Caller* caller, bool* finished) {
  Offer message{};
  size_t bytes = 0;
  size_t fd_count = 0;
  std::array<UniqueFd, kFdsInPacketMax> fds;
  const SocketNews news = receive_packet(
      caller->socket, std::as_writable_bytes(std::span(&message, 1)), &bytes, fds, &fd_count);
  if (news == SocketNews::kAgain) return {};
  *finished = true;
  if (news == SocketNews::kNoDescriptors) return no_descriptors(nullptr);
  // A stranger that says nothing sensible is let go, not believed.
  if (news != SocketNews::kOk || bytes != sizeof message || message.magic != kOfferMagic ||
      fd_count != offered_fds()) {
    return {};
  }
  const auto pair = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& candidate) {
    return candidate.peer->rank == message.from && !candidate.offered;
  });
  Verdict verdict = Verdict::kTaken;
  if (message.job != options_.job) {
    verdict = Verdict::kOtherJob;
  } else if (message.to != options_.rank || pair == pairs_.end()) {
    verdict = Verdict::kNotExpected;
  } else if (!std::has_single_bit(message.ring_bytes) || message.ring_bytes < kRingBytesMin ||
             message.ring_bytes > kRingBytesMax) {
    verdict = Verdict::kBadMemory;
  }
  if (verdict == Verdict::kTaken) {
    return take_offer(&*pair, caller, message.ring_bytes, fds);
  }
  const Answer answer{.magic = kAnswerMagic, .verdict = static_cast<uint32_t>(verdict)};
  (void)send_packet(caller->socket, bytes_of(answer), {});
  return {};
}

Status Attacher::take_offer(Pair* pair, Caller* caller, size_t ring_bytes,
                            std::span<UniqueFd> fds) {
  Status mapped = SharedRegion::attach(fds[0], ring_bytes, &pair->link.in);
  if (mapped.ok() && options_.board >= 0) {
    mapped = BoardMapping::attach(fds[2], &pair->link.board);
  }
  Answer answer{.magic = kAnswerMagic, .verdict = 0};
  if (!mapped.ok()) {
    answer.verdict = static_cast<uint32_t>(Verdict::kBadMemory);
    (void)send_packet(caller->socket, bytes_of(answer), {});
    return {mapped.code(), name_of(*pair->peer) + ": " + mapped.message()};
  }
  pair->link.bell = std::move(fds[1]);
  pair->link.pid = caller->pid;
  PARALLAX_RETURN_IF_ERROR(watch(pair, *caller));
  if (send_packet(caller->socket, bytes_of(answer), {}) != SocketNews::kOk) {
    return lost(*pair, "it ended while shared memory was attached");
  }
  if (options_.rank > pair->peer->rank) pair->link.connection = std::move(caller->socket);
  pair->offered = true;
  return {};
}

// The peer's death: by pidfd, which a forked child of it cannot hide; else by its connection.
Status Attacher::watch(Pair* pair, const Caller& caller) {
  if (caller.pid == ::getpid()) return {};  // a thread of ours: `closed` says all
  if (options_.use_pidfd && caller.pid > 0) {
    pair->link.watch.reset(static_cast<int>(::syscall(SYS_pidfd_open, caller.pid, 0)));
    if (!pair->link.watch.valid() && (errno == EMFILE || errno == ENFILE)) {
      return no_descriptors(pair);
    }
    // The number may have passed to another process before it was opened.
    if (hung_up(caller.socket)) return lost(*pair, "it ended while shared memory was attached");
  }
  pair->link.ends_with_it = !pair->link.watch.valid();
  return {};
}

Status Attacher::lost(const Pair& pair, const char* why) const {
  return peer_lost(name_of(*pair.peer) + ": " + why);
}

Status Attacher::no_descriptors(const Pair* pair) const {
  rlimit allowed{};
  ::getrlimit(RLIMIT_NOFILE, &allowed);
  std::string message = "rank " + std::to_string(options_.rank) +
                        " ran out of file descriptors while attaching shared memory";
  if (pair != nullptr) message += " to " + name_of(*pair->peer);
  return limit(message + " (limit " + std::to_string(allowed.rlim_cur) +
               "; about 4 per rank of the host are needed while they meet, 3 afterwards): raise "
               "ulimit -n");
}

Status Attacher::late() const {
  std::string names;
  for (const Pair& pair : pairs_) {
    if (pair.phase == Phase::kDone && pair.offered) continue;
    names += (names.empty() ? "" : ", ") + name_of(*pair.peer);
  }
  return timed_out("shared memory was not attached by the deadline: " + names +
                   " did not answer; stopped, or still busy elsewhere");
}

}  // namespace parallax
