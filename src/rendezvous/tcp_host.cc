// SPDX-License-Identifier: Apache-2.0
// Rank 0's side: first the caller's part, then the thread's. See the header.
#include "rendezvous/tcp_host.h"

#include <algorithm>

#include "base/check.h"
#include "base/codec.h"
#include "base/rank_list.h"
#include "base/threads.h"
#include "transport/endpoint.h"

namespace parallax {

namespace {
using Stage = ServerLink::Stage;
}  // namespace

TcpHost::TcpHost(const RendezvousOptions& options, TcpEntry entry, UniqueFd listener)
    : options_(options),
      entry_(std::move(entry)),
      ended_(options),
      acceptor_(options_, entry_, entry_.where, std::move(listener)),
      roster_(options, entry_.where),
      looked_ns_(options.clock->now_ns()),
      keepalive_due_ns_(looked_ns_) {
  for (uint32_t rank = 0; rank < options.world; ++rank) feeds_.emplace_back(rank);
}

Status TcpHost::create(const RendezvousOptions& options, TcpEntry entry, UniqueFd listener,
                       std::unique_ptr<Rendezvous>* rendezvous) {
  std::unique_ptr<TcpHost> made(new TcpHost(options, std::move(entry), std::move(listener)));
  PARALLAX_RETURN_IF_ERROR(made->poll_.made());
  PARALLAX_RETURN_IF_ERROR(start_thread(&made->server_, [raw = made.get()] { raw->serve(); }));
  *rendezvous = std::move(made);
  return {};
}

TcpHost::~TcpHost() {
  if (!bootstrapped_) leave({});
  if (!server_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stop_ns_ = std::min(stop_ns_, options_.clock->now_ns() + kGoodbyeNs);
  }
  poll_.wake();
  server_.join();
}

Status TcpHost::allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                          std::vector<std::string>* all) {
  const MutexLock lock(mutex_);
  PARALLAX_CHECK(mine.size() <= kEndpointBytesMax && !bootstrapped_);
  const uint64_t round = round_++;
  PARALLAX_CHECK(
      roster_.bring(0, round, {reinterpret_cast<const char*>(mine.data()), mine.size()}));
  poll_.wake();
  int64_t speak_ns = options_.clock->now_ns() + kSilenceNs;
  while (!roster_.complete(round)) {
    if (!roster_.verdict().ok()) return roster_.verdict();
    const int64_t now_ns = options_.clock->now_ns();
    if (now_ns >= deadline_ns) return missed_deadline("at " + entry_.where, missing_locked(round));
    if (now_ns >= speak_ns) {
      speak_ns = now_ns + kSilenceNs;
      say_waiting("at " + entry_.where, missing_locked(round), deadline_ns - now_ns);
    }
    changed_.wait_for(mutex_, kLookAtClock);
  }
  all->clear();
  for (uint32_t rank = 0; rank < options_.world; ++rank) all->push_back(roster_.blob(round, rank));
  return {};
}

std::string TcpHost::missing_locked(uint64_t round) const {
  return roster_.missing(round) + acceptor_.turned_away();
}

void TcpHost::leave(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (left_ || bootstrapped_) return;
    left_ = true;
    roster_.left(0, why);
  }
  poll_.wake();
}

Status TcpHost::verdict() {
  const MutexLock lock(mutex_);
  return left_ ? Status() : roster_.verdict();
}

// The thread goes on serving ranks that have not hung up yet: see the header.
void TcpHost::finish_bootstrap() {
  {
    const MutexLock lock(mutex_);
    if (bootstrapped_) return;
    bootstrapped_ = true;
    stop_ns_ = options_.clock->now_ns() + options_.lease_ms * kNanosecondsPerMillisecond;
  }
  poll_.wake();
}

Status TcpHost::finish() {
  finish_bootstrap();
  return {};
}

// No exception leaves the thread: lack of memory, or a failed check, ends the rendezvous.
void TcpHost::serve() {
  try {
    std::vector<pollfd> fds;
    for (;;) {
      int64_t due_ns = 0;
      {
        const MutexLock lock(mutex_);
        due_ns = prepare(&fds);
      }
      poll_.sleep(&fds, *options_.clock, due_ns);
      ended_.look(options_.clock->now_ns());
      const MutexLock lock(mutex_);
      if (look()) continue;
      acceptor_.drop_all();
      return;
    }
  } catch (const std::exception& error) {
    const MutexLock lock(mutex_);
    acceptor_.drop_all();
    roster_.broken(internal(std::string("the thread of the rendezvous: ") + error.what()));
  }
}

// Fills in the descriptors to wait for; returns when to look even if none becomes ready.
int64_t TcpHost::prepare(std::vector<pollfd>* fds) {
  fds->clear();
  const int64_t due_ns =
      std::min({stop_ns_, keepalive_due_ns_, acceptor_.waits(options_.clock->now_ns(), fds)});
  return bootstrapped_ ? due_ns : std::min({due_ns, roster_.judge_due_ns(), ended_.due_ns()});
}

