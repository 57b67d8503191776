// SPDX-License-Identifier: Apache-2.0
// TcpHost, the thread's side: one pass reads what has arrived, finds out who is silent, and sends
// what is due. See tcp_host.h. All bytes of a connection are a stranger's until its handshake is
// done, and those of a rank, still to be checked, after it.
#include <algorithm>

#include "base/codec.h"
#include "base/log.h"
#include "rendezvous/tcp_host.h"
#include "rendezvous/tcp_socket.h"
#include "transport/endpoint.h"

namespace parallax {

namespace {

constexpr int kAcceptsPerPass = 64;
constexpr size_t kStrangerBytesPerPass = kHandshakeBodyBytesMax + kFrameHeadBytes;
constexpr size_t kMemberBytesPerPass = kSealedBodyBytesMax;
constexpr size_t kOutBytes = 64 * 1024;  // what is kept ready for one rank
constexpr size_t kBlobsBytesMax = 32 * 1024;
constexpr int64_t kAcceptPauseNs = 20 * kNanosecondsPerMillisecond;
constexpr uint64_t kLinesMax = 5;  // log lines about strangers, in one rendezvous
static_assert(kBlobsBytesMax + kEndpointBytesMax + 64 <= kSealedBodyBytesMax);

}  // namespace

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
      sleep(&fds, due_ns);
      ended_.look(options_.clock->now_ns());
      const MutexLock lock(mutex_);
      if (!look()) return;
    }
  } catch (const std::exception& error) {
    const MutexLock lock(mutex_);
    connections_.clear();
    listener_.reset();
    roster_.broken(internal(std::string("the thread of the rendezvous: ") + error.what()));
  }
}

