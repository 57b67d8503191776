// SPDX-License-Identifier: Apache-2.0
// InprocTransport: see the header for owners and threads.
#include "transport/inproc/inproc_transport.h"

#include <array>
#include <string>
#include <utility>

#include "base/check.h"

namespace parallax {

namespace {
constexpr size_t kBatchMax = 64;  // arrivals in one poll
}  // namespace

Status InprocTransport::create(std::shared_ptr<InprocHub> hub, uint32_t rank,
                               std::unique_ptr<InprocTransport>* transport) {
  PARALLAX_CHECK(rank < hub->world());
  PARALLAX_RETURN_IF_ERROR(hub->open(rank));
  transport->reset(new InprocTransport(std::move(hub), rank));
  return {};
}

InprocTransport::InprocTransport(std::shared_ptr<InprocHub> hub, uint32_t rank)
    : hub_(std::move(hub)), rank_(rank), mailbox_(hub_->mailbox(rank)), peers_(hub_->world()) {
  blocked_.reserve(peers_.size());
}

InprocTransport::~InprocTransport() { hub_->close(rank_); }

bool InprocTransport::writable(uint32_t to) const {
  PARALLAX_CHECK(to < peers_.size());
  const Peer& peer = peers_[to];
  if (to == rank_ || peer.gone || peer.uncompleted == kSendsInFlightMax) return false;
  if (peer.queue == nullptr || peer.queue->has_room()) return true;
  if (!peer.blocked) {
    peer.blocked = true;
    blocked_.push_back(to);
  }
  return false;
}

Status InprocTransport::send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) {
  PARALLAX_CHECK(writable(to));
  PARALLAX_CHECK(segments.size() <= kSegmentsMax);
  size_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.bytes;
  PARALLAX_CHECK(bytes <= kInprocMessageBytesMax);
  Peer& peer = peers_[to];
  Mailbox& mailbox = hub_->mailbox(to);
  if (peer.queue == nullptr) {
    peer.queue = mailbox.queue(rank_);
    completions_.reserve(++connected_count_ * kSendsInFlightMax);
    ++growth_count_;
  }
  if (Mailbox::fill(peer.queue, segments, bytes)) ++growth_count_;
  if (!mailbox.post(peer.queue)) {
    return peer_lost("rank " + std::to_string(to) + " has closed its transport");
  }
  ++peer.uncompleted;
  completions_.push({.to = to, .cookie = cookie});
  return {};
}

bool InprocTransport::poll(Receiver& receiver) {
  bool moved = deliver_completions(receiver);
  std::array<Mailbox::Item, kBatchMax> items;
  const size_t count = mailbox_.take(items);
  for (size_t i = 0; i < count; ++i) deliver(items[i], receiver);
  moved |= count > 0;
  moved |= unblock();
  return moved;
}

bool InprocTransport::deliver_completions(Receiver& receiver) {
  // Only those there now: a callback that sends makes new ones, which wait for the next poll.
  const size_t count = completions_.size();
  for (size_t i = 0; i < count; ++i) {
    const Completion done = completions_.pop();
    --peers_[done.to].uncompleted;
    receiver.on_sent(done.cookie);
  }
  return count > 0;
}

void InprocTransport::deliver(const Mailbox::Item& item, Receiver& receiver) {
  if (item.queue == nullptr) {
    Peer& peer = peers_[item.lost];
    if (peer.gone) return;
    peer.gone = true;
    receiver.on_lost(item.lost, Loss::kBroken, "it closed its transport");
    return;
  }
  const uint32_t from = item.queue->from;
  if (!peers_[from].gone) {
    const SenderQueue::Slot& slot = item.queue->slots[item.slot];
    receiver.on_message(from, {slot.buffer.get() + kInprocViewOffsetBytes, slot.bytes});
  }
  if (Mailbox::release(item.queue)) hub_->mailbox(from).wake();
}

bool InprocTransport::unblock() {
  return std::erase_if(blocked_, [this](uint32_t rank) {
           const Peer& peer = peers_[rank];
           if (!peer.gone && !peer.queue->has_room()) return false;
           peer.blocked = false;
           return true;
         }) > 0;
}

bool InprocTransport::arm() {
  if (!completions_.empty() || !mailbox_.arm()) return false;
  // Armed first, then the flags, then the look: a receiver that sees a flag finds the bell armed.
  for (const uint32_t rank : blocked_) {
    const Peer& peer = peers_[rank];
    if (!peer.gone) peer.queue->sender_waits.store(true, std::memory_order_seq_cst);
    if (peer.gone || peer.queue->has_room()) {
      mailbox_.disarm();
      return false;
    }
  }
  // Armed, so that a later post rings. What was posted before is looked at once more.
  if (boards() == nullptr) return true;
  const uint64_t seen = std::exchange(posts_seen_, posts());
  if (seen == posts_seen_) return true;
  mailbox_.disarm();
  return false;
}

// ---- boards

void InprocTransport::post() {
  head(rank_).posts.fetch_add(1, std::memory_order_seq_cst);
  for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (rank != rank_) hub_->mailbox(rank).wake();
  }
}

uint64_t InprocTransport::posts() const {
  uint64_t posts = 0;
  for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (rank != rank_) posts += head(rank).posts.load(std::memory_order_seq_cst);
  }
  return posts;
}

void InprocTransport::forget(uint32_t rank) {
  PARALLAX_CHECK(rank < peers_.size());
  peers_[rank].gone = true;
}

}  // namespace parallax
