// SPDX-License-Identifier: Apache-2.0
// A member's side: first the caller's part, then the thread's. See the header.
#include "rendezvous/tcp_member.h"

#include <algorithm>

#include "base/check.h"
#include "base/codec.h"
#include "base/rank_list.h"
#include "base/threads.h"
#include "rendezvous/roster.h"
#include "transport/endpoint.h"
#include "world/patterns.h"

namespace parallax {

namespace {

constexpr uint32_t kAnswerMsMax = 1000;  // the longest wait for an answer of rank 0
constexpr size_t kBytesPerPass = 4 * kSealedBodyBytesMax;

int64_t answer_patience_ns(const RendezvousOptions& options) {
  return std::min(options.lease_ms / kKeepalivesPerLease, kAnswerMsMax) *
         kNanosecondsPerMillisecond;
}

// How long a rank waits for its parent's blobs of a round, all of them, before it fetches them from
// rank 0: a parent that sends some now and then does not hold it up.
int64_t relay_patience_ns(const RendezvousOptions& options) {
  return options.lease_ms * kNanosecondsPerMillisecond / kKeepalivesPerLease;
}

}  // namespace

TcpMember::TcpMember(const RendezvousOptions& options, TcpEntry entry, TcpAddress tcp_address)
    : options_(options),
      entry_(std::move(entry)),
      tcp_address_(std::move(tcp_address)),
      ended_(options),
      link_(options_, entry_),
      round_(options.world),
      relay_(options_, entry_),
      fetches_(radix_parent(options.rank) == 0),
      looked_ns_(options.clock->now_ns()) {}

Status TcpMember::create(const RendezvousOptions& options, TcpEntry entry, TcpAddress tcp_address,
                         std::unique_ptr<Rendezvous>* rendezvous) {
  std::unique_ptr<TcpMember> made(new TcpMember(options, std::move(entry), std::move(tcp_address)));
  PARALLAX_RETURN_IF_ERROR(made->poll_.made());
  if (is_numeric(made->tcp_address_)) PARALLAX_RETURN_IF_ERROR(made->find());
  PARALLAX_RETURN_IF_ERROR(start_thread(&made->runner_, [raw = made.get()] { raw->run(); }));
  *rendezvous = std::move(made);
  return {};
}

TcpMember::~TcpMember() {
  if (!bootstrapped_) leave({});
  if (!runner_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    stop_ns_ = std::min(stop_ns_, options_.clock->now_ns() + kGoodbyeNs);
  }
  poll_.wake();
  runner_.join();
}

// Sleeps a little; false at the deadline. In a loop over what is waited for.
bool TcpMember::wait_locked(int64_t deadline_ns) {
  if (options_.clock->now_ns() >= deadline_ns) return false;
  changed_.wait_for(mutex_, kLookAtClock);
  return true;
}

// A verdict does not end a round to which all have brought their blobs: who left, or was lost,
// after that is no loss to those who still wait for the blobs to come down the tree.
bool TcpMember::over_locked() const {
  return round_.met() || link_.over() || (!verdict_.ok() && !round_.awaits_blobs());
}

void TcpMember::say_locked(FrameKind kind, std::string_view body) {
  link_.stream().seal(kind, body);
  poll_.wake();
}

Status TcpMember::allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                            std::vector<std::string>* all) {
  const MutexLock lock(mutex_);
  PARALLAX_CHECK(mine.size() <= kEndpointBytesMax && !bootstrapped_);
  round_.begin({reinterpret_cast<const char*>(mine.data()), mine.size()});
  if (link_.joined()) say_locked(FrameKind::kBring, round_.bring());
  bool over = false;
  for (int64_t speak_ns = 0; !over && speak_ns < deadline_ns;) {
    if (speak_ns != 0) {
      ask_locked();
      say_waiting("at " + entry_.where, missing_locked(), deadline_ns - speak_ns);
    }
    speak_ns = options_.clock->now_ns() + kSilenceNs;
    while (!over_locked() && wait_locked(std::min(speak_ns, deadline_ns))) continue;
    over = over_locked();
  }
  if (!over) {
    ask_locked();
    return verdict_.ok() ? missed_deadline("at " + entry_.where, missing_locked()) : verdict_;
  }
  if (!round_.met()) return verdict_;
  *all = round_.finish();
  return {};
}

// Asks rank 0 why the rendezvous is over, if it is, and who is missing. Waits a fifth of the lease,
// or a second, at most.
void TcpMember::ask_locked() {
  if (!link_.joined()) return;
  say_locked(FrameKind::kAsk, round_.ask());
  const int64_t until_ns = options_.clock->now_ns() + answer_patience_ns(options_);
  while (!round_.answered() && !link_.over() && wait_locked(until_ns)) continue;
}

std::string TcpMember::missing_locked() const {
  if (round_.awaits_blobs()) {
    return "all came, but what they brought has not come from " +
           (radix_parent(options_.rank) == 0 ? std::string("rank 0")
            : fetches_                       ? "rank 0, nor from " + relay_.parent_name()
                                             : relay_.parent_name());
  }
  if (link_.joined()) {
    return round_.missing().empty() ? "rank 0 came but has not got this far" : round_.missing();
  }
  const std::string& last_try = link_.last_try();
  return "rank 0 never came" + (last_try.empty() ? std::string() : " (" + last_try + ")");
}

