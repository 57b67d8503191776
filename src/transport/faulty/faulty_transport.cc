// SPDX-License-Identifier: Apache-2.0
// Holding back, in order, and letting go.
#include "transport/faulty/faulty_transport.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace parallax {

namespace {

constexpr int64_t kNapNs = 200 * 1000;

std::span<const std::byte> bytes_of(std::span<const Segment> segments) {
  if (segments.empty()) return {};
  return {static_cast<const std::byte*>(segments[0].data), segments[0].bytes};
}

}  // namespace

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, const Clock& clock,
                                 FaultyOptions options, void (*sleep)(int64_t ns))
    : inner_(std::move(inner)),
      clock_(clock),
      sleep_(sleep),
      opened_ns_(clock.now_ns()),
      carries_data_of_(options.carries_data_of),
      random_(options.seed) {
  for (const FaultRule& what : options.rules) {
    Rule& rule = rules_.emplace_back();
    PARALLAX_CHECK(what.variable == kAnyVariable || carries_data_of_ != nullptr);
    rule.what = what;
    if (what.at == 0) rule.since_ns = opened_ns_ + what.after_ns;
  }
}

bool FaultyTransport::holds(const Rule& rule) const {
  const int64_t now_ns = clock_.now_ns();
  return rule.since_ns != kNever && rule.since_ns <= now_ns &&
         (rule.what.for_ns == kNever || now_ns - rule.since_ns < rule.what.for_ns);
}

bool FaultyTransport::count(uint32_t peer, bool outgoing, std::span<const std::byte> message) {
  bool close = false;
  for (Rule& rule : rules_) {
    const FaultRule& what = rule.what;
    if (!concerns(what, peer, outgoing, message)) continue;
    ++rule.seen;
    if (rule.since_ns == kNever && rule.seen >= what.at &&
        clock_.now_ns() - opened_ns_ >= what.after_ns) {
      rule.since_ns = clock_.now_ns();
    }
    if (what.fault == InjectedFault::kClose && holds(rule) && !rule.spent) {
      rule.spent = close = true;
    }
  }
  return close;
}

bool FaultyTransport::silent(uint32_t peer, bool outgoing,
                             std::span<const std::byte> message) const {
  return std::any_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    return rule.what.fault == InjectedFault::kSilence && holds(rule) &&
           concerns(rule.what, peer, outgoing, message);
  });
}

bool FaultyTransport::concerns(const FaultRule& rule, uint32_t peer, bool outgoing,
                               std::span<const std::byte> message) const {
  const bool both = rule.fault == InjectedFault::kSilence;
  const Way way = both ? rule.way : Way::kOut;
  return (rule.peer == kAnyPeer || rule.peer == peer) &&
         (way == Way::kBoth || (way == Way::kOut) == outgoing) &&
         (rule.variable == kAnyVariable || carries_data_of_(message, rule.variable));
}

int64_t FaultyTransport::delay_of(uint32_t peer, std::span<const std::byte> message) {
  int64_t delay_ns = 0;
  for (const Rule& rule : rules_) {
    if (rule.what.fault != InjectedFault::kDelay || !holds(rule) ||
        !concerns(rule.what, peer, true, message) || !random_.chance(rule.what.percent)) {
      continue;
    }
    delay_ns = std::max(delay_ns, random_.between(0, rule.what.amount_ns));
  }
  return delay_ns;
}

void FaultyTransport::stall() {
  for (Rule& rule : rules_) {
    if (rule.what.fault != InjectedFault::kStall || rule.spent || !holds(rule)) continue;
    rule.spent = true;
    ++stalled_count_;
    sleep_(rule.what.for_ns);
  }
}

bool FaultyTransport::writable(uint32_t to) const {
  const auto found = peers_.find(to);
  if (found == peers_.end()) return inner_->writable(to);
  const Peer& peer = found->second;
  if (peer.closed) return false;
  if (peer.held_sends.empty()) return inner_->writable(to);
  return peer.held_sends.size() + peer.under_way < kSendsInFlightMax;
}

Status FaultyTransport::send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) {
  PARALLAX_CHECK(writable(to));
  PARALLAX_CHECK(segments.size() <= kSegmentsMax);
  Peer& peer = peers_[to];
  const std::span<const std::byte> first = bytes_of(segments);
  if (count(to, true, first)) {
    close(to, peer);
    return peer_lost("connection broken by the fault rules");
  }
  const int64_t delay_ns = delay_of(to, first);
  const bool quiet = silent(to, true, first);
  delayed_count_ += delay_ns > 0 ? 1 : 0;
  silenced_count_ += quiet ? 1 : 0;
  if (delay_ns == 0 && !quiet && peer.held_sends.empty()) {
    return pass_on(to, peer, segments, cookie);
  }
  HeldSend held;
  std::copy(segments.begin(), segments.end(), held.segments.begin());
  held.segment_count = static_cast<uint32_t>(segments.size());
  held.first = first;
  held.cookie = cookie;
  held.due_ns = clock_.now_ns() + delay_ns;
  peer.held_sends.push_back(held);
  return {};
}

