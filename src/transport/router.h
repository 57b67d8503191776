// SPDX-License-Identifier: Apache-2.0
// Router: one Transport out of several, by rank: shared memory to the ranks of this host, a network
// transport to the others. Owns its parts. Every rank has one route, so a message, a completion and
// a loss come from one part alone; what a part says of a rank that is not routed to it is dropped.
// Threads and blocking as in transport.h.
#ifndef PARALLAX_TRANSPORT_ROUTER_H_
#define PARALLAX_TRANSPORT_ROUTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace parallax {

class Router final : public Transport {
 public:
  struct Part {
    std::unique_ptr<Transport> transport;
    std::vector<uint32_t> ranks;  // routed to it
  };

  // Each rank but this one is in one part at most. INVALID, LIMIT (no descriptor left).
  static Status create(uint32_t world, std::vector<Part> parts, std::unique_ptr<Router>* router);
  ~Router() override;

  std::string_view name() const override { return "router"; }
  // The least of the parts'.
  size_t message_bytes_max() const override { return message_bytes_max_; }
  bool writable(uint32_t to) const override;
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override;
  bool copies_sends(uint32_t to) const override;
  // The first part's that has one: it knows its own ranks.
  RemoteWrites* remote_writes() override;
  bool poll(Receiver& receiver) override;
  // -1 if there is no part, or one is never waited for.
  int wait_fd() const override { return wait_fd_; }
  bool arm() override;
  void forget(uint32_t rank) override;
  // The first part's that has one: of the ranks of this host, so there is one.
  PeerMemory* peer_memory() override;
  Boards* boards() override;  // the same

  // Null where the rank has no route. For reports.
  const Transport* route(uint32_t rank) const;

 private:
  static constexpr uint8_t kNoPart = UINT8_MAX;

  class Filter;

  explicit Router(std::vector<Part> parts);
  Status set_routes(uint32_t world);
  Status open_wait_fd();

  std::vector<Part> parts_;
  std::vector<uint8_t> part_of_;  // by rank
  size_t message_bytes_max_ = 0;
  int wait_fd_ = -1;
  bool owns_wait_fd_ = false;  // else it is the only part's
  size_t first_polled_ = 0;    // turns, so that no part is always served first
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_ROUTER_H_
