// SPDX-License-Identifier: Apache-2.0
// SimNetwork: the wires between simulated ranks: connections, credits, ports, silences, losses. It
// owns every message and connection; SimWorld owns it and feeds it events. One thread; never
// blocks.
//
// A connection is two SimLinks, one per direction, made on first use. A link belongs to its sender:
// link(a, b) holds what a knows of b (credits, whether b is lost), and carries a's messages, a's
// acknowledgements of b's messages, and a's reset, all in order.
#ifndef PARALLAX_TRANSPORT_SIM_SIM_NETWORK_H_
#define PARALLAX_TRANSPORT_SIM_SIM_NETWORK_H_

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/seeded_random.h"
#include "base/status.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/sim_message.h"
#include "transport/sim/sim_options.h"
#include "transport/transport.h"

namespace parallax {

inline constexpr int kNoFault = -1;
inline constexpr uint32_t kSimPollBatch = 64;  // deliveries in one poll

// What the network needs of the machines at its ends.
class SimMachines {
 public:
  virtual int64_t local_now_ns(uint32_t rank) const = 0;     // with the work charged so far
  virtual void charge_ns(uint32_t rank, int64_t ns) = 0;     // CPU time
  virtual void on_deliverable(uint32_t rank) = 0;            // its inbox is not empty
  virtual void on_send(uint32_t rank) = 0;                   // it sent a message
  virtual void on_fault_felt(int fault, uint32_t rank) = 0;  // a fault changed something

 protected:
  ~SimMachines() = default;
};

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

  // Faults. `fault` is handed back through on_fault_felt when it first has an effect.
  void silence(uint32_t from, uint32_t to, int64_t until_ns, int fault);
  void partition(std::vector<bool> side_of_host, int64_t until_ns, int fault);
  void delay_from(uint32_t rank, int64_t spike_ns_max, int64_t until_ns, int fault);
  bool connected(uint32_t a, uint32_t b) const;
  uint32_t nth_peer(uint32_t rank, uint64_t n) const;  // rank itself if it has no peer yet
  void close_connection(uint32_t a, uint32_t b);       // both sides are told at once
  // The rank's process is gone: what it had not put on the wire is lost; peers see it after
  // `seen_after_ns`, or never (kNever: the machine lost power).
  void kill(uint32_t rank, int64_t seen_after_ns);
  // The process ended in order: what it sent still arrives, then its peers see the end.
  void leave(uint32_t rank);
  // Bytes that nobody sent, as if from `from`, which may be no rank at all.
  void inject(uint32_t from, uint32_t to, std::span<const std::byte> bytes);
  // From now on the last message that the rank consumed is kept, for a replay.
  void remember(uint32_t rank) { remembered_.try_emplace(rank); }
  struct Remembered {
    uint32_t from = 0;
    std::vector<std::byte> bytes;  // empty before the first
  };
  const Remembered& remembered(uint32_t rank) const { return remembered_.at(rank); }
  // A copy of the head of some recent message, to be mangled; empty before the first.
  std::span<const std::byte> sample() const { return sample_; }

  uint64_t messages_count() const { return messages_count_; }
  uint64_t bytes_count() const { return bytes_count_; }
  uint64_t inter_host_bytes_count() const { return inter_host_bytes_count_; }
  uint64_t links_count() const { return links_.size(); }
  // Sends whose borrowed segments were changed before completion: a bug of the caller.
  uint64_t borrow_violations() const { return borrow_violations_; }

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
  struct SimLink {
    uint32_t from = 0;
    uint32_t to = 0;
    uint32_t in_flight = 0;
    bool broken = false;  // from's side of the connection is gone; from is being told
    bool closed = false;  // from knows, or forgot the peer
    int fault = kNoFault;
    int64_t silent_until_ns = 0;
    int64_t arrive_floor_ns = 0;  // FIFO: no message overtakes another
    int64_t deliver_floor_ns = 0;
    SimMessage* pending_head = nullptr;
    SimMessage* pending_tail = nullptr;
    std::vector<SimMessage*> held;  // by a silence, in order
  };
  struct Partition {
    std::vector<bool> side_of_host;
    int64_t until_ns = 0;
    int fault = kNoFault;
  };
  struct Spike {
    int64_t spike_ns_max = 0;
    int64_t until_ns = 0;
    int fault = kNoFault;
  };
  struct Process {
    bool gone = false;
    bool seen = false;            // whoever sends to it is answered with a reset
    std::vector<uint32_t> peers;  // in order of first contact
  };

  static uint64_t key(uint32_t from, uint32_t to) { return uint64_t{from} << 32 | to; }
  uint32_t host_of(uint32_t rank) const { return host_of_[rank]; }
  const SimLink* find(uint32_t from, uint32_t to) const;
  SimLink& link(uint32_t from, uint32_t to);
  const LinkModel& model(uint32_t from, uint32_t to) const;
  int64_t wire_ns(const LinkModel& model, size_t bytes) const;
  int64_t& tx_port(uint32_t from, uint32_t to);
  int silenced_by(const SimLink& link) const;

  void transmit(SimLink& link, SimMessage* message, int64_t extra_ns = 0);
  void depart(SimLink& link, SimMessage* message, int64_t extra_ns);
  int64_t spike_ns(uint32_t from);
  void push_item(uint32_t rank, const Item& item);
  void break_side(uint32_t rank, uint32_t peer, Loss loss, const char* why);
  void complete_pending(SimLink& link);
  void unlink_pending(SimLink& link, SimMessage* message);
  void drop(SimMessage* message);
  void reset(uint32_t from, uint32_t to, const char* why, int64_t extra_ns);
  void check_borrow(SimMessage* message);
  void hand_over(uint32_t rank, SimMessage* message, Receiver& receiver);
  void keep_sample(std::span<const std::byte> payload);

  const SimOptions& options_;
  EventQueue& queue_;
  SimMachines& machines_;
  SeededRandom random_;
  std::vector<uint32_t> host_of_;

  MessagePool pool_;
  std::deque<SimLink> links_;
  std::unordered_map<uint64_t, uint32_t> link_index_;
  std::vector<std::deque<Item>> inbox_;
  std::vector<Process> processes_;
  std::vector<int64_t> host_tx_free_ns_, host_rx_free_ns_, rank_tx_free_ns_;

  std::vector<Partition> partitions_;
  std::vector<Spike> spikes_;  // by rank
  std::vector<uint32_t> held_links_;

  std::vector<std::byte> sample_;
  std::map<uint32_t, Remembered> remembered_;
  uint64_t messages_count_ = 0;
  uint64_t bytes_count_ = 0;
  uint64_t inter_host_bytes_count_ = 0;
  uint64_t borrow_violations_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_SIM_NETWORK_H_
