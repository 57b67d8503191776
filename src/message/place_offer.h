// SPDX-License-Identifier: Apache-2.0
// PlaceOffer: where a rank wants its peer to place what it sends of one operation, as it travels:
// the address of the first element, the area it is in, and the transport's key to that. The bytes
// are a peer's; the key is the transport's to judge.
#ifndef PARALLAX_MESSAGE_PLACE_OFFER_H_
#define PARALLAX_MESSAGE_PLACE_OFFER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/remote_writes.h"

namespace parallax {

struct PlaceOffer {
  uint64_t address = 0;
  uint32_t area = 0;
  uint32_t key_bytes = 0;
  std::array<std::byte, kPlaceKeyBytesMax> key = {};

  static constexpr size_t kHeadBytes = 16;

  // Of the whole, what travels.
  std::span<const std::byte> bytes() const {
    return {reinterpret_cast<const std::byte*>(this), kHeadBytes + key_bytes};
  }
  // False: no offer has this length.
  [[nodiscard]] bool read(std::span<const std::byte> payload) {
    if (payload.size() <= kHeadBytes || payload.size() > kHeadBytes + key.size()) return false;
    std::memcpy(static_cast<void*>(this), payload.data(), payload.size());
    return key_bytes == payload.size() - kHeadBytes;
  }
};
static_assert(sizeof(PlaceOffer) == PlaceOffer::kHeadBytes + kPlaceKeyBytesMax);

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_PLACE_OFFER_H_
