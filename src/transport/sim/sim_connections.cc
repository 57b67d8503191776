// SPDX-License-Identifier: Apache-2.0
// The links between simulated ranks, and what each still waits for.
#include "transport/sim/sim_connections.h"

namespace parallax {

void SimLink::add_pending(SimMessage* message) {
  message->pending = true;
  (pending_tail == nullptr ? pending_head : pending_tail->next_pending) = message;
  pending_tail = message;
  ++in_flight;
}

// Completions come in order, so this is the head of the list, except behind messages that were
// dropped: those complete when the connection ends.
void SimLink::remove_pending(SimMessage* message) {
  SimMessage** place = &pending_head;
  SimMessage* before = nullptr;
  while (*place != message) {
    before = *place;
    place = &before->next_pending;
  }
  *place = message->next_pending;
  if (pending_tail == message) pending_tail = before;
  message->next_pending = nullptr;
  message->pending = false;
}

SimLink& SimConnections::link(uint32_t from, uint32_t to) {
  const auto [found, is_new] =
      link_index_.try_emplace(key(from, to), static_cast<uint32_t>(links_.size()));
  if (is_new) {
    links_.emplace_back();
    links_.back().from = from;
    links_.back().to = to;
    processes_[from].peers.push_back(to);
  }
  return links_[found->second];
}

const SimLink* SimConnections::find(uint32_t from, uint32_t to) const {
  const auto found = link_index_.find(key(from, to));
  return found == link_index_.end() ? nullptr : &links_[found->second];
}

bool SimConnections::connected(uint32_t a, uint32_t b) const {
  const SimLink* there = find(a, b);
  const SimLink* back = find(b, a);
  if ((there != nullptr && there->broken) || (back != nullptr && back->broken)) return false;
  return there != nullptr || back != nullptr;
}

uint32_t SimConnections::nth_peer(uint32_t rank, uint64_t n) const {
  std::vector<uint32_t> alive;
  for (const uint32_t peer : processes_[rank].peers) {
    if (connected(rank, peer) && !processes_[peer].gone) alive.push_back(peer);
  }
  return alive.empty() ? rank : alive[n % alive.size()];
}

}  // namespace parallax
