// SPDX-License-Identifier: Apache-2.0
// FaultyTransport: a decorator that makes any transport late, silent or broken, by rules and a
// seed. It owns the transport it wraps and copies of what it holds back; it keeps the transport's
// contract (order per peer, every send completes once, loss reported once), so whatever goes wrong
// above it is the engine's fault. Threads as in Transport. While it holds something back, or a rule
// waits for its time, arm() answers false and poll() naps for a moment in place of blocking; a
// stall sleeps in poll(), as a thread that gets no CPU does.
#ifndef PARALLAX_TRANSPORT_FAULTY_FAULTY_TRANSPORT_H_
#define PARALLAX_TRANSPORT_FAULTY_FAULTY_TRANSPORT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/seeded_random.h"
#include "transport/faulty/fault_rules.h"
#include "transport/transport.h"

namespace parallax {

class FaultyTransport final : public Transport, private Receiver {
 public:
  // `sleep` blocks for so many nanoseconds; null where the clock is virtual, and then there are
  // neither naps nor stalls.
  FaultyTransport(std::unique_ptr<Transport> inner, const Clock& clock, FaultyOptions options,
                  void (*sleep)(int64_t ns) = nullptr);

  std::string_view name() const override { return inner_->name(); }
  size_t message_bytes_max() const override { return inner_->message_bytes_max(); }
  bool writable(uint32_t to) const override;
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override;
  bool poll(Receiver& receiver) override;
  int wait_fd() const override { return inner_->wait_fd(); }
  bool arm() override;
  void forget(uint32_t rank) override;
  // As it is: rules concern messages.
  PeerMemory* peer_memory() override { return inner_->peer_memory(); }

  // What was disturbed so far. Of any thread.
  uint64_t delayed_count() const { return delayed_count_; }
  uint64_t silenced_count() const { return silenced_count_; }
  uint64_t closed_count() const { return closed_count_; }
  uint64_t stalled_count() const { return stalled_count_; }

 private:
  struct HeldSend {
    std::array<Segment, kSegmentsMax> segments{};
    uint32_t segment_count = 0;
    std::span<const std::byte> first;  // of it, which names what the message is about
    uint64_t cookie = 0;
    int64_t due_ns = 0;
  };
  struct Peer {
    std::deque<HeldSend> held_sends;
    std::deque<std::vector<std::byte>> held_messages;
    uint32_t under_way = 0;  // sends that the inner transport has
    bool closed = false;
  };
  struct Rule {
    FaultRule what;
    uint64_t seen = 0;          // messages that it concerns
    int64_t since_ns = kNever;  // when it began to hold
    bool spent = false;         // a stall or a close that has happened
  };
  struct UnderWay {
    uint32_t peer = 0;
    uint64_t cookie = 0;  // the caller's
  };

  void on_message(uint32_t from, std::span<const std::byte> message) override;
  void on_sent(uint64_t cookie) override;
  void on_lost(uint32_t rank, Loss loss, std::string_view why) override;

  // Counts a message with the rules that concern it; true if a close is due to its connection.
  bool count(uint32_t peer, bool outgoing, std::span<const std::byte> message);
  bool holds(const Rule& rule) const;
  bool concerns(const FaultRule& rule, uint32_t peer, bool outgoing,
                std::span<const std::byte> message) const;
  bool silent(uint32_t peer, bool outgoing, std::span<const std::byte> message) const;
  int64_t delay_of(uint32_t peer, std::span<const std::byte> message);
  void stall();
  bool release_sends(uint32_t rank, Peer& peer);
  bool release_messages(uint32_t rank, Peer& peer, Receiver& receiver);
  Status pass_on(uint32_t to, Peer& peer, std::span<const Segment> segments, uint64_t cookie);
  void close(uint32_t rank, Peer& peer);
  bool anything_due() const;

  std::unique_ptr<Transport> inner_;
  const Clock& clock_;
  void (*const sleep_)(int64_t ns);
  const int64_t opened_ns_;
  std::vector<Rule> rules_;
  bool (*const carries_data_of_)(std::span<const std::byte> message, uint32_t variable);
  SeededRandom random_;
  std::map<uint32_t, Peer> peers_;
  std::map<uint64_t, UnderWay> under_way_;  // by the cookie given to the inner transport
  std::vector<uint64_t> completed_;         // cookies of sends that a loss ended, for the next poll
  std::vector<uint32_t> lost_;              // peers to report in the next poll
  Receiver* receiver_ = nullptr;            // during poll
  uint64_t next_cookie_ = 1;
  std::atomic<uint64_t> delayed_count_ = 0;
  std::atomic<uint64_t> silenced_count_ = 0;
  std::atomic<uint64_t> closed_count_ = 0;
  std::atomic<uint64_t> stalled_count_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_FAULTY_FAULTY_TRANSPORT_H_
