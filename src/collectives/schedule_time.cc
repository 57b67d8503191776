// SPDX-License-Identifier: Apache-2.0
// Schedules on a virtual clock. See schedule_time.h.
#include "collectives/schedule_time.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/check.h"
#include "collectives/schedule_wiring.h"
#include "message/wire.h"

namespace parallax {

namespace {

// Pieces of the longest range: enough that a hop does not wait for the one before it to end.
constexpr uint64_t kPiecesMax = 16;
constexpr uint64_t kMessageBytes = 64 * 1024;  // about what transports take

}  // namespace

ScheduleTime::ScheduleTime(const std::vector<Schedule>& schedules, uint64_t elements,
                           const HostMap& hosts)
    : elements_(elements),
      host_of_(hosts.host_of.begin(), hosts.host_of.end()),
      domain_of_(hosts.domain_of.begin(), hosts.domain_of.end()),
      hosts_(static_cast<uint32_t>(hosts.ranks_of.size())),
      inputs_(schedules.size()) {
  domain_of_.resize(host_of_.size());  // where no host has several
  std::vector<ScheduleWiring> wirings;
  std::vector<uint32_t> first_operation, first_cell;
  uint32_t operations = 0, cells = 0;
  for (const Schedule& schedule : schedules) {
    const ScheduleWiring& wiring = wirings.emplace_back(schedule);
    first_operation.push_back(operations);
    first_cell.push_back(cells);
    operations += static_cast<uint32_t>(wiring.ops().size());
    cells += static_cast<uint32_t>(wiring.cells().size());
  }
  for (uint32_t rank = 0; rank < schedules.size(); ++rank) {
    const ScheduleWiring& wiring = wirings[rank];
    for (const ScheduleWiring::Cell& cell : wiring.cells()) {
      Cell& made = cells_.emplace_back(Cell{std::max(1u, cell.addends)});
      for (const uint32_t reader : cell.readers) {
        made.readers.push_back(first_operation[rank] + reader);
      }
    }
    for (uint32_t i = 0; i < wiring.ops().size(); ++i) {
      const Op& op = wiring.ops()[i];
      Operation& made = operations_.emplace_back();
      made.kind = op.kind;
      made.count = op.range.count;
      longest_ = std::max(longest_, op.range.count);
      if (op.kind == OpKind::kSend) {
        const uint32_t received = wirings[op.peer].find_receive(rank, op.stage, wiring.on_wire(op));
        PARALLAX_CHECK(received != ScheduleWiring::kNone);
        made.peer = op.peer;
        made.received = first_operation[op.peer] + received;
      } else {
        made.to = first_cell[rank] + wiring.cells_of(i).to;
        made.own = op.kind == OpKind::kAdd && op.from == kInput;
      }
      if (!is_receive(op) && op.from == kInput) {
        inputs_[rank].push_back(first_operation[rank] + i);
      }
    }
  }
}

class ScheduleTime::Run {
 public:
  Run(const ScheduleTime& schedules, const TimedElements& what)
      : of_(schedules),
        what_(what),
        pieces_(std::clamp<uint64_t>(bytes_of(schedules.longest_) / kMessageBytes, 1, kPiecesMax)),
        ranks_(schedules.inputs_.size()),
        out_free_(schedules.hosts_),
        in_free_(schedules.hosts_),
        bus_free_(schedules.hosts_) {
    left_.reserve(schedules.cells_.size() * pieces_);
    for (const Cell& cell : schedules.cells_) {
      left_.insert(left_.end(), pieces_, cell.addends);
    }
  }

