// SPDX-License-Identifier: Apache-2.0
// What goes wrong on the simulated wires: silences and partitions hold messages back in order, as a
// reliable protocol over a silent wire does; resets end connections; processes vanish.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "transport/sim/sim_network.h"

namespace parallax {

int SimNetwork::silenced_by(const SimLink& out) const {
  const int64_t now_ns = queue_.now_ns();
  if (out.silent_until_ns > now_ns) return out.fault;
  for (const Partition& partition : partitions_) {
    if (partition.until_ns > now_ns &&
        partition.side_of_host[host_of(out.from)] != partition.side_of_host[host_of(out.to)]) {
      return partition.fault;
    }
  }
  return kNoFault;
}

void SimNetwork::silence(uint32_t from, uint32_t to, int64_t until_ns, int fault) {
  SimLink& out = link(from, to);
  if (until_ns > out.silent_until_ns) {  // else within a longer one, and never felt
    out.silent_until_ns = until_ns;
    out.fault = fault;
  }
  if (until_ns != kNever) queue_.push(until_ns, SimEventKind::kHeal, from);
}

void SimNetwork::partition(std::vector<bool> side_of_host, int64_t until_ns, int fault) {
  partitions_.push_back({std::move(side_of_host), until_ns, fault});
  if (until_ns != kNever) queue_.push(until_ns, SimEventKind::kHeal, 0);
}

void SimNetwork::heal() {
  const int64_t now_ns = queue_.now_ns();
  std::erase_if(partitions_, [now_ns](const Partition& p) { return p.until_ns <= now_ns; });
  std::vector<uint32_t> still_held;
  for (const uint32_t index : std::exchange(held_links_, {})) {
    SimLink& out = links_[index];
    if (silenced_by(out) != kNoFault) {
      still_held.push_back(index);
      continue;
    }
    for (SimMessage* message : std::exchange(out.held, {})) {
      // A kernel still sends what a dead process left in its socket; a machine without power not.
      if (processes_[out.from].gone && !processes_[out.from].seen) {
        drop(message);
      } else {
        depart(out, message, 0);
      }
    }
  }
  held_links_.insert(held_links_.end(), still_held.begin(), still_held.end());
}

void SimNetwork::delay_from(uint32_t rank, int64_t spike_ns_max, int64_t until_ns, int fault) {
  spikes_[rank] = {spike_ns_max, until_ns, fault};
}

// Most messages are late by a little, some by much: that is what moves one rank's messages past
// another's.
int64_t SimNetwork::spike_ns(uint32_t from) {
  const Spike& spike = spikes_[from];
  if (spike.until_ns <= queue_.now_ns()) return 0;
  machines_.on_fault_felt(spike.fault, from);
  const int64_t most_ns = random_.chance(20) ? spike.spike_ns_max : spike.spike_ns_max / 50;
  return random_.between(0, most_ns);
}

bool SimNetwork::connected(uint32_t a, uint32_t b) const {
  const SimLink* there = find(a, b);
  const SimLink* back = find(b, a);
  if ((there != nullptr && there->broken) || (back != nullptr && back->broken)) return false;
  return there != nullptr || back != nullptr;
}

uint32_t SimNetwork::nth_peer(uint32_t rank, uint64_t n) const {
  std::vector<uint32_t> alive;
  for (const uint32_t peer : processes_[rank].peers) {
    if (connected(rank, peer) && !processes_[peer].gone) alive.push_back(peer);
  }
  return alive.empty() ? rank : alive[n % alive.size()];
}

// One side of a connection ends: its sends complete and its rank is told, in either order.
void SimNetwork::break_side(uint32_t rank, uint32_t peer, Loss loss, const char* why) {
  SimLink& out = link(rank, peer);
  if (out.broken) return;
  out.broken = true;
  const bool told_first = options_.adversarial && random_.chance(50);
  if (!told_first) complete_pending(out);
  push_item(rank, {.kind = ItemKind::kLost, .peer = peer, .why = why, .loss = loss});
  if (told_first) complete_pending(out);
}

void SimNetwork::complete_pending(SimLink& out) {
  for (SimMessage* message = out.pending_head; message != nullptr;) {
    SimMessage* next = message->next_pending;
    message->next_pending = nullptr;
    message->pending = false;
    push_item(out.from, {.kind = ItemKind::kSent, .peer = out.to, .cookie = message->cookie});
    pool_.release_if_unused(message);
    message = next;
  }
  out.pending_head = nullptr;
  out.pending_tail = nullptr;
}

void SimNetwork::reset(uint32_t from, uint32_t to, const char* why, int64_t extra_ns) {
  SimMessage* message = pool_.take(0);
  message->kind = WireKind::kReset;
  message->from = from;
  message->to = to;
  message->why = why;
  // Of a process of its own host a rank knows that it ended.
  const bool seen = processes_[from].gone && host_of(from) == host_of(to);
  message->loss = seen ? Loss::kDead : Loss::kBroken;
  transmit(link(from, to), message, extra_ns);
}

void SimNetwork::close_connection(uint32_t a, uint32_t b) {
  break_side(a, b, Loss::kBroken, "connection reset");
  break_side(b, a, Loss::kBroken, "connection reset");
}

void SimNetwork::forget(uint32_t rank, uint32_t peer) {
  const bool tells_peer = connected(rank, peer);
  SimLink& out = link(rank, peer);
  if (out.closed) return;
  out.closed = true;
  out.broken = true;
  if (options_.adversarial && random_.chance(50)) {
    for (SimMessage* message = out.pending_head; message != nullptr;
         message = message->next_pending) {
      message->dropped = true;
    }
  }
  complete_pending(out);
  if (tells_peer) reset(rank, peer, "connection closed by peer", 0);
}

void SimNetwork::kill(uint32_t rank, int64_t seen_after_ns) {
  Process& process = processes_[rank];
  process.gone = true;
  process.seen = seen_after_ns != kNever;
  for (const Item& item : inbox_[rank]) {
    if (item.message != nullptr) drop(item.message);
  }
  inbox_[rank].clear();
  for (const uint32_t peer : process.peers) {
    SimLink& out = link(rank, peer);
    for (SimMessage* message = out.pending_head; message != nullptr;
         message = message->next_pending) {
      if (message->depart_ns > queue_.now_ns()) message->dropped = true;
    }
  }
  if (!process.seen) return;
  // By index: a reset may make the link back and so add peers.
  for (size_t i = 0; i < process.peers.size(); ++i) {
    if (!link(rank, process.peers[i]).broken) {
      reset(rank, process.peers[i], "connection reset", seen_after_ns);
    }
  }
}

void SimNetwork::leave(uint32_t rank) {
  Process& process = processes_[rank];
  process.gone = true;
  process.seen = true;
  for (const Item& item : inbox_[rank]) {
    if (item.message != nullptr) drop(item.message);
  }
  inbox_[rank].clear();
  for (size_t i = 0; i < process.peers.size(); ++i) {
    if (!link(rank, process.peers[i]).broken) {
      reset(rank, process.peers[i], "connection closed by peer", 0);
    }
  }
}

void SimNetwork::inject(uint32_t from, uint32_t to, std::span<const std::byte> bytes) {
  SimMessage* message = pool_.take(bytes.size());
  message->kind = WireKind::kStray;
  message->from = from;
  message->to = to;
  message->on_wire = true;
  if (!bytes.empty()) std::memcpy(message->payload().data(), bytes.data(), bytes.size());
  queue_.push(queue_.now_ns(), SimEventKind::kDeliver, to, message);
}

}  // namespace parallax
