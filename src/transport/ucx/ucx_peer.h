// SPDX-License-Identifier: Apache-2.0
// UcxPeer: what a UcxTransport knows of one rank: how to reach it, its credits, and the sends under
// way. Plain data, owned and used by the transport alone; its address is stable, because UCX holds
// pointers into it while sends are in flight.
#ifndef PARALLAX_TRANSPORT_UCX_UCX_PEER_H_
#define PARALLAX_TRANSPORT_UCX_UCX_PEER_H_

#include <ucp/api/ucp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/transport.h"
#include "transport/ucx/ucx_lanes.h"

namespace parallax {

class UcxTransport;
struct UcxPeer;

inline constexpr uint32_t kUcxMagic = 0x75786c70;  // "plxu"

// The header of every active message of ours. UCX's ports take anyone, so a message counts only if
// it repeats the key that its receiver put into its address: strangers, and ranks of an earlier
// job that still send to a port taken over by this one, do not know it.
struct UcxHeader {
  uint32_t magic = kUcxMagic;
  uint32_t from = 0;
  uint64_t key = 0;
};
static_assert(sizeof(UcxHeader) == 16);

// A message of no data: `delivered` counts, modulo 2^32, the messages that the sender of this
// header has taken from its receiver. Cumulative, so that a newer one replaces an older.
struct UcxCreditHeader {
  UcxHeader header;
  uint32_t delivered = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(UcxCreditHeader) == 24);

// One send whose segments UCX may still read.
struct UcxSlot {
  UcxPeer* peer = nullptr;
  uint64_t cookie = 0;
  size_t pieces = 0;  // of iov
  size_t bytes = 0;
  std::array<ucp_dt_iov_t, kSegmentsMax> iov = {};
  // Of the piece before it, where there is one.
  uint32_t waiting = 0;  // operations of UCX before the message may leave
  uint32_t rail = 0;
  size_t piece_bytes = 0;
};

// Slots of one peer, in order.
struct UcxHeld {
  std::array<uint8_t, kSendsInFlightMax> slots = {};
  uint32_t first = 0;
  uint32_t count = 0;
  uint8_t at(uint32_t i) const { return slots[(first + i) % kSendsInFlightMax]; }
};

// A peer's key, as UCX has it open.
struct UcxKey {
  uint32_t area = 0;
  ucp_rkey_h key = nullptr;
};

// The connection to a peer over one rail.
struct UcxLink {
  // Both sides have heard a message of the other: none of UCX's own about this connection is under
  // way any more.
  bool wired() const { return said && heard; }
  bool is_open() const { return wired() && !broken && endpoint != nullptr; }

  UcxPeer* peer = nullptr;
  uint32_t rail = 0;
  std::string address;  // UCX's own
  std::string device;   // the peer's, by its own word; empty: it left the choice to UCX
  ucp_ep_h endpoint = nullptr;
  bool said = false;              // a message of ours has left
  bool heard = false;             // one of the peer's was here
  bool broken = false;            // UCX has given the endpoint up
  std::optional<UcxLanes> lanes;  // asked for once it is wired
  uint32_t pieces_under_way = 0;
  std::vector<UcxKey> keys;
};

struct UcxPeer {
  enum class Phase : uint8_t {
    kKnown,      // no endpoint yet
    kConnected,  // endpoint open
    kFailed,     // UCX gave up; the loss is to be reported by the next poll
    kGone,       // reported, or forgotten
  };
  // The link of all messages.
  UcxLink& first() { return links[0]; }
  const UcxLink& first() const { return links[0]; }

  UcxTransport* transport = nullptr;
  uint32_t rank = 0;
  Phase phase = Phase::kKnown;
  bool needs_attention = false;  // in the transport's list
  UcxPeer* next_attention = nullptr;
  std::vector<UcxLink> links;  // by rail, as many as both sides have; never resized
  ucs_status_t failure = UCS_OK;
  uint32_t failed_rail = 0;
  bool greeting = true;  // the first message to it is still to be sent: it says nothing

  // Ours to the peer. sent - acknowledged <= kSendsInFlightMax.
  UcxHeader header;
  uint32_t sent = 0;
  uint32_t acknowledged = 0;
  uint32_t uncompleted = 0;  // accepted sends whose on_sent is still to come
  uint32_t free_slots = (1u << kSendsInFlightMax) - 1;            // a bit each
  std::unique_ptr<std::array<UcxSlot, kSendsInFlightMax>> slots;  // once there is an endpoint
  // Slots, in order, whose messages wait for a piece to be at the peer, their own or one before.
  UcxHeld held;

  // The peer's to us.
  UcxCreditHeader credit;  // UCX may read it while credit_in_flight
  uint32_t delivered = 0;  // messages taken
  bool credit_in_flight = false;
};

static_assert(kSendsInFlightMax < 32, "free_slots holds a bit for each");

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_UCX_PEER_H_
