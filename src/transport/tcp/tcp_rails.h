// SPDX-License-Identifier: Apache-2.0
// TcpRails: several connections to each rank, its rails, one over each interface that a rank names:
// for hosts with several network cards, or where one connection does not fill the link. Owned by
// one caller at a time, as transport.h says; it has no thread.
//
// Design notes
// - Each rail is a TcpTransport of its own: listener, strangers, keys. Rail i of a rank reaches
//   rail i of another.
// - Messages to a rank take its rails in turn. So which rail brings the next one is known on both
//   sides, no number travels, and a receiver listens to one rail of each rank at a time; what has
//   come on the others is held there. The slowest rail holds up the rest: they should be alike.
// - The first message to a rank has all rails connect: the end of one that does not bring the next
//   message would not be heard.
// - A rank is lost as one of its rails is, behind all messages that came before. The end of a rail,
//   or that it cannot be made, is reported at that rail's turn: or, where the rail whose turn it is
//   stands and brings nothing, kEndNsMax later. A process that ends closes all of them, so that
//   what it said last is heard first; of a rail that is cut alone a rank learns so at once.
// - wire() connects all rails at the same time (tcp_wiring.h).
#ifndef PARALLAX_TRANSPORT_TCP_TCP_RAILS_H_
#define PARALLAX_TRANSPORT_TCP_TCP_RAILS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "transport/tcp/tcp_transport.h"

namespace parallax {

class TcpRails final : public NetworkTransport {
 public:
  // For so long the last messages of a rank are waited for once one of its rails has ended, and for
  // kEndPolls at least: this rank may have been held up meanwhile. It is more than TCP takes to
  // send a lost packet again, 200 ms at first.
  static constexpr int64_t kEndNsMax = 250 * kNanosecondsPerMillisecond;
  static constexpr uint32_t kEndPolls = 4;

  // `common` for each rail but its interface and own address: the first rail has those of `common`,
  // each further one an interface of `more_devices`, at most kRailsMax - 1, and its first address.
  // An interface that is named twice has two rails. `clock`, which outlives it, tells how long ago
  // a rail ended; null: a steady one. INVALID, IO, LIMIT.
  static Status create(const TcpOptions& common, const std::vector<std::string>& more_devices,
                       std::unique_ptr<TcpRails>* rails, const Clock* clock = nullptr);
  // All rails say goodbye before the first is shut down, as close_tcp() says.
  ~TcpRails() override;

  std::string_view name() const override { return "tcp"; }
  size_t message_bytes_max() const override { return rails_[0]->message_bytes_max(); }
  bool writable(uint32_t to) const override;
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override;
  bool copies_sends(uint32_t to) const override;
  bool poll(Receiver& receiver) override;
  int wait_fd() const override { return epoll_.get(); }
  bool arm() override;
  void forget(uint32_t rank) override;

  std::string address() const override;
  Status connect(uint32_t rank, const std::string& address) override;
  Status wire(std::span<const uint32_t> ranks, int64_t deadline_ns, uint32_t* missing) override;
  std::string description() const override;
  NetworkStats stats() const override;
  const TcpTransport& rail(size_t i) const { return *rails_[i]; }

 private:
  // What a rail brings.
  class Ordered;

  struct Peer {
    uint32_t sends_by = 0;  // the rail of the next message to it
    uint32_t hears_by = 0;  // and from it
    bool reached = false;   // all rails connect, or have
    bool gone = false;
    // The rail that has ended ahead of its turn, if one has; and since then, or since the last
    // message: by the clock, and in polls.
    const TcpPeer* ended = nullptr;
    int64_t heard_ns = 0;
    uint32_t polls = 0;
  };

  TcpRails(uint32_t world, const Clock* clock)
      : clock_(clock == nullptr ? steady_ : *clock), peers_(world) {}
  Status watch(int descriptor);
  uint32_t after(uint32_t rail) const { return rail + 1 == rails_.size() ? 0 : rail + 1; }
  void note_ends();
  bool report_ends(Ordered& ordered);
  void keep_time(bool needed);

  const SteadyClock steady_;
  const Clock& clock_;
  UniqueFd epoll_;  // of those of the rails
  UniqueFd timer_;  // ticks while somebody is in ending_
  std::vector<std::unique_ptr<TcpTransport>> rails_;
  std::vector<Peer> peers_;
  std::vector<uint32_t> ending_;  // ranks of which a rail has ended
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_RAILS_H_
