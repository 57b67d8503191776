// SPDX-License-Identifier: Apache-2.0
// The life of a simulated message: send, port, wire, port, inbox, consumption, acknowledgement,
// completion. A silence holds messages back in order, as a reliable protocol over a silent wire
// does; resets end connections; processes vanish.
#include "transport/sim/sim_network.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace parallax {
namespace {

constexpr int kConsumedMessagePoison = 0xa5;
constexpr size_t kAckBytes = 32;  // on the wire

}  // namespace

SimNetwork::SimNetwork(const SimOptions& options, EventQueue& queue, SimMachines& machines)
    : options_(options),
      queue_(queue),
      machines_(machines),
      host_of_(options.host_of.empty() ? std::vector<uint32_t>(options.world) : options.host_of),
      random_(SeededRandom(options.seed).fork(1)),
      connections_(options.world),
      ports_(options, host_of_),
      interference_(queue, machines, random_, host_of_),
      inbox_(options.world) {
  PARALLAX_CHECK(host_of_.size() == options.world);
}

bool SimNetwork::writable(uint32_t from, uint32_t to) const {
  if (to >= options_.world) return false;
  const SimLink* out = connections_.find(from, to);
  return out == nullptr || (!out->closed && out->in_flight < kSendsInFlightMax);
}

Status SimNetwork::send(uint32_t from, uint32_t to, std::span<const Segment> segments,
                        uint64_t cookie) {
  PARALLAX_CHECK(writable(from, to));
  PARALLAX_CHECK(segments.size() <= kSegmentsMax);
  if (process(from).gone) return {};  // killed in the middle of this run: nobody hears it
  SimLink& out = link(from, to);
  if (out.broken) return peer_lost("the simulated connection is down");
  size_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.bytes;
  PARALLAX_CHECK(bytes <= options_.message_bytes_max);

  SimMessage* message = pool_.take(bytes);
  message->from = from;
  message->to = to;
  message->cookie = cookie;
  message->offset = options_.adversarial ? random_.below(kPayloadOffsetMax) : 0;
  message->segment_count = static_cast<uint32_t>(segments.size());
  std::byte* payload = message->payload().data();
  for (size_t i = 0; i < segments.size(); ++i) {
    message->segments[i] = segments[i];
    if (segments[i].bytes > 0) std::memcpy(payload, segments[i].data, segments[i].bytes);
    payload += segments[i].bytes;
  }
  out.add_pending(message);
  seen_.sent(message->payload());
  machines_.charge_ns(from, ports_.model(from, to).overhead_ns);
  transmit(out, message);
  machines_.on_send(from);
  return {};
}

// Behind what a silence holds back, or on its way.
void SimNetwork::transmit(SimLink& out, SimMessage* message, int64_t extra_ns) {
  message->on_wire = true;
  const int fault = interference_.silencing(out);
  if (fault == kNoFault && out.held.empty()) {
    depart(out, message, extra_ns);
    return;
  }
  if (out.held.empty()) held_links_.push_back(&out);
  out.held.push_back(message);
  if (fault != kNoFault) machines_.on_fault_felt(fault, out.from);
}

void SimNetwork::depart(SimLink& out, SimMessage* message, int64_t extra_ns) {
  const LinkModel& wire = ports_.model(out.from, out.to);
  const size_t bytes = message->kind == WireKind::kData ? message->bytes : kAckBytes;
  int64_t start_ns = machines_.local_now_ns(out.from);
  // Acknowledgements slip in between.
  if (message->kind == WireKind::kData) start_ns = ports_.send(out.from, out.to, bytes, start_ns);
  message->depart_ns = start_ns;
  int64_t arrive_ns = start_ns + wire.latency_ns + extra_ns + interference_.spike_ns(out.from);
  if (wire.jitter_ns > 0) arrive_ns += random_.between(0, wire.jitter_ns);
  // Nor does the end of a connection overtake what was sent on it.
  const bool has_port =
      options_.incast && !ports_.same_host(out.from, out.to) && message->kind != WireKind::kAck;
  if (!has_port) arrive_ns += SimPorts::wire_ns(wire, bytes);
  arrive_ns =
      std::max(arrive_ns, ports_.cross(out.from, out.to, bytes, start_ns) + wire.latency_ns);
  arrive_ns = std::max(arrive_ns, out.arrive_floor_ns);
  out.arrive_floor_ns = arrive_ns;
  if (has_port) {
    queue_.push(arrive_ns, SimEventKind::kArrive, out.to, message);
  } else {
    out.deliver_floor_ns = std::max(out.deliver_floor_ns, arrive_ns);
    queue_.push(out.deliver_floor_ns, SimEventKind::kDeliver, out.to, message);
  }
}

