// SPDX-License-Identifier: Apache-2.0
// The life of a simulated message: send, port, wire, port, inbox, consumption, acknowledgement,
// completion. What goes wrong on the way is in sim_network_faults.cc.
#include "transport/sim/sim_network.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace parallax {
namespace {

constexpr size_t kSampleBytesMax = 256;
constexpr uint64_t kSampleEvery = 37;
constexpr int kConsumedMessagePoison = 0xa5;
constexpr size_t kAckBytes = 32;  // on the wire

}  // namespace

SimNetwork::SimNetwork(const SimOptions& options, EventQueue& queue, SimMachines& machines)
    : options_(options),
      queue_(queue),
      machines_(machines),
      random_(SeededRandom(options.seed).fork(1)),
      host_of_(options.host_of) {
  if (host_of_.empty()) host_of_.assign(options.world, 0);
  PARALLAX_CHECK(host_of_.size() == options.world);
  const uint32_t hosts = *std::max_element(host_of_.begin(), host_of_.end()) + 1;
  inbox_.resize(options.world);
  processes_.resize(options.world);
  spikes_.resize(options.world);
  rank_tx_free_ns_.assign(options.world, 0);
  host_tx_free_ns_.assign(hosts, 0);
  host_rx_free_ns_.assign(hosts, 0);
}

const SimNetwork::SimLink* SimNetwork::find(uint32_t from, uint32_t to) const {
  const auto found = link_index_.find(key(from, to));
  return found == link_index_.end() ? nullptr : &links_[found->second];
}

SimNetwork::SimLink& SimNetwork::link(uint32_t from, uint32_t to) {
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

const LinkModel& SimNetwork::model(uint32_t from, uint32_t to) const {
  return host_of(from) == host_of(to) ? options_.intra_host : options_.inter_host;
}

int64_t SimNetwork::wire_ns(const LinkModel& model, size_t bytes) const {
  return static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / model.bytes_per_second);
}

int64_t& SimNetwork::tx_port(uint32_t from, uint32_t to) {
  return host_of(from) == host_of(to) ? rank_tx_free_ns_[from] : host_tx_free_ns_[host_of(from)];
}

bool SimNetwork::writable(uint32_t from, uint32_t to) const {
  if (to >= options_.world) return false;
  const SimLink* out = find(from, to);
  return out == nullptr || (!out->closed && out->in_flight < kSendsInFlightMax);
}

Status SimNetwork::send(uint32_t from, uint32_t to, std::span<const Segment> segments,
                        uint64_t cookie) {
  PARALLAX_CHECK(writable(from, to));
  PARALLAX_CHECK(segments.size() <= kSegmentsMax);
  if (processes_[from].gone) return {};  // killed in the middle of this run: nobody hears it
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
  message->pending = true;
  (out.pending_tail == nullptr ? out.pending_head : out.pending_tail->next_pending) = message;
  out.pending_tail = message;
  ++out.in_flight;

  ++messages_count_;
  bytes_count_ += bytes;
  if (host_of(from) != host_of(to)) inter_host_bytes_count_ += bytes;
  if (messages_count_ % kSampleEvery == 1) keep_sample(message->payload());
  machines_.charge_ns(from, model(from, to).overhead_ns);
  transmit(out, message);
  machines_.on_send(from);
  return {};
}

void SimNetwork::keep_sample(std::span<const std::byte> payload) {
  const size_t bytes = std::min(payload.size(), kSampleBytesMax);
  sample_.assign(payload.begin(), payload.begin() + static_cast<ptrdiff_t>(bytes));
}

// Behind what a silence holds back, or on its way.
void SimNetwork::transmit(SimLink& out, SimMessage* message, int64_t extra_ns) {
  message->on_wire = true;
  const int fault = silenced_by(out);
  if (fault == kNoFault && out.held.empty()) {
    depart(out, message, extra_ns);
    return;
  }
  if (out.held.empty()) held_links_.push_back(link_index_.at(key(out.from, out.to)));
  out.held.push_back(message);
  if (fault != kNoFault) machines_.on_fault_felt(fault, out.from);
}

