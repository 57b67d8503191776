// SPDX-License-Identifier: Apache-2.0
// Holding back, in order, and letting go.
#include "transport/faulty/faulty_transport.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace parallax {

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, const Clock& clock,
                                 FaultyOptions options)
    : inner_(std::move(inner)),
      clock_(clock),
      options_(std::move(options)),
      random_(options_.seed) {}

bool FaultyTransport::silent(uint32_t peer, bool outgoing) const {
  const int64_t now_ns = clock_.now_ns();
  return std::any_of(options_.silences.begin(), options_.silences.end(),
                     [&](const FaultySilence& silence) {
                       return (silence.peer == peer || silence.peer == kAnyPeer) &&
                              (outgoing ? silence.outgoing : silence.incoming) &&
                              silence.from_ns <= now_ns && now_ns < silence.until_ns;
                     });
}

bool FaultyTransport::writable(uint32_t to) const {
  const auto found = peers_.find(to);
  if (found == peers_.end()) return inner_->writable(to);
  const Peer& peer = found->second;
  if (peer.closed) return false;
  if (peer.held_sends.empty()) return inner_->writable(to);
  return peer.held_sends.size() + peer.under_way < kSendsInFlightMax;
}

Status FaultyTransport::send(uint32_t to, std::span<const Segment> segments, uint64_t token) {
  PARALLAX_CHECK(writable(to));
  PARALLAX_CHECK(segments.size() <= kSegmentsMax);
  Peer& peer = peers_[to];
  if (++sends_count_ == options_.close_at_send) {
    close(to, peer);
    return peer_lost("connection broken by the fault plan");
  }
  const bool late = options_.delay_ns_max > 0 && random_.chance(options_.delay_percent);
  const bool quiet = silent(to, true);
  delayed_count_ += late ? 1 : 0;
  silenced_count_ += quiet ? 1 : 0;
  if (!late && !quiet && peer.held_sends.empty()) return pass_on(to, peer, segments, token);
  HeldSend held;
  std::copy(segments.begin(), segments.end(), held.segments.begin());
  held.segment_count = static_cast<uint32_t>(segments.size());
  held.token = token;
  held.due_ns = clock_.now_ns() + (late ? random_.between(0, options_.delay_ns_max) : 0);
  peer.held_sends.push_back(held);
  return {};
}

Status FaultyTransport::pass_on(uint32_t to, Peer& peer, std::span<const Segment> segments,
                                uint64_t token) {
  const uint64_t inner_token = next_token_++;
  under_way_[inner_token] = {to, token};
  ++peer.under_way;
  Status status = inner_->send(to, segments, inner_token);
  if (!status.ok()) {
    under_way_.erase(inner_token);
    --peer.under_way;
  }
  return status;
}

// As a reset of the connection: this side is told by poll, the other by the inner transport.
void FaultyTransport::close(uint32_t rank, Peer& peer) {
  ++closed_count_;
  inner_->forget(rank);
  peer.closed = true;
  for (const HeldSend& held : peer.held_sends) completed_.push_back(held.token);
  peer.held_sends.clear();
  peer.held_messages.clear();
  lost_.push_back(rank);
}

bool FaultyTransport::release_sends(uint32_t rank, Peer& peer) {
  bool moved = false;
  while (!peer.held_sends.empty() && peer.held_sends.front().due_ns <= clock_.now_ns() &&
         !silent(rank, true) && inner_->writable(rank)) {
    const HeldSend held = peer.held_sends.front();
    peer.held_sends.pop_front();
    moved = true;
    // A failed send completes nothing, but its caller was told that this one was accepted.
    if (!pass_on(rank, peer, {held.segments.data(), held.segment_count}, held.token).ok()) {
      completed_.push_back(held.token);
    }
  }
  return moved;
}

bool FaultyTransport::release_messages(uint32_t rank, Peer& peer, Receiver& receiver) {
  bool moved = false;
  while (!peer.closed && !peer.held_messages.empty() && !silent(rank, false)) {
    const std::vector<std::byte> message = std::move(peer.held_messages.front());
    peer.held_messages.pop_front();
    receiver.on_message(rank, message);
    moved = true;
  }
  return moved;
}

bool FaultyTransport::poll(Receiver& receiver) {
  bool moved = false;
  // By number: a callback may send to a new peer.
  std::vector<uint32_t> ranks;
  for (const auto& [rank, peer] : peers_) ranks.push_back(rank);
  for (const uint32_t rank : ranks) {
    moved |= release_sends(rank, peers_[rank]);
    moved |= release_messages(rank, peers_[rank], receiver);
  }
  for (const uint64_t token : std::exchange(completed_, {})) {
    moved = true;
    receiver.on_sent(token);
  }
  for (const uint32_t rank : std::exchange(lost_, {})) {
    moved = true;
    receiver.on_lost(rank, "connection broken by the fault plan");
  }
  receiver_ = &receiver;
  moved |= inner_->poll(*this);
  receiver_ = nullptr;
  return moved;
}

void FaultyTransport::on_message(uint32_t from, std::span<const std::byte> message) {
  Peer& peer = peers_[from];
  if (peer.closed) return;
  const bool quiet = silent(from, false);
  silenced_count_ += quiet ? 1 : 0;
  if (quiet || !peer.held_messages.empty()) {
    peer.held_messages.emplace_back(message.begin(), message.end());
    return;
  }
  receiver_->on_message(from, message);
}

void FaultyTransport::on_sent(uint64_t token) {
  const auto found = under_way_.find(token);
  PARALLAX_CHECK(found != under_way_.end());
  const UnderWay sent = found->second;
  under_way_.erase(found);
  --peers_[sent.peer].under_way;
  receiver_->on_sent(sent.token);
}

void FaultyTransport::on_lost(uint32_t rank, std::string_view why) {
  Peer& peer = peers_[rank];
  if (peer.closed) return;
  peer.closed = true;
  for (const HeldSend& held : peer.held_sends) completed_.push_back(held.token);
  peer.held_sends.clear();
  peer.held_messages.clear();
  receiver_->on_lost(rank, why);
}

bool FaultyTransport::anything_held() const {
  if (!completed_.empty() || !lost_.empty()) return true;
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    return !entry.second.held_sends.empty() || !entry.second.held_messages.empty();
  });
}

bool FaultyTransport::arm() { return !anything_held() && inner_->arm(); }

void FaultyTransport::forget(uint32_t rank) {
  Peer& peer = peers_[rank];
  std::erase(lost_, rank);
  if (peer.closed) return;
  peer.closed = true;
  for (const HeldSend& held : peer.held_sends) completed_.push_back(held.token);
  peer.held_sends.clear();
  peer.held_messages.clear();
  inner_->forget(rank);
}

}  // namespace parallax