// At the receiving host's port.
void SimNetwork::arrive(SimMessage* message) {
  const int64_t taken_ns =
      ports_.take_in(message->from, message->to, message->bytes, queue_.now_ns());
  SimLink& in = link(message->from, message->to);
  in.deliver_floor_ns = std::max(in.deliver_floor_ns, taken_ns);
  queue_.push(in.deliver_floor_ns, SimEventKind::kDeliver, message->to, message);
}

void SimNetwork::deliver(SimMessage* message) {
  const uint32_t to = message->to;
  const bool from_rank = message->from < options_.world;
  switch (message->kind) {
    case WireKind::kStray:
    case WireKind::kData:
      if (process(to).gone) {
        if (from_rank && process(to).seen) reset(to, message->from, "connection refused", 0);
        drop(message);
      } else if (message->dropped || (from_rank && link(to, message->from).broken)) {
        drop(message);
      } else {
        push_item(to, {.kind = ItemKind::kMessage, .peer = message->from, .message = message});
      }
      break;
    case WireKind::kAck: {  // from and to are still those of the data
      message->on_wire = false;
      if (message->pending) {
        link(message->from, message->to).remove_pending(message);
        push_item(message->from,
                  {.kind = ItemKind::kSent, .peer = message->to, .cookie = message->cookie});
      }
      pool_.release_if_unused(message);
      break;
    }
    case WireKind::kReset:
      break_side(to, message->from, message->loss, message->why);
      drop(message);
      break;
  }
}

void SimNetwork::drop(SimMessage* message) {
  message->on_wire = false;
  pool_.release_if_unused(message);
}

void SimNetwork::push_item(uint32_t rank, const Item& item) {
  if (process(rank).gone) return;
  inbox_[rank].push_back(item);
  machines_.on_deliverable(rank);
}

bool SimNetwork::poll(uint32_t rank, Receiver& receiver) {
  bool moved = false;
  for (uint32_t n = 0; n < kSimPollBatch && !inbox_[rank].empty(); ++n) {
    const Item item = inbox_[rank].front();
    inbox_[rank].pop_front();
    moved = true;
    if (item.kind == ItemKind::kMessage && place_half(item.message, receiver)) {
      put_off(rank, item);
      continue;
    }
    switch (item.kind) {
      case ItemKind::kMessage:
        hand_over(rank, item.message, receiver);
        break;
      case ItemKind::kSent:
        --link(rank, item.peer).in_flight;
        receiver.on_sent(item.cookie);
        break;
      case ItemKind::kLost: {
        SimLink& out = link(rank, item.peer);
        if (out.closed) break;  // forgotten meanwhile
        out.closed = true;
        receiver.on_lost(item.peer, item.loss, item.why);
        break;
      }
    }
  }
  return moved;
}

// Behind what others than its sender have sent.
void SimNetwork::put_off(uint32_t rank, const Item& item) {
  std::deque<Item>& inbox = inbox_[rank];
  const auto of_sender = [from = item.message->from](const Item& each) {
    return (each.message != nullptr ? each.message->from : each.peer) == from;
  };
  inbox.insert(std::find_if(inbox.begin(), inbox.end(), of_sender), item);
}

// Of messages between hosts, as a stream of bytes brings them: half of the rest first, the other
// behind what others have sent meanwhile. True: the message is not all there yet.
bool SimNetwork::place_half(SimMessage* message, Receiver& receiver) {
  const uint32_t from = message->from, to = message->to;
  const bool by_halves = options_.adversarial && message->kind == WireKind::kData &&
                         message->bytes > kMessageHeadBytes + 1 && host_of_[from] != host_of_[to];
  if (!by_halves || message->dropped || link(to, from).closed) return false;
  const std::span<const std::byte> payload = message->payload();
  const std::span<const std::byte> rest = payload.subspan(kMessageHeadBytes);
  std::byte* const place = receiver.place(from, payload.first(kMessageHeadBytes), rest.size());
  if (place == nullptr) return false;
  const bool first = message->placed == 0;
  const size_t half = rest.size() / 2;
  const std::span<const std::byte> piece = first ? rest.first(half) : rest.subspan(half);
  std::memcpy(place + (first ? 0 : half), piece.data(), piece.size());
  message->placed += piece.size();
  return first;
}