void SimNetwork::depart(SimLink& out, SimMessage* message, int64_t extra_ns) {
  const LinkModel& wire = model(out.from, out.to);
  const size_t bytes = message->kind == WireKind::kData ? message->bytes : kAckBytes;
  const bool same_host = host_of(out.from) == host_of(out.to);
  int64_t start_ns = machines_.local_now_ns(out.from);
  if (message->kind == WireKind::kData) {  // acknowledgements slip in between
    int64_t& port_free_ns = tx_port(out.from, out.to);
    start_ns = std::max(start_ns, port_free_ns);
    port_free_ns = start_ns + wire.gap_ns + wire_ns(wire, bytes);
  }
  message->depart_ns = start_ns;
  int64_t arrive_ns = start_ns + wire.latency_ns + extra_ns + spike_ns(out.from);
  if (wire.jitter_ns > 0) arrive_ns += random_.between(0, wire.jitter_ns);
  // Nor does the end of a connection overtake what was sent on it.
  const bool has_port = options_.incast && !same_host && message->kind != WireKind::kAck;
  if (!has_port) arrive_ns += wire_ns(wire, bytes);
  arrive_ns = std::max(arrive_ns, out.arrive_floor_ns);
  out.arrive_floor_ns = arrive_ns;
  if (has_port) {
    queue_.push(arrive_ns, SimEventKind::kArrive, out.to, message);
  } else {
    out.deliver_floor_ns = std::max(out.deliver_floor_ns, arrive_ns);
    queue_.push(out.deliver_floor_ns, SimEventKind::kDeliver, out.to, message);
  }
}

// At the receiving host's port, which takes in one message at a time.
void SimNetwork::arrive(SimMessage* message) {
  const LinkModel& wire = model(message->from, message->to);
  int64_t& port_free_ns = host_rx_free_ns_[host_of(message->to)];
  int64_t taking_ns = wire_ns(wire, message->bytes);
  if (port_free_ns > queue_.now_ns()) {
    taking_ns += static_cast<int64_t>(static_cast<double>(taking_ns) * options_.incast_penalty);
  }
  port_free_ns = std::max(port_free_ns, queue_.now_ns()) + taking_ns;
  SimLink& in = link(message->from, message->to);
  in.deliver_floor_ns = std::max(in.deliver_floor_ns, port_free_ns);
  queue_.push(in.deliver_floor_ns, SimEventKind::kDeliver, message->to, message);
}

void SimNetwork::deliver(SimMessage* message) {
  const uint32_t to = message->to;
  const bool from_rank = message->from < options_.world;
  switch (message->kind) {
    case WireKind::kStray:
    case WireKind::kData:
      if (processes_[to].gone) {
        if (from_rank && processes_[to].seen) reset(to, message->from, "connection refused", 0);
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
        SimLink& out = link(message->from, message->to);
        unlink_pending(out, message);
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
  if (processes_[rank].gone) return;
  inbox_[rank].push_back(item);
  machines_.on_deliverable(rank);
}

// Completions come in order, so this is the head of the list, except behind messages that were
// dropped: those complete when the connection ends.
void SimNetwork::unlink_pending(SimLink& out, SimMessage* message) {
  SimMessage** place = &out.pending_head;
  SimMessage* before = nullptr;
  while (*place != message) {
    before = *place;
    place = &before->next_pending;
  }
  *place = message->next_pending;
  if (out.pending_tail == message) out.pending_tail = before;
  message->next_pending = nullptr;
  message->pending = false;
}

bool SimNetwork::poll(uint32_t rank, Receiver& receiver) {
  bool moved = false;
  for (uint32_t n = 0; n < kSimPollBatch && !inbox_[rank].empty(); ++n) {
    const Item item = inbox_[rank].front();
    inbox_[rank].pop_front();
    moved = true;
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

void SimNetwork::hand_over(uint32_t rank, SimMessage* message, Receiver& receiver) {
  const uint32_t from = message->from;
  if (from < options_.world && link(rank, from).closed) {
    drop(message);
    return;
  }
  check_borrow(message);
  if (message->kind == WireKind::kData) machines_.charge_ns(rank, model(from, rank).overhead_ns);
  const auto kept = remembered_.find(rank);
  if (kept != remembered_.end() && message->kind == WireKind::kData) {
    kept->second.from = from;
    kept->second.bytes.assign(message->payload().begin(), message->payload().end());
  }
  receiver.on_message(from, message->payload());
  if (options_.adversarial && message->bytes > 0) {
    std::memset(message->payload().data(), kConsumedMessagePoison, message->bytes);
  }
  if (message->kind == WireKind::kStray) {
    drop(message);
    return;
  }
  message->kind = WireKind::kAck;
  if (processes_[rank].gone) {
    drop(message);
  } else {
    transmit(link(rank, from), message);
  }
}

// The sender promised to leave its segments alone until completion. A sender that is gone, or was
// told of the completion, may have freed them.
void SimNetwork::check_borrow(SimMessage* message) {
  if (!options_.adversarial || !message->pending || processes_[message->from].gone) return;
  const std::byte* payload = message->payload().data();
  for (uint32_t i = 0; i < message->segment_count; ++i) {
    const Segment& segment = message->segments[i];
    if (segment.bytes > 0 && std::memcmp(payload, segment.data, segment.bytes) != 0) {
      ++borrow_violations_;
    }
    payload += segment.bytes;
  }
}

}  // namespace parallax
