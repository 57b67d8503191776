// SPDX-License-Identifier: Apache-2.0
// Puts, and their keys. See ucx_writes.h.
#include "transport/ucx/ucx_writes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "transport/ucx/ucx_transport.h"

namespace parallax {

namespace {

// Keys of a peer that are kept open, and how many it may have in use at once.
constexpr size_t kKeysKept = 64;
constexpr size_t kKeysMax = 4096;

// A bit for each of 64 memory domains, and of each a length of one byte, and its key.
constexpr size_t kKeyRoomBytes = 16 + 64 * 256;

// What UCX says of an endpoint's lanes: those that carry messages or writes are rc's or dc's.
bool writes_by_device(ucp_ep_h endpoint) {
  char* text = nullptr;
  size_t bytes = 0;
  std::FILE* const file = open_memstream(&text, &bytes);
  if (file == nullptr) return false;
  ucp_ep_print_info(endpoint, file);
  std::fclose(file);
  std::istringstream lines(text == nullptr ? "" : text);
  std::free(text);
  bool connected = false, others = false, puts = false;
  for (std::string line; std::getline(lines, line);) {
    puts = puts || line.find("put[") != std::string::npos;
    if (line.find("lane[") == std::string::npos) continue;
    const bool carries =
        line.find(" am") != std::string::npos || line.find(" rma") != std::string::npos;
    if (!carries) continue;
    const bool device =
        line.find(":rc_") != std::string::npos || line.find(":dc_") != std::string::npos;
    connected = connected || device;
    others = others || !device;
  }
  return connected && !others && puts;
}

}  // namespace

UcxWrites::UcxWrites(UcxTransport& transport, ucp_context_h context, uint64_t memory_bytes_max)
    : transport_(transport), memory_(context, memory_bytes_max), key_room_(kKeyRoomBytes) {}

UcxWrites::~UcxWrites() {
  for (const auto& peer : transport_.peers()) {
    if (peer == nullptr) continue;
    for (const UcxKey& key : peer->keys) ucp_rkey_destroy(key.key);
  }
}

size_t UcxWrites::piece_bytes_max(uint32_t to) {
  if (to >= transport_.peers().size() || transport_.peers()[to] == nullptr) return 0;
  UcxPeer& peer = *transport_.peers()[to];
  if (peer.phase != UcxPeer::Phase::kConnected || !peer.wired()) return 0;
  if (peer.writes == UcxPeer::Writes::kUnknown) {
    peer.writes = writes_by_device(peer.endpoint) ? UcxPeer::Writes::kYes : UcxPeer::Writes::kNo;
  }
  return peer.writes == UcxPeer::Writes::kYes ? kPieceBytesMax : 0;
}

Status UcxWrites::send(uint32_t to, std::span<const Segment> segments, const PlacedPiece& piece,
                       uint64_t cookie) {
  PARALLAX_CHECK(piece.bytes > 0 && piece.bytes <= piece_bytes_max(to));
  const Status sent = transport_.send_behind(to, segments, &piece, cookie);
  if (!sent.ok()) return sent;
  ++pieces_;
  piece_bytes_ += piece.bytes;
  return {};
}

ucs_status_t UcxWrites::find_key(UcxPeer& peer, const PlacedPiece& piece, ucp_rkey_h* key) {
  const auto found = std::find_if(peer.keys.begin(), peer.keys.end(),
                                  [&](const UcxKey& each) { return each.area == piece.area; });
  if (found != peer.keys.end()) {
    *key = found->key;
    return UCS_OK;
  }
  if (peer.keys.size() >= kKeysKept && peer.held.count == 0) {
    for (const UcxKey& each : peer.keys) ucp_rkey_destroy(each.key);
    peer.keys.clear();
  }
  if (peer.keys.size() >= kKeysMax || piece.key.size() > kPlaceKeyBytesMax) {
    return UCS_ERR_EXCEEDS_LIMIT;
  }
  std::fill(key_room_.begin(), key_room_.begin() + kPlaceKeyBytesMax, std::byte{0});
  std::copy(piece.key.begin(), piece.key.end(), key_room_.begin());
  const ucs_status_t status = ucp_ep_rkey_unpack(peer.endpoint, key_room_.data(), key);
  if (status == UCS_OK) peer.keys.push_back({piece.area, *key});
  return status;
}

ucs_status_t UcxWrites::start(UcxPeer& peer, UcxSlot& slot, const PlacedPiece& piece) {
  ucp_rkey_h key = nullptr;
  const ucs_status_t found = find_key(peer, piece, &key);
  if (found != UCS_OK) return found;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_done;
  param.user_data = &slot;
  ucp_request_param_t put = param;
  put.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  put.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t written =
      ucp_put_nbx(peer.endpoint, piece.data, piece.bytes, piece.address, key, &put);
  if (UCS_PTR_IS_ERR(written)) return UCS_PTR_STATUS(written);
  if (written != nullptr) ++slot.waiting;
  const ucs_status_ptr_t flushed = ucp_ep_flush_nbx(peer.endpoint, &param);
  if (UCS_PTR_IS_ERR(flushed)) return UCS_PTR_STATUS(flushed);
  if (flushed != nullptr) ++slot.waiting;
  return UCS_OK;
}

void UcxWrites::on_done(void* request, ucs_status_t status, void* slot) noexcept {
  auto& done = *static_cast<UcxSlot*>(slot);
  UcxTransport& transport = *done.peer->transport;
  if (request != nullptr) ucp_request_free(request);
  --done.waiting;
  if (status != UCS_OK) transport.fail(*done.peer, status);
  transport.attend_later(*done.peer);
}

void UcxWrites::withdraw() {
  memory_.end();
  transport_.give_up_pieces();
}

std::string UcxWrites::json() const {
  const MemoryCounts& counts = memory_.counts();
  std::ostringstream out;
  out << "{\"pieces\":" << pieces_ << ",\"piece_bytes\":" << piece_bytes_
      << ",\"registrations\":" << counts.registrations
      << ",\"registered_bytes\":" << counts.registered_bytes
      << ",\"evictions\":" << counts.evictions << ",\"refusals\":" << counts.refusals
      << ",\"shares_refused\":" << counts.too_many << ",\"refused_why\":\"" << memory_.refused_why()
      << "\"}";
  return out.str();
}

}  // namespace parallax
