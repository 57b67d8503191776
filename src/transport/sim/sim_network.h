// SPDX-License-Identifier: Apache-2.0
// SimNetwork: the life of a simulated message, from one rank to another, and the ends of
// connections and processes. It owns every message and connection; SimWorld owns it and feeds it
// events. One thread; never blocks.
#ifndef PARALLAX_TRANSPORT_SIM_SIM_NETWORK_H_
#define PARALLAX_TRANSPORT_SIM_SIM_NETWORK_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/seeded_random.h"
#include "base/status.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/interference.h"
#include "transport/sim/seen_messages.h"
#include "transport/sim/sim_connections.h"
#include "transport/sim/sim_machines.h"
#include "transport/sim/sim_message.h"
#include "transport/sim/sim_options.h"
#include "transport/sim/sim_ports.h"
#include "transport/transport.h"

namespace parallax {

inline constexpr uint32_t kSimPollBatch = 64;  // deliveries in one poll

class SimNetwork {
 public:
  SimNetwork(const SimOptions& options, EventQueue& queue, SimMachines& machines);

  // The transport of one rank.
  bool writable(uint32_t from, uint32_t to) const;
  Status send(uint32_t from, uint32_t to, std::span<const Segment> segments, uint64_t cookie);
  bool poll(uint32_t rank, Receiver& receiver);
  void forget(uint32_t rank, uint32_t peer);
  bool deliverable(uint32_t rank) const { return !inbox_[rank].empty(); }

  // Events of SimWorld's loop.
  void arrive(SimMessage* message);
  void deliver(SimMessage* message);
  void heal();

  // Faults: what disturbs the wires, and below what ends something or comes from nowhere.
  Interference& interference() { return interference_; }
  SimConnections& connections() { return connections_; }
  SeenMessages& seen() { return seen_; }
  void close_connection(uint32_t a, uint32_t b);  // both sides are told at once
  // The rank's process is gone: what it had not put on the wire is lost; peers see it after
  // `seen_after_ns`, or never (kNever: the machine lost power).
  void kill(uint32_t rank, int64_t seen_after_ns);
  // The process ended in order: what it sent still arrives, then its peers see the end.
  void leave(uint32_t rank);
  // Bytes that nobody sent, as if from `from`, which may be no rank at all.
  void inject(uint32_t from, uint32_t to, std::span<const std::byte> bytes);

  uint64_t messages_count() const { return seen_.sent_count(); }
  // Between domains of memory of a host.
  uint64_t across_bytes() const { return ports_.across_bytes(); }
  uint64_t bytes_count() const { return seen_.sent_bytes(); }
  // Sends whose borrowed segments were changed before completion: a bug of the caller.
  uint64_t borrow_violations() const { return borrow_violations_; }
  // Messages that were received where they went; and of which a part was, and then no more.
  uint64_t placed_messages() const { return placed_messages_; }
  uint64_t spoiled_messages() const { return spoiled_messages_; }

 private:
  enum class ItemKind : uint8_t { kMessage, kSent, kLost };
  struct Item {
    ItemKind kind = ItemKind::kMessage;
    uint32_t peer = 0;
    uint64_t cookie = 0;
    SimMessage* message = nullptr;
    const char* why = "";
    Loss loss = Loss::kBroken;
  };

  SimLink& link(uint32_t from, uint32_t to) { return connections_.link(from, to); }
  SimProcess& process(uint32_t rank) { return connections_.process(rank); }

  void transmit(SimLink& link, SimMessage* message, int64_t extra_ns = 0);
  void depart(SimLink& link, SimMessage* message, int64_t extra_ns);
  void push_item(uint32_t rank, const Item& item);
  void put_off(uint32_t rank, const Item& item);
  bool place_half(SimMessage* message, Receiver& receiver);
  void hand_over(uint32_t rank, SimMessage* message, Receiver& receiver);
  void check_borrow(SimMessage* message);
  void drop(SimMessage* message);
  void drop_inbox(uint32_t rank);

  void break_side(uint32_t rank, uint32_t peer, Loss loss, const char* why);
  void complete_pending(SimLink& link);
  void reset(uint32_t from, uint32_t to, const char* why, int64_t extra_ns);
  void reset_all(uint32_t from, const char* why, int64_t extra_ns);

  const SimOptions& options_;
  EventQueue& queue_;
  SimMachines& machines_;
  const std::vector<uint32_t> host_of_;
  SeededRandom random_;

  MessagePool pool_;
  SimConnections connections_;
  SimPorts ports_;
  Interference interference_;
  SeenMessages seen_;
  std::vector<std::deque<Item>> inbox_;  // by rank
  std::vector<SimLink*> held_links_;     // with messages that a silence holds back
  uint64_t borrow_violations_ = 0;
  uint64_t placed_messages_ = 0;
  uint64_t spoiled_messages_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_SIM_NETWORK_H_