Status FaultyTransport::pass_on(uint32_t to, Peer& peer, std::span<const Segment> segments,
                                uint64_t cookie) {
  const uint64_t inner_cookie = next_cookie_++;
  under_way_[inner_cookie] = {to, cookie};
  ++peer.under_way;
  Status status = inner_->send(to, segments, inner_cookie);
  if (!status.ok()) {
    under_way_.erase(inner_cookie);
    --peer.under_way;
  }
  return status;
}

// As a reset of the connection: this side is told by poll, the other by the inner transport.
void FaultyTransport::close(uint32_t rank, Peer& peer) {
  ++closed_count_;
  inner_->forget(rank);
  peer.closed = true;
  for (const HeldSend& held : peer.held_sends) completed_.push_back(held.cookie);
  peer.held_sends.clear();
  peer.held_messages.clear();
  lost_.push_back(rank);
}

bool FaultyTransport::release_sends(uint32_t rank, Peer& peer) {
  bool moved = false;
  while (!peer.held_sends.empty() && peer.held_sends.front().due_ns <= clock_.now_ns() &&
         !silent(rank, true, peer.held_sends.front().first) && inner_->writable(rank)) {
    const HeldSend held = peer.held_sends.front();
    peer.held_sends.pop_front();
    moved = true;
    // A failed send completes nothing, but its caller was told that this one was accepted.
    if (!pass_on(rank, peer, {held.segments.data(), held.segment_count}, held.cookie).ok()) {
      completed_.push_back(held.cookie);
    }
  }
  return moved;
}

bool FaultyTransport::release_messages(uint32_t rank, Peer& peer, Receiver& receiver) {
  bool moved = false;
  while (!peer.closed && !peer.held_messages.empty() &&
         !silent(rank, false, peer.held_messages.front())) {
    const std::vector<std::byte> message = std::move(peer.held_messages.front());
    peer.held_messages.pop_front();
    receiver.on_message(rank, message);
    moved = true;
  }
  return moved;
}

bool FaultyTransport::poll(Receiver& receiver) {
  bool moved = false;
  if (sleep_ != nullptr) stall();
  // By number: a callback may send to a new peer.
  std::vector<uint32_t> ranks;
  for (const auto& [rank, peer] : peers_) ranks.push_back(rank);
  for (const uint32_t rank : ranks) {
    moved |= release_sends(rank, peers_[rank]);
    moved |= release_messages(rank, peers_[rank], receiver);
  }
  for (const uint64_t cookie : std::exchange(completed_, {})) {
    moved = true;
    receiver.on_sent(cookie);
  }
  for (const uint32_t rank : std::exchange(lost_, {})) {
    moved = true;
    receiver.on_lost(rank, Loss::kBroken, "connection broken by the fault rules");
  }
  receiver_ = &receiver;
  moved |= inner_->poll(*this);
  receiver_ = nullptr;
  if (!moved && sleep_ != nullptr && anything_due()) sleep_(kNapNs);
  return moved;
}

void FaultyTransport::on_message(uint32_t from, std::span<const std::byte> message) {
  Peer& peer = peers_[from];
  if (peer.closed) return;
  count(from, false, message);
  const bool quiet = silent(from, false, message);
  silenced_count_ += quiet ? 1 : 0;
  if (quiet || !peer.held_messages.empty()) {
    peer.held_messages.emplace_back(message.begin(), message.end());
    return;
  }
  receiver_->on_message(from, message);
}

void FaultyTransport::on_sent(uint64_t cookie) {
  const auto found = under_way_.find(cookie);
  PARALLAX_CHECK(found != under_way_.end());
  const UnderWay sent = found->second;
  under_way_.erase(found);
  --peers_[sent.peer].under_way;
  receiver_->on_sent(sent.cookie);
}

void FaultyTransport::on_lost(uint32_t rank, Loss loss, std::string_view why) {
  Peer& peer = peers_[rank];
  if (peer.closed) return;
  peer.closed = true;
  for (const HeldSend& held : peer.held_sends) completed_.push_back(held.cookie);
  peer.held_sends.clear();
  peer.held_messages.clear();
  receiver_->on_lost(rank, loss, why);
}

// Something that no descriptor tells of: held back, or a stall that waits for its time.
bool FaultyTransport::anything_due() const {
  if (!completed_.empty() || !lost_.empty()) return true;
  if (sleep_ != nullptr && std::any_of(rules_.begin(), rules_.end(), [](const Rule& rule) {
        return rule.what.fault == InjectedFault::kStall && !rule.spent && rule.since_ns != kNever;
      })) {
    return true;
  }
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    return !entry.second.held_sends.empty() || !entry.second.held_messages.empty();
  });
}

bool FaultyTransport::arm() { return !anything_due() && inner_->arm(); }

void FaultyTransport::forget(uint32_t rank) {
  Peer& peer = peers_[rank];
  std::erase(lost_, rank);
  if (peer.closed) return;
  peer.closed = true;
  for (const HeldSend& held : peer.held_sends) completed_.push_back(held.cookie);
  peer.held_sends.clear();
  peer.held_messages.clear();
  inner_->forget(rank);
}

}  // namespace parallax
