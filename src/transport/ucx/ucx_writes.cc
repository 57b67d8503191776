// SPDX-License-Identifier: Apache-2.0
// Puts, and their keys. See ucx_writes.h.
#include "transport/ucx/ucx_writes.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "base/check.h"
#include "transport/ucx/rail_keys.h"
#include "transport/ucx/ucx_transport.h"

namespace parallax {

namespace {

// Keys of a peer that are kept open, and how many it may have in use at once.
constexpr size_t kKeysKept = 64;
constexpr size_t kKeysMax = 4096;

// A bit for each of 64 memory domains, and of each a length of one byte, and its key.
constexpr size_t kKeyRoomBytes = 16 + 64 * 256;

bool can_write(UcxLink& link) {
  return link.is_open() && UcxLinks::lanes_of(link).writes_by_device;
}

}  // namespace

UcxWrites::UcxWrites(UcxTransport& transport, const UcxWorkers& workers, uint64_t memory_bytes_max)
    : transport_(transport),
      memory_(workers.contexts(), memory_bytes_max),
      key_room_(kKeyRoomBytes),
      rails_(workers.count()) {
  for (size_t rail = 0; rail < rails_.size(); ++rail) rails_[rail].device = workers.device(rail);
}

void UcxWrites::destroy_keys() {
  for (const auto& peer : transport_.peers()) {
    if (peer == nullptr) continue;
    for (UcxLink& link : peer->links) {
      for (const UcxKey& key : link.keys) ucp_rkey_destroy(key.key);
      link.keys.clear();
    }
  }
}

size_t UcxWrites::piece_bytes_max(uint32_t to) {
  if (to >= transport_.peers().size() || transport_.peers()[to] == nullptr) return 0;
  UcxPeer& peer = *transport_.peers()[to];
  const bool connected = peer.phase == UcxPeer::Phase::kConnected;
  return connected && can_write(peer.first()) ? kPieceBytesMax : 0;
}

Status UcxWrites::send(uint32_t to, std::span<const Segment> segments, const PlacedPiece& piece,
                       uint64_t cookie) {
  PARALLAX_CHECK(piece.bytes > 0 && piece.bytes <= piece_bytes_max(to));
  return transport_.send_behind(to, segments, &piece, cookie);
}

ucs_status_t UcxWrites::find_key(UcxLink& link, const PlacedPiece& piece, ucp_rkey_h* key) {
  const auto found = std::find_if(link.keys.begin(), link.keys.end(),
                                  [&](const UcxKey& each) { return each.area == piece.area; });
  if (found != link.keys.end()) {
    *key = found->key;
    return UCS_OK;
  }
  if (link.keys.size() >= kKeysKept && link.pieces_under_way == 0) {
    for (const UcxKey& each : link.keys) ucp_rkey_destroy(each.key);
    link.keys.clear();
  }
  const std::span<const std::byte> packed = rail_key(piece.key, link.rail);
  if (link.keys.size() >= kKeysMax || packed.empty()) return UCS_ERR_EXCEEDS_LIMIT;
  std::fill(key_room_.begin(), key_room_.begin() + kPlaceKeyBytesMax, std::byte{0});
  std::copy(packed.begin(), packed.end(), key_room_.begin());
  const ucs_status_t status = ucp_ep_rkey_unpack(link.endpoint, key_room_.data(), key);
  if (status == UCS_OK) link.keys.push_back({piece.area, *key});
  return status;
}

ucs_status_t UcxWrites::start(UcxPeer& peer, UcxSlot& slot, const PlacedPiece& piece) {
  uint32_t usable = 1;
  for (uint32_t rail = 1; rail < peer.links.size(); ++rail) {
    if (can_write(peer.links[rail])) usable |= 1u << rail;
  }
  slot.rail = static_cast<uint32_t>(spread_.choose(usable));
  slot.piece_bytes = piece.bytes;
  UcxLink& link = peer.links[slot.rail];
  const ucs_status_t status = put(link, slot, piece);
  if (slot.waiting > 0) {
    ++link.pieces_under_way;
    spread_.begin(slot.rail, slot.piece_bytes);
  }
  ++rails_[slot.rail].pieces;
  rails_[slot.rail].piece_bytes += piece.bytes;
  return status;
}

ucs_status_t UcxWrites::put(UcxLink& link, UcxSlot& slot, const PlacedPiece& piece) {
  ucp_rkey_h key = nullptr;
  const ucs_status_t found = find_key(link, piece, &key);
  if (found != UCS_OK) return found;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_done;
  param.user_data = &slot;
  ucp_request_param_t put = param;
  put.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  put.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t written =
      ucp_put_nbx(link.endpoint, piece.data, piece.bytes, piece.address, key, &put);
  if (UCS_PTR_IS_ERR(written)) return UCS_PTR_STATUS(written);
  if (written != nullptr) ++slot.waiting;
  const ucs_status_ptr_t flushed = ucp_ep_flush_nbx(link.endpoint, &param);
  if (UCS_PTR_IS_ERR(flushed)) return UCS_PTR_STATUS(flushed);
  if (flushed != nullptr) ++slot.waiting;
  return UCS_OK;
}

// Nothing of the slot's piece is under way any more.
void UcxWrites::landed(UcxSlot& slot) {
  --slot.peer->links[slot.rail].pieces_under_way;
  spread_.end(slot.rail, slot.piece_bytes);
}

void UcxWrites::on_done(void* request, ucs_status_t status, void* slot) noexcept {
  auto& done = *static_cast<UcxSlot*>(slot);
  UcxTransport& transport = *done.peer->transport;
  if (request != nullptr) ucp_request_free(request);
  if (status != UCS_OK) transport.links().fail(done.peer->links[done.rail], status);
  if (--done.waiting == 0) transport.writes()->landed(done);
  transport.attend_later(*done.peer);
}

void UcxWrites::withdraw() {
  memory_.end();
  transport_.give_up_pieces();
}

std::string UcxWrites::json() const {
  const MemoryCounts& counts = memory_.counts();
  uint64_t pieces = 0, piece_bytes = 0;
  std::ostringstream by_rail;
  for (size_t i = 0; i < rails_.size(); ++i) {
    const RailCounts& rail = rails_[i];
    pieces += rail.pieces;
    piece_bytes += rail.piece_bytes;
    const auto reached =
        std::count_if(transport_.peers().begin(), transport_.peers().end(), [i](const auto& peer) {
          return peer != nullptr && i < peer->links.size() && peer->links[i].is_open();
        });
    by_rail << (i == 0 ? "" : ",") << "{\"device\":\"" << rail.device << "\",\"peers\":" << reached
            << ",\"pieces\":" << rail.pieces << ",\"piece_bytes\":" << rail.piece_bytes << "}";
  }
  std::ostringstream out;
  out << "{\"pieces\":" << pieces << ",\"piece_bytes\":" << piece_bytes << ",\"rails\":["
      << by_rail.str() << "],\"registrations\":" << counts.registrations
      << ",\"registered_bytes\":" << counts.registered_bytes
      << ",\"evictions\":" << counts.evictions << ",\"refusals\":" << counts.refusals
      << ",\"shares_refused\":" << counts.too_many << ",\"refused_why\":\"" << memory_.refused_why()
      << "\"}";
  return out.str();
}

}  // namespace parallax