// Waits until rank 0 has the reason, so that a rank that sees this one disconnect and then asks
// rank 0 learns why.
void TcpMember::leave(const Status& why) {
  const MutexLock lock(mutex_);
  if (left_ || bootstrapped_) return;
  left_ = true;
  if (!link_.joined() || !verdict_.ok()) return;
  std::string body;
  put_status(&body, why);
  say_locked(FrameKind::kLeave, body);
  const int64_t until_ns = options_.clock->now_ns() + answer_patience_ns(options_);
  while (verdict_.ok() && !link_.over() && wait_locked(until_ns)) continue;
}

Status TcpMember::verdict() {
  const MutexLock lock(mutex_);
  if (verdict_.ok() && !bootstrapped_) ask_locked();
  return left_ ? Status() : verdict_;
}

void TcpMember::finish_bootstrap() {
  {
    const MutexLock lock(mutex_);
    if (bootstrapped_) return;
    bootstrapped_ = true;
    stopping_ = true;
    stop_ns_ = options_.clock->now_ns() + kGoodbyeNs;
    if (link_.joined()) say_locked(FrameKind::kBye, {});
  }
  poll_.wake();
  runner_.join();
}

Status TcpMember::finish() {
  finish_bootstrap();
  return {};
}

// No exception leaves the thread: lack of memory, or a failed check, ends the rendezvous.
void TcpMember::run() {
  try {
    std::vector<pollfd> fds;
    for (;;) {
      look_up();
      int64_t due_ns = 0;
      {
        const MutexLock lock(mutex_);
        due_ns = prepare(&fds);
      }
      poll_.sleep(&fds, *options_.clock, due_ns);
      ended_.look(options_.clock->now_ns());
      const MutexLock lock(mutex_);
      if (!look()) return;
    }
  } catch (const std::exception& error) {
    const MutexLock lock(mutex_);
    end(internal(std::string("the thread of the rendezvous: ") + error.what()));
  }
}

void TcpMember::look_up() {
  {
    const MutexLock lock(mutex_);
    if (!link_.lost()) return;
  }
  Status found = find();
  const MutexLock lock(mutex_);
  if (found.code() == PARALLAX_INVALID) {
    end(std::move(found));
  } else if (!found.ok()) {
    link_.again(found.message());
  }
}

// Resolves rank 0's address, outside the lock: a resolver may block for long.
Status TcpMember::find() {
  std::vector<SocketAddress> addresses;
  PARALLAX_RETURN_IF_ERROR(resolve(tcp_address_, &addresses));
  PARALLAX_RETURN_IF_ERROR(check_trust(tcp_address_, addresses, entry_.secret));
  const MutexLock lock(mutex_);
  link_.aim(std::move(addresses));
  return {};
}

// Fills in the descriptors to wait for; returns when to look even if none becomes ready.
int64_t TcpMember::prepare(std::vector<pollfd>* fds) {
  fds->clear();
  link_.waits(fds);
  if (link_.over()) return stop_ns_;
  if (!link_.joined()) return std::min({stop_ns_, link_.due_ns(), ended_.due_ns()});
  const bool patient = round_.awaits_blobs() && !fetches_;
  const int64_t fetch_ns = patient ? complete_ns_ + relay_patience_ns(options_) : kNever;
  return std::min(
      {stop_ns_, keepalive_due_ns_, fetch_ns, relay_.waits(options_.clock->now_ns(), fds)});
}

// One pass; false when the thread's work is done.
bool TcpMember::look() {
  const int64_t now_ns = options_.clock->now_ns();
  if (!stopping_ && !link_.joined() && !link_.over()) join(now_ns);
  if (link_.joined()) keep(now_ns);
  if (link_.joined()) relay(now_ns);
  looked_ns_ = now_ns;
  changed_.notify_all();
  if (!stopping_) return true;
  const bool said = !link_.joined() || (link_.stream().out.empty() && relay_.flushed());
  if (!said && now_ns < stop_ns_) return true;
  link_.close();
  relay_.close();
  return false;
}

void TcpMember::join(int64_t now_ns) {
  const Status refused = link_.advance(now_ns);
  if (!refused.ok()) end(refused);
  if (link_.joined()) {
    heard_ns_ = keepalive_due_ns_ = looked_ns_ = now_ns;
    offer_children_a_port();
    if (round_.to_bring()) say_locked(FrameKind::kBring, round_.bring());
  } else if (!link_.over()) {
    mind_rank_0();
  }
}

// At the address by which this rank reached rank 0: other ranks are thought to reach it there too.
// A rank that reached it by loopback, though by a name that other machines know rank 0 by, is on
// rank 0's machine, and listens at all addresses as rank 0 does.
void TcpMember::offer_children_a_port() {
  SocketAddress mine;
  if (!relay_.has_children()) return;
  uint16_t port = 0;
  if (tcp_name(link_.stream().socket, &mine).ok()) {
    const bool wide = entry_.secret && is_loopback(mine) && !is_numeric(tcp_address_) &&
                      tcp_address_.host != "localhost";
    port = relay_.listen(wide ? any_address(mine.storage.ss_family, 0)
                              : make_address(address_bytes(mine), 0));
  }
  std::string body;
  put_number(&body, port);
  say_locked(FrameKind::kListen, body);
}