void SimNetwork::hand_over(uint32_t rank, SimMessage* message, Receiver& receiver) {
  const uint32_t from = message->from;
  if (from < options_.world && link(rank, from).closed) {
    drop(message);
    return;
  }
  check_borrow(message);
  if (message->kind == WireKind::kData) {
    machines_.charge_ns(rank, ports_.model(from, rank).overhead_ns);
    seen_.consumed(rank, from, message->payload());
  }
  const size_t placed = std::exchange(message->placed, 0);
  if (placed == 0) {
    receiver.on_message(from, message->payload());
  } else if (placed < message->bytes - kMessageHeadBytes) {
    ++spoiled_messages_;
  } else {
    ++placed_messages_;
    receiver.on_placed(from, message->payload().first(kMessageHeadBytes), placed);
  }
  if (options_.adversarial && message->bytes > 0) {
    std::memset(message->payload().data(), kConsumedMessagePoison, message->bytes);
  }
  if (message->kind == WireKind::kStray) {
    drop(message);
    return;
  }
  message->kind = WireKind::kAck;
  if (process(rank).gone) {
    drop(message);
  } else {
    transmit(link(rank, from), message);
  }
}

// The sender promised to leave its segments alone until completion. A sender that is gone, or was
// told of the completion, may have freed them.
void SimNetwork::check_borrow(SimMessage* message) {
  if (!options_.adversarial || !message->pending || process(message->from).gone) return;
  const std::byte* payload = message->payload().data();
  for (uint32_t i = 0; i < message->segment_count; ++i) {
    const Segment& segment = message->segments[i];
    if (segment.bytes > 0 && std::memcmp(payload, segment.data, segment.bytes) != 0) {
      ++borrow_violations_;
    }
    payload += segment.bytes;
  }
}

// What a silence that is over held back goes on its way.
void SimNetwork::heal() {
  interference_.forget_past();
  std::vector<SimLink*> still_held;
  for (SimLink* out : std::exchange(held_links_, {})) {
    if (interference_.silencing(*out) != kNoFault) {
      still_held.push_back(out);
      continue;
    }
    for (SimMessage* message : std::exchange(out->held, {})) {
      // A kernel still sends what a dead process left in its socket; a machine without power not.
      if (process(out->from).gone && !process(out->from).seen) {
        drop(message);
      } else {
        depart(*out, message, 0);
      }
    }
  }
  held_links_.insert(held_links_.end(), still_held.begin(), still_held.end());
}

// ---- ends of connections and processes

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
  const bool seen = process(from).gone && ports_.same_host(from, to);
  message->loss = seen ? Loss::kDead : Loss::kBroken;
  transmit(link(from, to), message, extra_ns);
}

void SimNetwork::close_connection(uint32_t a, uint32_t b) {
  break_side(a, b, Loss::kBroken, "connection reset");
  break_side(b, a, Loss::kBroken, "connection reset");
}

void SimNetwork::forget(uint32_t rank, uint32_t peer) {
  const bool tells_peer = connections_.connected(rank, peer);
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
  process(rank).gone = true;
  process(rank).seen = seen_after_ns != kNever;
  drop_inbox(rank);
  for (const uint32_t peer : process(rank).peers) {
    for (SimMessage* message = link(rank, peer).pending_head; message != nullptr;
         message = message->next_pending) {
      if (message->depart_ns > queue_.now_ns()) message->dropped = true;
    }
  }
  if (seen_after_ns != kNever) reset_all(rank, "connection reset", seen_after_ns);
}

void SimNetwork::leave(uint32_t rank) {
  process(rank).gone = true;
  process(rank).seen = true;
  drop_inbox(rank);
  reset_all(rank, "connection closed by peer", 0);
}

void SimNetwork::drop_inbox(uint32_t rank) {
  for (const Item& item : inbox_[rank]) {
    if (item.message != nullptr) drop(item.message);
  }
  inbox_[rank].clear();
}

void SimNetwork::reset_all(uint32_t from, const char* why, int64_t extra_ns) {
  // By index: a reset may make the link back and so add peers.
  const std::vector<uint32_t>& peers = process(from).peers;
  for (size_t i = 0; i < peers.size(); ++i) {
    if (!link(from, peers[i]).broken) reset(from, peers[i], why, extra_ns);
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
