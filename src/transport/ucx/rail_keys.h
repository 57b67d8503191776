// SPDX-License-Identifier: Apache-2.0
// The key of an area of memory as peers are told it: that of each rail in order, behind its length,
// a byte. Pure, without UCX.
#ifndef PARALLAX_TRANSPORT_UCX_RAIL_KEYS_H_
#define PARALLAX_TRANSPORT_UCX_RAIL_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/remote_writes.h"

namespace parallax {

// Adds the next rail's. False: it does not fit, and nothing was added.
inline bool add_rail_key(std::span<const std::byte> own, std::vector<std::byte>* key) {
  if (own.empty() || own.size() > UINT8_MAX || key->size() + 1 + own.size() > kPlaceKeyBytesMax) {
    return false;
  }
  key->push_back(static_cast<std::byte>(own.size()));
  key->insert(key->end(), own.begin(), own.end());
  return true;
}

// That of a rail; empty: it has none. The bytes are a peer's.
inline std::span<const std::byte> rail_key(std::span<const std::byte> key, uint32_t rail) {
  if (key.size() > kPlaceKeyBytesMax) return {};
  for (uint32_t at = 0; !key.empty(); ++at) {
    const auto bytes = std::to_integer<size_t>(key[0]);
    if (bytes >= key.size()) return {};  // cut
    if (at == rail) return key.subspan(1, bytes);
    key = key.subspan(1 + bytes);
  }
  return {};
}

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_RAIL_KEYS_H_