void TcpMember::keep(int64_t now_ns) {
  const Introduction& host = link_.peer();
  FrameStream& stream = link_.stream();
  const int64_t lease_ns = options_.lease_ms * kNanosecondsPerMillisecond;
  // This rank was held up itself.
  if (now_ns - looked_ns_ > lease_ns / 2) heard_ns_ = complete_ns_ = now_ns;
  const bool open = stream.receive(kBytesPerPass);
  const int64_t silence_ns = silence_max_ns(options_.lease_ms, host.lease_ms);
  if (!on_frames(now_ns)) {
    end(peer_lost(rank_name(0, host.host) + " sent, while ranks met at " + entry_.where +
                  ", what is not a rank's or was changed on its way"));
  } else if (!open) {
    end(hung_up(0, host.host, entry_.where));
  } else if (now_ns - heard_ns_ >= silence_ns) {
    end(silent(0, host.host, silence_ns, entry_.where));
  }
  if (!link_.joined()) return;
  if (now_ns >= keepalive_due_ns_) {
    stream.seal(FrameKind::kKeepalive, {});
    keepalive_due_ns_ = now_ns + lease_ns / kKeepalivesPerLease;
  }
  if (!stream.send()) end(hung_up(0, host.host, entry_.where));
}

// False: they are no frames of rank 0.
bool TcpMember::on_frames(int64_t now_ns) {
  Took took = Took::kFrame;
  while (took == Took::kFrame) {
    Frame frame;
    took = link_.stream().take(&frame);
    if (took != Took::kFrame) break;
    heard_ns_ = now_ns;
    if (!on_frame(frame)) took = Took::kBroken;
  }
  link_.stream().drop_taken();
  return took != Took::kBroken;
}

// False: rank 0 sends no such frame.
bool TcpMember::on_frame(const Frame& frame) {
  std::string_view body = frame.body;
  Status said;
  switch (frame.kind) {
    case FrameKind::kKeepalive:
      return body.empty();
    case FrameKind::kBlobs:
      return fetches_ && on_blobs(body);
    case FrameKind::kParent:
      return relay_.on_parent(body, link_.address());
    case FrameKind::kComplete:
      return on_complete(body);
    case FrameKind::kVerdict:
      if (!take_status(&body, &said) || said.ok() || !body.empty()) return false;
      if (verdict_.ok()) verdict_ = said;
      return true;
    case FrameKind::kAnswer:
      if (!take_status(&body, &said) || !round_.take_answer(body)) return false;
      if (verdict_.ok()) verdict_ = said;
      return true;
    default:
      return false;
  }
}

// False: they are not the next ones, or not what the ranks brought.
bool TcpMember::on_blobs(std::string_view body) { return round_.take_blobs(body) && check_blobs(); }

// False: rank 0 says no such thing. What came before from the parent may turn out to be a lie.
bool TcpMember::on_complete(std::string_view body) {
  if (!round_.take_complete(body)) return false;
  complete_ns_ = options_.clock->now_ns();
  if (!check_blobs()) relay_.distrust_parent();
  return true;
}

// Children get blobs that are known to be true alone: who lies reaches its own children only, and
// they know who it was.
bool TcpMember::check_blobs() {
  const bool good = round_.check();
  if (round_.met()) relay_.pass_on(round_.pieces());
  return good;
}

// Passes blobs on from the parent to the children; fetches what does not come from the parent.
void TcpMember::relay(int64_t now_ns) {
  relay_.advance(
      now_ns, [this](std::string_view body) PARALLAX_REQUIRES(mutex_) { return on_blobs(body); });
  const bool patient = now_ns - complete_ns_ < relay_patience_ns(options_);
  if (fetches_ || !round_.awaits_blobs() || (relay_.has_parent() && patient)) return;
  fetches_ = true;
  relay_.drop_parent();
  say_locked(FrameKind::kFetch, round_.fetch());
}

// While this rank has no connection, only the launcher can tell it that rank 0 has ended. It then
// names the rank that ended first, since rank 0 may have ended because of it.
void TcpMember::mind_rank_0() {
  if (ended_.find(0) == nullptr) return;
  end(ended_before_rendezvous(ended_.all().front(), "at " + entry_.where));
}

// INVALID and IO concern this rank alone, and the sentence says so; others are sentences that all
// ranks report alike.
void TcpMember::end(Status why) {
  if (why.code() == PARALLAX_INVALID || why.code() == PARALLAX_IO) {
    why = Status(why.code(), "rank " + std::to_string(options_.rank) +
                                 " cannot join the rendezvous at " + entry_.where + ": " +
                                 why.message());
  }
  if (verdict_.ok()) verdict_ = std::move(why);
  link_.close();
  relay_.close();
}

}  // namespace parallax
