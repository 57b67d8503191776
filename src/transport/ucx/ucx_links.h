// SPDX-License-Identifier: Apache-2.0
// UcxLinks: the life of a UcxTransport's connections, of each peer one over each rail that both
// have: opened, greeted over, failed, closed. Which peer is lost is the transport's to say. Used by
// the owner of the transport; what UCX calls runs within its progress.
//
// Design notes
// - The first link of a peer is opened by the transport, and wired by its credits; the further
//   ones follow behind it, by the lower rank, and are wired by a message that says nothing.
// - A rail that breaks with no piece under way is left out from then on. With one under way the
//   peer is lost: what was sent over it might still be written after the piece was sent again.
// - A link in wire-up is left alone: UCX 1.13 would end the process by an assertion.
#ifndef PARALLAX_TRANSPORT_UCX_UCX_LINKS_H_
#define PARALLAX_TRANSPORT_UCX_UCX_LINKS_H_

#include <ucp/api/ucp.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "transport/module/network_transport.h"
#include "transport/ucx/ucx_peer.h"
#include "transport/ucx/ucx_workers.h"

namespace parallax {

class UcxLinks {
 public:
  // Both outlive this.
  UcxLinks(UcxTransport& transport, UcxWorkers& workers, uint32_t rank)
      : transport_(transport), workers_(workers), rank_(rank) {}
  UcxLinks(const UcxLinks&) = delete;
  UcxLinks& operator=(const UcxLinks&) = delete;

  // For greetings over the rails.
  Status listen();
  // Of the peer's address what is UCX's, untrusted. INVALID.
  Status make(UcxPeer& peer, const std::string& address) const;

  ucs_status_t open(UcxLink& link);
  // Opens and closes rails beyond the first as it is their time.
  void attend(UcxPeer& peer);
  void fail(UcxLink& link, ucs_status_t status);
  // By force, but for those in wire-up, which are to be closed when they no longer are.
  void close(UcxPeer& peer);
  size_t closing_count() const { return closing_count_; }

  bool any_in_wire_up() const;
  // No rail to those ranks is in the making: each works, or will not be used.
  bool rails_settled(std::span<const uint32_t> ranks) const;

  // What UCX took for a link that is open; some microseconds the first time.
  static const UcxLanes& lanes_of(UcxLink& link);
  // As NetworkTransport's.
  NetworkWay way_to(UcxPeer& peer) const;
  std::string why_lost(const UcxPeer& peer) const;
  void count_into(NetworkStats* stats) const;

 private:
  // What a callback on a rail's worker is given.
  struct Rail {
    UcxLinks* links = nullptr;
    uint32_t number = 0;
  };

  static ucs_status_t on_greeting(void* rail, const void* header, size_t header_bytes, void* data,
                                  size_t bytes, const ucp_am_recv_param_t* param) noexcept;
  static void on_greeted(void* request, ucs_status_t status, void* link) noexcept;
  static void on_closed(void* request, ucs_status_t status, void* self) noexcept;
  static void on_error(void* link, ucp_ep_h endpoint, ucs_status_t status) noexcept;

  void greet(UcxLink& link);
  void close(UcxLink& link);
  bool in_wire_up(const UcxLink& link) const;

  UcxTransport& transport_;
  UcxWorkers& workers_;
  const uint32_t rank_;
  std::array<Rail, kRailsMax> rails_ = {};
  size_t closing_count_ = 0;
  uint64_t opened_ = 0;
  uint64_t strangers_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_UCX_LINKS_H_
