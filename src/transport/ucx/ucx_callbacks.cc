// SPDX-License-Identifier: Apache-2.0
// What UCX calls, always from within ucp_worker_progress or a forced close. Nothing here throws
// into UCX, opens or closes an endpoint: see the design notes in ucx_transport.h.
#include <cstring>

#include "transport/ucx/ucx_transport.h"
#include "transport/ucx/ucx_wire.h"

namespace parallax {

ucs_status_t UcxTransport::on_data(void* self, const void* header, size_t header_bytes, void* data,
                                   size_t bytes, const ucp_am_recv_param_t* param) noexcept {
  auto& transport = *static_cast<UcxTransport*>(self);
  UcxHeader copy;
  UcxPeer* peer = nullptr;
  // We never send a rendezvous; UCX drops it when it is not received.
  const bool whole = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
  if (whole && header_bytes == sizeof copy && bytes <= transport.message_bytes_max_) {
    std::memcpy(&copy, header, sizeof copy);
    peer = transport.sender_of(copy);
  }
  if (peer == nullptr) {
    ++transport.stats_.strangers_dropped;
  } else if (peer->phase == UcxPeer::Phase::kGone || transport.receiver_ == nullptr) {
    ++transport.stats_.late_dropped;
  } else {
    transport.deliver(*peer, {static_cast<const std::byte*>(data), bytes});
  }
  return UCS_OK;
}

void UcxTransport::deliver(UcxPeer& peer, std::span<const std::byte> message) noexcept {
  try {
    receiver_->on_message(peer.rank, message);
  } catch (...) {
    if (receiver_error_ == nullptr) receiver_error_ = std::current_exception();
  }
  ++peer.delivered;
  if (peer.delivered - peer.credit.delivered >= kUcxCreditBatch) attend_later(peer);
}

ucs_status_t UcxTransport::on_credit(void* self, const void* header, size_t header_bytes, void*,
                                     size_t bytes, const ucp_am_recv_param_t*) noexcept {
  auto& transport = *static_cast<UcxTransport*>(self);
  UcxCreditHeader copy;
  UcxPeer* peer = nullptr;
  if (header_bytes == sizeof copy && bytes == 0) {
    std::memcpy(&copy, header, sizeof copy);
    peer = transport.sender_of(copy.header);
  }
  // Nobody acknowledges what was not sent; modulo 2^32.
  if (peer == nullptr || copy.delivered - peer->acknowledged > peer->sent - peer->acknowledged) {
    ++transport.stats_.strangers_dropped;
  } else {
    peer->acknowledged = copy.delivered;
  }
  return UCS_OK;
}

ucs_status_t UcxTransport::on_goodbye(void* self, const void* header, size_t header_bytes, void*,
                                      size_t bytes, const ucp_am_recv_param_t*) noexcept {
  auto& transport = *static_cast<UcxTransport*>(self);
  UcxHeader copy;
  UcxPeer* peer = nullptr;
  if (header_bytes == sizeof copy && bytes == 0) {
    std::memcpy(&copy, header, sizeof copy);
    peer = transport.sender_of(copy);
  }
  if (peer == nullptr) {
    ++transport.stats_.strangers_dropped;
  } else {
    transport.fail(*peer, UCS_ERR_CONNECTION_RESET);
  }
  return UCS_OK;
}

UcxPeer* UcxTransport::peer_of(const UcxHeader& header) {
  const bool ours = header.magic == kUcxMagic && header.key == key_ && header.from < peers_.size();
  return ours ? peers_[header.from].get() : nullptr;  // null too without connect()
}

UcxPeer* UcxTransport::sender_of(const UcxHeader& header) {
  UcxPeer* const peer = peer_of(header);
  if (peer == nullptr || peer->first().heard) return peer;
  peer->first().heard = true;
  attend_later(*peer);  // an endpoint to open, or one that may be closed now
  return peer;
}

void UcxTransport::on_send_done(void* request, ucs_status_t status, void* slot) noexcept {
  auto& done = *static_cast<UcxSlot*>(slot);
  UcxTransport& transport = *done.peer->transport;
  if (request != nullptr) ucp_request_free(request);
  transport.complete(done);
  if (status != UCS_OK) transport.fail(*done.peer, status);
}

void UcxTransport::complete(UcxSlot& slot) {
  UcxPeer& peer = *slot.peer;
  if (writes_ != nullptr) writes_->end_message(slot.bytes);
  peer.free_slots |= 1u << (&slot - peer.slots->data());
  completions_.push({&peer, slot.cookie});  // has room: uncompleted sends are bounded per endpoint
}

void UcxTransport::on_credit_done(void* request, ucs_status_t status, void* peer) noexcept {
  auto& sender = *static_cast<UcxPeer*>(peer);
  if (request != nullptr) ucp_request_free(request);
  sender.credit_in_flight = false;
  if (status != UCS_OK) {
    sender.transport->fail(sender, status);
    return;
  }
  sender.first().said = true;
  sender.transport->attend_later(sender);  // more to acknowledge, or an endpoint to be closed
}

void UcxTransport::on_goodbye_done(void* request, ucs_status_t, void*) noexcept {
  if (request != nullptr) ucp_request_free(request);
}

}  // namespace parallax