  uint64_t run() {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) begin(rank);
    uint64_t end = 0;
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      Rank& rank = ranks_[event.rank];
      if (event.message != kWake) {
        rank.inbox.push_back(event.message);
        if (rank.awake) continue;
        rank.awake = true;
        push({std::max(event.at, rank.free), event.rank, kWake});
        continue;
      }
      rank.awake = false;
      rank.free = std::max(rank.free, event.at);
      take_in(event.rank);
    }
    for (const Rank& rank : ranks_) end = std::max(end, rank.free);
    return end;
  }

 private:
  static constexpr uint32_t kWake = UINT32_MAX;
  struct Event {
    uint64_t at;
    uint32_t rank;
    uint32_t message;
    uint64_t number = 0;
    bool operator<(const Event& other) const {  // for the queue, which has its greatest on top
      return std::tie(at, number) > std::tie(other.at, other.number);
    }
  };
  struct Part {
    uint32_t operation;
    uint32_t piece;
  };
  struct Message {
    uint64_t overhead_ps = 0;  // of the receiver
    std::vector<Part> parts = {};
  };
  struct Rank {
    uint64_t free = 0;
    bool awake = false;
    std::vector<uint32_t> inbox = {};  // messages
  };

  // The job's, of so many of the schedules', which are few.
  uint64_t bytes_of(uint64_t count) const {
    const uint64_t whole = what_.elements / of_.elements_, rest = what_.elements % of_.elements_;
    return (count * whole + count * rest / of_.elements_) * what_.element_bytes;
  }
  uint64_t bytes_of(const Part& part) const {
    return bytes_of(of_.operations_[part.operation].count) / pieces_;
  }

  void push(Event event) {
    event.number = ++events_pushed_;
    events_.push(event);
  }

  void begin(uint32_t rank) {
    for (uint32_t piece = 0; piece < pieces_; ++piece) {
      for (const uint32_t operation : of_.inputs_[rank]) read(rank, {operation, piece});
      send_all(rank);
    }
  }

  void take_in(uint32_t at) {
    Rank& rank = ranks_[at];
    for (const uint32_t message : rank.inbox) {
      rank.free += messages_[message].overhead_ps;
      for (const Part& part : messages_[message].parts) bring(at, part);
      messages_[message].parts.clear();
    }
    rank.inbox.clear();
    send_all(at);
  }

  // Adds or copies a piece, and goes on with what it completes.
  void bring(uint32_t rank, const Part& part) {
    const Operation& op = of_.operations_[part.operation];
    const bool adds = op.kind == OpKind::kAdd || op.kind == OpKind::kReceiveSum;
    const uint64_t byte_ps = !adds    ? what_.constants.copy_byte_ps
                             : op.own ? 0
                                      : what_.constants.sum_byte_ps[size_t(what_.sum)];
    ranks_[rank].free += bytes_of(part) * byte_ps;
    if (--left_[op.to * pieces_ + part.piece] > 0) return;
    for (const uint32_t reader : of_.cells_[op.to].readers) read(rank, {reader, part.piece});
  }
  void read(uint32_t rank, const Part& part) {
    if (of_.operations_[part.operation].kind == OpKind::kSend) {
      to_send_.push_back(part);
    } else {
      bring(rank, part);
    }
  }

  // What has been let go, a message for each peer, in the order of the first for each.
  void send_all(uint32_t rank) {
    const auto peer_of = [this](const Part& part) { return of_.operations_[part.operation].peer; };
    while (!to_send_.empty()) {
      const uint32_t peer = peer_of(to_send_.front());
      const auto rest =
          std::stable_partition(to_send_.begin(), to_send_.end(),
                                [&](const Part& part) { return peer_of(part) == peer; });
      send(rank, peer, {to_send_.begin(), rest});
      to_send_.erase(to_send_.begin(), rest);
    }
  }

  void send(uint32_t from, uint32_t to, std::vector<Part> parts) {
    uint64_t bytes = 0;
    for (Part& part : parts) {
      bytes += bytes_of(part) + sizeof(SectionHeader);
      part.operation = of_.operations_[part.operation].received;
    }
    const bool inside = of_.host_of_[from] == of_.host_of_[to];
    const LinkCost& link = inside ? what_.constants.inside : what_.constants.between;
    const uint64_t overhead_ps =
        link.overhead_ns * kPsPerNs * std::max<uint64_t>(1, bytes / kMessageBytes);
    uint64_t& free = ranks_[from].free;
    free += overhead_ps;
    const uint64_t moving = bytes * link.byte_ps;
    uint64_t arrival = 0;
    if (inside) {
      const uint64_t start = free;
      free += moving;
      arrival = free + link.latency_ns * kPsPerNs;
      if (of_.domain_of_[from] != of_.domain_of_[to]) {
        uint64_t& bus = bus_free_[of_.host_of_[from]];
        bus = std::max(start, bus) + bytes * what_.constants.across_byte_ps;
        arrival = std::max(arrival, bus + link.latency_ns * kPsPerNs);
      }
    } else {
      uint64_t& out = out_free_[of_.host_of_[from]];
      uint64_t& in = in_free_[of_.host_of_[to]];
      const uint64_t start = std::max(free, out);
      out = start + moving;
      in = std::max(in, start + link.latency_ns * kPsPerNs) + moving;
      arrival = in;
    }
    messages_.push_back({overhead_ps, std::move(parts)});
    push({arrival, to, static_cast<uint32_t>(messages_.size() - 1)});
  }

  static constexpr uint64_t kPsPerNs = 1000;

  const ScheduleTime& of_;
  const TimedElements& what_;
  const uint64_t pieces_;
  std::vector<Rank> ranks_;
  std::vector<uint64_t> out_free_, in_free_;  // ports, by host
  std::vector<uint64_t> bus_free_;            // between domains, by host
  std::vector<uint32_t> left_;                // by cell and piece: addends that are still to come
  std::vector<Message> messages_;
  std::vector<Part> to_send_;
  std::priority_queue<Event> events_;
  uint64_t events_pushed_ = 0;
};

uint64_t ScheduleTime::picoseconds(const TimedElements& what) const {
  return Run(*this, what).run();
}

}  // namespace parallax