// One pass; false when the thread's work is done.
bool TcpHost::look() {
  const int64_t now_ns = options_.clock->now_ns();
  const int64_t lease_ns = options_.lease_ms * kNanosecondsPerMillisecond;
  // This rank was itself stopped or starved: no rank is to be lost for that.
  if (now_ns - looked_ns_ > lease_ns / 2) roster_.forgive(now_ns);
  looked_ns_ = now_ns;
  if (bootstrapped_) {
    acceptor_.stop_listening();
    for (const auto& link : acceptor_.links()) {
      if (link->stage() != Stage::kMember) link->close();
    }
    acceptor_.sweep();
  }
  for (const auto& link : acceptor_.links()) receive(*link);
  accept_all(now_ns);
  if (!bootstrapped_) {
    for (const EndedRank& each : ended_.all()) roster_.ended(each);
    roster_.judge(now_ns);
  }
  const bool keepalive_due = now_ns >= keepalive_due_ns_;
  if (keepalive_due) keepalive_due_ns_ = now_ns + lease_ns / kKeepalivesPerLease;
  acceptor_.expire(now_ns);
  for (const auto& link : acceptor_.links()) {
    const bool keepalive = keepalive_due && link->stage() == Stage::kMember;
    if (keepalive) link->stream().seal(FrameKind::kKeepalive, {});
    feed(*link);
  }
  acceptor_.sweep();
  changed_.notify_all();
  return !over();
}

bool TcpHost::over() const {
  if (options_.clock->now_ns() >= stop_ns_) return true;
  return stop_ns_ != kNever && !acceptor_.has_members();
}

void TcpHost::accept_all(int64_t now_ns) {
  for (int i = 0; i < kAcceptsPerPass; ++i) {
    const Accepted accepted = acceptor_.accept(now_ns);
    if (accepted == Accepted::kOne) {
      receive(*acceptor_.links().back());
      continue;
    }
    if (accepted == Accepted::kNoDescriptor && roster_.here_count() < options_.world) {
      roster_.broken(
          limit("rank 0 needs a file descriptor for every rank while they meet, and has "
                "none left with " +
                std::to_string(roster_.here_count()) + " of " + std::to_string(options_.world) +
                " here; raise ulimit -n"));
    }
    return;
  }
}

void TcpHost::receive(ServerLink& link) {
  const auto admit = [this](const Introduction& peer) PARALLAX_REQUIRES(mutex_) {
    return roster_.admit(peer.rank, peer.host, peer.lease_ms, options_.clock->now_ns());
  };
  const bool open = acceptor_.receive(link, admit);
  if (link.stage() == Stage::kMember) on_frames(link);
  if (open) return;
  if (link.stage() == Stage::kMember) lose(link);
  link.close();
}

void TcpHost::on_frames(ServerLink& link) {
  Took took = Took::kFrame;
  while (took == Took::kFrame) {
    Frame frame;
    took = link.stream().take(&frame);
    if (took != Took::kFrame) break;
    roster_.heard(link.rank(), options_.clock->now_ns());
    if (!on_frame(link, frame)) took = Took::kBroken;
  }
  link.stream().drop_taken();
  if (took == Took::kBroken) {
    lose(link);
    link.close();
  }
}

// False: no member sends such a frame.
bool TcpHost::on_frame(ServerLink& link, const Frame& frame) {
  std::string_view body = frame.body;
  Status why;
  FetchRequest request;
  switch (frame.kind) {
    case FrameKind::kKeepalive:
      return body.empty();
    case FrameKind::kListen: {
      ByteReader reader(body);
      uint16_t port = 0;
      return reader.number(&port) && reader.empty() &&
             roster_.listens(link.rank(), make_address(address_bytes(link.from()), port));
    }
    case FrameKind::kFetch:
      return decode(body, &request) && feeds_[link.rank()].fetch(roster_, request);
    case FrameKind::kBring: {
      ByteReader reader(body);
      uint64_t round = 0;
      return reader.number(&round) && body.size() - sizeof round <= kEndpointBytesMax &&
             roster_.bring(link.rank(), round, body.substr(sizeof round));
    }
    case FrameKind::kLeave:
      if (!take_status(&body, &why) || !body.empty()) return false;
      roster_.left(link.rank(), why);
      return true;
    case FrameKind::kAsk:
      return on_ask(link, body);
    case FrameKind::kBye:
      roster_.done(link.rank());
      return body.empty();
    default:
      return false;
  }
}

bool TcpHost::on_ask(ServerLink& link, std::string_view body) {
  ByteReader reader(body);
  uint64_t round = 0;
  if (!reader.number(&round) || !reader.empty()) return false;
  // It asks, but does not read answers.
  if (link.stream().out.size() > 2 * kFeedBytes) return false;
  std::string answer;
  put_status(&answer, roster_.verdict());
  put_text(&answer, roster_.missing(round), kSentenceBytesMax);
  link.stream().seal(FrameKind::kAnswer, answer);
  return true;
}

// A member hung up without kBye, or sent what no member sends.
void TcpHost::lose(ServerLink& link) {
  if (!bootstrapped_) roster_.hung_up(link.rank());
}

// Until there is nothing left, or the socket takes no more and says when it does.
void TcpHost::feed(ServerLink& link) {
  bool more = true;
  while (more) {
    if (link.stage() == Stage::kMember) fill(link);
    send(link);
    more = link.stage() == Stage::kMember && link.stream().out.empty() &&
           feeds_[link.rank()].lags(roster_);
  }
}

void TcpHost::fill(ServerLink& link) {
  FrameStream& stream = link.stream();
  RosterFeed& feed = feeds_[link.rank()];
  feed.put_parent(roster_, link.from(), &*stream.channel, &stream.out);
  feed.put_rounds(roster_, &*stream.channel, &stream.out);
  if (!bootstrapped_) feed.put_verdict(roster_, &*stream.channel, &stream.out);
}

void TcpHost::send(ServerLink& link) {
  if (link.send()) return;
  if (link.stage() == Stage::kMember) lose(link);
  link.close();
}

}  // namespace parallax
