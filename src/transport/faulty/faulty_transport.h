// SPDX-License-Identifier: Apache-2.0
// FaultyTransport: a decorator that makes any transport late, silent or broken, by a seed. It owns
// the transport it wraps and copies of what it holds back; it keeps the transport's contract (order
// per peer, every send completes once, loss reported once), so whatever goes wrong above it is the
// engine's fault. Threads and blocking as in Transport; while it holds something back, arm()
// answers false, so its user spins.
#ifndef PARALLAX_TRANSPORT_FAULTY_FAULTY_TRANSPORT_H_
#define PARALLAX_TRANSPORT_FAULTY_FAULTY_TRANSPORT_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "transport/sim/seeded_random.h"
#include "transport/transport.h"

namespace parallax {

// Messages to or from one peer (or kAnyPeer) are held back between two times.
struct FaultySilence {
  uint32_t peer = 0;
  bool outgoing = true;
  bool incoming = true;
  int64_t from_ns = 0;
  int64_t until_ns = kNever;
};

inline constexpr uint32_t kAnyPeer = UINT32_MAX;

struct FaultyOptions {
  uint64_t seed = 1;
  uint32_t delay_percent = 0;  // of the messages sent
  int64_t delay_ns_max = 0;
  std::vector<FaultySilence> silences;
  uint64_t close_at_send = 0;  // the connection of the n-th send breaks; 0: never
};

class FaultyTransport final : public Transport, private Receiver {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, const Clock& clock, FaultyOptions options);

  std::string_view name() const override { return inner_->name(); }
  size_t message_bytes_max() const override { return inner_->message_bytes_max(); }
  bool writable(uint32_t to) const override;
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t token) override;
  bool poll(Receiver& receiver) override;
  int wait_fd() const override { return inner_->wait_fd(); }
  bool arm() override;
  void forget(uint32_t rank) override;

  // What was disturbed so far.
  uint64_t delayed_count() const { return delayed_count_; }
  uint64_t silenced_count() const { return silenced_count_; }
  uint64_t closed_count() const { return closed_count_; }

 private:
  struct HeldSend {
    std::array<Segment, kSegmentsMax> segments{};
    uint32_t segment_count = 0;
    uint64_t token = 0;
    int64_t due_ns = 0;
  };
  struct Peer {
    std::deque<HeldSend> held_sends;
    std::deque<std::vector<std::byte>> held_messages;
    uint32_t under_way = 0;  // sends that the inner transport has
    bool closed = false;
  };
  struct UnderWay {
    uint32_t peer = 0;
    uint64_t token = 0;  // the caller's
  };

  void on_message(uint32_t from, std::span<const std::byte> message) override;
  void on_sent(uint64_t token) override;
  void on_lost(uint32_t rank, std::string_view why) override;

  bool silent(uint32_t peer, bool outgoing) const;
  bool release_sends(uint32_t rank, Peer& peer);
  bool release_messages(uint32_t rank, Peer& peer, Receiver& receiver);
  Status pass_on(uint32_t to, Peer& peer, std::span<const Segment> segments, uint64_t token);
  void close(uint32_t rank, Peer& peer);
  bool anything_held() const;

  std::unique_ptr<Transport> inner_;
  const Clock& clock_;
  FaultyOptions options_;
  SeededRandom random_;
  std::map<uint32_t, Peer> peers_;
  std::map<uint64_t, UnderWay> under_way_;  // by the token given to the inner transport
  std::vector<uint64_t> completed_;         // tokens of sends that a loss ended, for the next poll
  std::vector<uint32_t> lost_;              // peers to report in the next poll
  Receiver* receiver_ = nullptr;            // during poll
  uint64_t next_token_ = 1;
  uint64_t sends_count_ = 0;
  uint64_t delayed_count_ = 0;
  uint64_t silenced_count_ = 0;
  uint64_t closed_count_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_FAULTY_FAULTY_TRANSPORT_H_
