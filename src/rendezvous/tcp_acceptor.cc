// SPDX-License-Identifier: Apache-2.0
// Accepting, and what strangers may cost: see the header.
#include "rendezvous/tcp_acceptor.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/log.h"

namespace parallax {

namespace {

constexpr int64_t kAcceptPauseNs = 20 * kNanosecondsPerMillisecond;
constexpr uint64_t kLinesMax = 5;  // log lines about strangers, in one rendezvous

using Stage = ServerLink::Stage;

int64_t descriptor_limit() {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= INT32_MAX;
  return known ? static_cast<int64_t>(limit.rlim_cur) : INT32_MAX;
}

}  // namespace

TcpAcceptor::TcpAcceptor(const RendezvousOptions& options, const TcpEntry& entry, std::string where,
                         UniqueFd listener)
    : options_(options),
      entry_(entry),
      where_(std::move(where)),
      descriptors_max_(descriptor_limit()),
      listener_(std::move(listener)) {}

Accepted TcpAcceptor::accept(int64_t now_ns) {
  if (!listener_.valid() || now_ns < accept_again_ns_) return Accepted::kNone;
  UniqueFd socket;
  SocketAddress from;
  const Accepted accepted = tcp_accept(listener_, &socket, &from);
  if (accepted == Accepted::kNone) return accepted;
  if (accepted != Accepted::kOne) {
    accept_again_ns_ = now_ns + kAcceptPauseNs;
    const bool room = accepted == Accepted::kNoDescriptor && make_room();
    return room ? Accepted::kNone : accepted;
  }
  make_room_for(socket);
  links_.push_back(std::make_unique<ServerLink>(
      std::move(socket), from, ServerHandshake(introduce(options_, entry_), entry_.key),
      now_ns + kIntroductionNs));
  return accepted;
}

// The kernel gives the lowest free descriptor, so the number of a new socket tells how many are
// taken. Strangers do not get the last ones: ranks need some to attach each other's memory.
void TcpAcceptor::make_room_for(const UniqueFd& socket) {
  const bool scarce = socket.get() + kDescriptorsSpare >= descriptors_max_;
  const auto stranger_count = [this] {
    return static_cast<size_t>(std::count_if(links_.begin(), links_.end(), [](const auto& each) {
      return each->stage() != Stage::kMember;
    }));
  };
  const size_t strangers_max = scarce ? kStrangersScarce + 1 : kStrangersMax;
  while (stranger_count() >= strangers_max) {
    if (!make_room()) return;
  }
}

// Drops the connections that are closed; else the oldest that is closing; else of the strangers
// that have sent a HELLO and those that have not the more numerous lose their oldest, so that
// neither can crowd the others out. False: all are members.
bool TcpAcceptor::make_room() {
  const size_t before = links_.size();
  sweep();
  if (links_.size() < before) return true;
  struct Kind {
    size_t count = 0;
    ServerLink* oldest = nullptr;
  };
  Kind closing, introduced, silent;
  for (const auto& link : links_) {  // the oldest is the first
    if (link->stage() == Stage::kMember) continue;
    Kind& kind = link->stage() == Stage::kClosing ? closing
                 : link->introduced()             ? introduced
                                                  : silent;
    if (kind.count++ == 0) kind.oldest = link.get();
  }
  ServerLink* victim = introduced.count > silent.count ? introduced.oldest : silent.oldest;
  if (closing.count > 0) victim = closing.oldest;
  if (victim == nullptr) return false;
  if (victim->stage() == Stage::kStranger) turn_away(*victim, "too many came at once");
  std::erase_if(links_, [victim](const auto& each) { return each.get() == victim; });
  return true;
}

bool TcpAcceptor::receive(ServerLink& link, const ServerLink::Admit& admit) {
  Status refused;
  const bool open = link.receive(admit, &refused);
  if (!refused.ok()) turn_away(link, refused.message());
  if (!open && link.stage() == Stage::kStranger) turn_away(link, "it hung up");
  return open;
}

void TcpAcceptor::turn_away(ServerLink& link, const std::string& why) {
  turned_away_last_ = to_text(link.from()) + ": " + why;
  if (++turned_away_count_ <= kLinesMax) {
    PARALLAX_LOG(kWarn, kInit,
                 "the rendezvous at " + where_ + " turned away " + turned_away_last_ +
                     (turned_away_count_ == kLinesMax ? " (others will not be shown)" : ""));
  }
  link.turn_away();
}

void TcpAcceptor::expire(int64_t now_ns) {
  for (const auto& link : links_) {
    if (link->stage() == Stage::kStranger && now_ns >= link->deadline_ns()) {
      turn_away(*link, "it did not say in time who it is");
    } else if (link->stage() == Stage::kClosing && now_ns >= link->deadline_ns()) {
      link->close();
    }
  }
}

void TcpAcceptor::sweep() {
  std::erase_if(links_, [](const auto& each) { return each->stage() == Stage::kClosed; });
}

void TcpAcceptor::drop_all() {
  links_.clear();
  listener_.reset();
}

bool TcpAcceptor::has_members() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& each) { return each->stage() == Stage::kMember; });
}

int64_t TcpAcceptor::waits(int64_t now_ns, std::vector<pollfd>* fds) const {
  int64_t due_ns = kNever;
  const bool pausing = now_ns < accept_again_ns_;
  if (listener_.valid() && pausing) due_ns = accept_again_ns_;
  if (listener_.valid() && !pausing) fds->push_back({listener_.get(), POLLIN, 0});
  for (const auto& link : links_) {
    fds->push_back(link->stream().waits());
    if (link->stage() != Stage::kMember) due_ns = std::min(due_ns, link->deadline_ns());
  }
  return due_ns;
}

std::string TcpAcceptor::turned_away() const {
  if (turned_away_count_ == 0) return {};
  return "; " + std::to_string(turned_away_count_) +
         (turned_away_count_ == 1 ? " connection was" : " connections were") +
         " turned away, the last from " + turned_away_last_;
}

}  // namespace parallax