// Fills in the descriptors to wait for; returns when to look even if none becomes ready.
int64_t TcpHost::prepare(std::vector<pollfd>* fds) {
  fds->assign(1, {bell_.get(), POLLIN, 0});
  int64_t due_ns = std::min(stop_ns_, keepalive_due_ns_);
  if (!bootstrapped_) due_ns = std::min({due_ns, roster_.judge_due_ns(), ended_.due_ns()});
  if (listener_.valid()) {
    const bool pausing = options_.clock->now_ns() < accept_again_ns_;
    if (pausing) due_ns = std::min(due_ns, accept_again_ns_);
    if (!pausing) fds->push_back({listener_.get(), POLLIN, 0});
  }
  for (const auto& connection : connections_) {
    const bool sends = !connection->out.empty();
    fds->push_back(
        {connection->socket.get(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0});
    if (connection->stage != Stage::kMember) due_ns = std::min(due_ns, connection->deadline_ns);
  }
  return due_ns;
}

void TcpHost::sleep(std::vector<pollfd>* fds, int64_t due_ns) const {
  const int64_t left_ns = std::max<int64_t>(0, due_ns - options_.clock->now_ns());
  const int64_t left_ms = std::min<int64_t>(left_ns / kNanosecondsPerMillisecond + 1, 1000);
  (void)::poll(fds->data(), fds->size(), left_ns == 0 ? 0 : static_cast<int>(left_ms));
  uint64_t rung = 0;
  (void)!::read(bell_.get(), &rung, sizeof rung);
}

// One pass; false when the thread's work is done.
bool TcpHost::look() {
  const int64_t now_ns = options_.clock->now_ns();
  const int64_t lease_ns = options_.lease_ms * kNanosecondsPerMillisecond;
  // This rank was itself stopped or starved: no rank is to be lost for that.
  // This rank was itself stopped or starved: no rank is to be lost for that.
  if (now_ns - looked_ns_ > lease_ns / 2) roster_.forgive(now_ns);
  looked_ns_ = now_ns;
  if (bootstrapped_) {
    listener_.reset();
    std::erase_if(connections_, [](const auto& each) { return each->stage != Stage::kMember; });
  }
  for (const auto& connection : connections_) receive(*connection);
  if (listener_.valid()) accept_all();
  if (!bootstrapped_) {
    for (const EndedRank& each : ended_.all()) roster_.ended(each);
    roster_.judge(now_ns);
  }
  const bool keepalive_due = now_ns >= keepalive_due_ns_;
  if (keepalive_due) keepalive_due_ns_ = now_ns + lease_ns / kKeepalivesPerLease;
  for (const auto& connection : connections_) {
    if (connection->stage == Stage::kMember) {
      if (keepalive_due) connection->channel->seal(FrameKind::kKeepalive, {}, &connection->out);
      fill(*connection);
    } else if (connection->stage == Stage::kStranger && now_ns >= connection->deadline_ns) {
      turn_away(*connection, "it did not say in time who it is");
    } else if (connection->stage == Stage::kClosing && now_ns >= connection->deadline_ns) {
      connection->stage = Stage::kClosed;
    }
    send(*connection);
  }
  std::erase_if(connections_, [](const auto& each) { return each->stage == Stage::kClosed; });
  changed_.notify_all();
  return !over();
}

bool TcpHost::over() const {
  if (options_.clock->now_ns() >= stop_ns_) return true;
  if (stop_ns_ == kNever) return false;
  return std::none_of(connections_.begin(), connections_.end(),
                      [](const auto& each) { return each->stage == Stage::kMember; });
}

void TcpHost::accept_all() {
  if (options_.clock->now_ns() < accept_again_ns_) return;
  for (int i = 0; i < kAcceptsPerPass; ++i) {
    UniqueFd socket;
    SocketAddress from;
    const Accepted accepted = tcp_accept(listener_, &socket, &from);
    if (accepted == Accepted::kNone) return;
    if (accepted != Accepted::kOne) {
      if (accepted == Accepted::kNoDescriptor && !make_room() &&
          roster_.here_count() < options_.world) {
        roster_.broken(
            limit("rank 0 needs a file descriptor for every rank while they meet, and has "
                  "none left with " +
                  std::to_string(roster_.here_count()) + " of " + std::to_string(options_.world) +
                  " here; raise ulimit -n"));
      }
      accept_again_ns_ = options_.clock->now_ns() + kAcceptPauseNs;
      return;
    }
    make_room_for(socket);
    connections_.push_back(std::make_unique<Connection>(
        Connection{.socket = std::move(socket),
                   .from = to_text(from),
                   .deadline_ns = options_.clock->now_ns() + kIntroductionNs,
                   .handshake = ServerHandshake(introduce(options_, entry_), entry_.key),
                   .channel = {},
                   .in = {},
                   .out = {}}));
    receive(*connections_.back());
  }
}

// The kernel gives the lowest free descriptor, so the number of a new socket tells how many are
// taken. Strangers do not get the last ones: ranks need some to attach each other's memory.
void TcpHost::make_room_for(const UniqueFd& socket) {
  const bool scarce = socket.get() + kDescriptorsSpare >= descriptors_max_;
  const auto stranger_count = [this]() PARALLAX_REQUIRES(mutex_) {
    return static_cast<size_t>(
        std::count_if(connections_.begin(), connections_.end(),
                      [](const auto& each) { return each->stage != Stage::kMember; }));
  };
  while (connections_.size() >= options_.world + kStrangersMax ||
         (scarce && stranger_count() > kStrangersScarce)) {
    if (!make_room()) return;
  }
}

// Drops the connections that are closed; else the oldest that is closing or has sent no HELLO; else
// the oldest stranger. False: all are members.
bool TcpHost::make_room() {
  if (std::erase_if(connections_, [](const auto& each) { return each->stage == Stage::kClosed; }) >
      0) {
    return true;
  }
  Connection* victim = nullptr;
  for (const auto& connection : connections_) {
    if (connection->stage == Stage::kClosing) {
      victim = connection.get();
      break;
    }
    if (connection->stage != Stage::kStranger) continue;
    if (victim == nullptr) victim = connection.get();
    if (connection->handshake.peer().nonce.empty()) {
      victim = connection.get();
      break;
    }
  }
  if (victim == nullptr) return false;
  if (victim->stage == Stage::kStranger) turn_away(*victim, "too many came at once");
  std::erase_if(connections_, [victim](const auto& each) { return each.get() == victim; });
  return true;
}

void TcpHost::receive(Connection& connection) {
  const bool member = connection.stage == Stage::kMember;
  const bool open = tcp_receive(
      connection.socket, member ? kMemberBytesPerPass : kStrangerBytesPerPass, &connection.in);
  if (connection.stage == Stage::kStranger) on_handshake(connection, open);
  if (connection.stage == Stage::kMember) on_frames(connection);
  if (connection.stage == Stage::kClosing) connection.in.clear();
  if (open) return;
  if (connection.stage == Stage::kMember) lose(connection);
  if (connection.stage == Stage::kStranger) turn_away(connection, "it hung up");
  connection.stage = Stage::kClosed;
}

// A peer whose proof arrives together with the end of its connection has given up waiting and will
// connect again. It must not become a member, or the end of this connection would count as its
// loss.
void TcpHost::on_handshake(Connection& connection, bool open) {
  ServerHandshake& handshake = connection.handshake;
  Handshake::Phase phase = handshake.advance(&connection.in, &connection.out);
  if (phase == Handshake::Phase::kProven && !open) return;
  if (phase == Handshake::Phase::kProven) {
    const Introduction& peer = handshake.peer();
    const Status admitted =
        roster_.admit(peer.rank, peer.host, peer.lease_ms, options_.clock->now_ns());
    phase = handshake.welcome(admitted, &connection.out);
  }
  if (phase == Handshake::Phase::kFailed) turn_away(connection, handshake.status().message());
  if (phase != Handshake::Phase::kDone) return;
  connection.stage = Stage::kMember;
  connection.channel = handshake.channel();
  connection.rank = handshake.peer().rank;
}

// What the peer is told is still sent; it then has until its deadline to hang up.
void TcpHost::turn_away(Connection& connection, const std::string& why) {
  turned_away_last_ = connection.from + ": " + why;
  if (++turned_away_count_ <= kLinesMax) {
    PARALLAX_LOG(kWarn, kInit,
                 "the rendezvous at " + entry_.where + " turned away " + turned_away_last_ +
                     (turned_away_count_ == kLinesMax ? " (others will not be shown)" : ""));
  }
  connection.stage = connection.out.empty() ? Stage::kClosed : Stage::kClosing;
}

void TcpHost::on_frames(Connection& connection) {
  size_t at = 0;
  Took took = Took::kFrame;
  while (connection.stage == Stage::kMember) {
    Frame frame;
    size_t used = 0;
    took = connection.channel->open(std::string_view(connection.in).substr(at), &frame, &used);
    if (took != Took::kFrame) break;
    roster_.heard(connection.rank, options_.clock->now_ns());
    if (!on_frame(connection, frame)) took = Took::kBroken;
    if (took == Took::kBroken) break;
    at += used;
  }
  connection.in.erase(0, at);
  if (took == Took::kBroken) {
    lose(connection);
    connection.stage = Stage::kClosed;
  }
}

// False: no member sends such a frame.
bool TcpHost::on_frame(Connection& connection, const Frame& frame) {
  std::string_view body = frame.body;
  Status why;
  switch (frame.kind) {
    case FrameKind::kKeepalive:
      return body.empty();
    case FrameKind::kBring: {
      ByteReader reader(body);
      uint64_t round = 0;
      return reader.number(&round) && body.size() - sizeof round <= kEndpointBytesMax &&
             roster_.bring(connection.rank, round, body.substr(sizeof round));
    }
    case FrameKind::kLeave:
      if (!take_status(&body, &why) || !body.empty()) return false;
      roster_.left(connection.rank, why);
      return true;
    case FrameKind::kAsk:
      return on_ask(connection, body);
    case FrameKind::kBye:
      roster_.done(connection.rank);
      return body.empty();
    default:
      return false;
  }
}

bool TcpHost::on_ask(Connection& connection, std::string_view body) {
  ByteReader reader(body);
  uint64_t round = 0;
  if (!reader.number(&round) || !reader.empty()) return false;
  if (connection.out.size() > 2 * kOutBytes) return false;  // it asks, but does not read answers
  std::string answer;
  put_status(&answer, roster_.verdict());
  put_text(&answer, roster_.missing(round), kSentenceBytesMax);
  connection.channel->seal(FrameKind::kAnswer, answer, &connection.out);
  return true;
}

// A member hung up without kBye, or sent what no member sends.
void TcpHost::lose(Connection& connection) {
  if (!bootstrapped_) roster_.hung_up(connection.rank);
}

void TcpHost::fill(Connection& connection) {
  fill_blobs(connection);
  if (connection.told || bootstrapped_ || roster_.verdict().ok()) return;
  connection.told = true;
  std::string body;
  put_status(&body, roster_.verdict());
  connection.channel->seal(FrameKind::kVerdict, body, &connection.out);
}

// Sends all blobs of every round that is complete, piece by piece, so that a peer that does not
// read costs kOutBytes and not all blobs of the world.
void TcpHost::fill_blobs(Connection& connection) {
  while (roster_.complete(connection.round) && connection.out.size() < kOutBytes) {
    std::string body;
    put_number(&body, connection.round);
    put_number(&body, connection.next);
    const size_t count_at = body.size();
    put_number(&body, uint32_t{0});
    uint32_t count = 0;
    while (connection.next < options_.world && body.size() < kBlobsBytesMax) {
      put_text(&body, roster_.blob(connection.round, connection.next++), kEndpointBytesMax);
      ++count;
    }
    std::string number;
    put_number(&number, count);
    body.replace(count_at, number.size(), number);
    connection.channel->seal(FrameKind::kBlobs, body, &connection.out);
    if (connection.next < options_.world) continue;
    connection.next = 0;
    ++connection.round;
  }
}

void TcpHost::send(Connection& connection) {
  if (connection.stage == Stage::kClosed) return;
  if (!tcp_send(connection.socket, &connection.out)) {
    if (connection.stage == Stage::kMember) lose(connection);
    connection.stage = Stage::kClosed;
  }
  if (connection.stage == Stage::kClosing && connection.out.empty() && !connection.shut) {
    connection.shut = true;
    (void)::shutdown(connection.socket.get(), SHUT_WR);
  }
}

}  // namespace parallax
