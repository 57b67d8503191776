// SPDX-License-Identifier: Apache-2.0
// PlaceOffer: where a rank wants its peer to place what it sends of one operation, as it travels:
// the address of the first element, how many bytes may go there, the area it is in, and the
// transport's key to that. The bytes are a peer's; the key is the transport's to judge.
#ifndef PARALLAX_MESSAGE_PLACE_OFFER_H_
#define PARALLAX_MESSAGE_PLACE_OFFER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/byte_range.h"
#include "transport/remote_writes.h"

namespace parallax {

// What is only placed is offered a place from so many bytes on: below, a few messages are as good
// as an offer, a piece, and the message that tells of it (docs/adr/0040).
inline constexpr size_t kPlacedBytesMin = 64 * 1024;

struct PlaceOffer {
  PlaceOffer() = default;
  PlaceOffer(const ByteRange& place, const SharedPart& shared)
      : address(place.first),
        place_bytes(place.bytes),
        area(shared.area),
        key_bytes(static_cast<uint32_t>(shared.key.size())) {
    std::copy(shared.key.begin(), shared.key.end(), key.begin());
  }

  uint64_t address = 0;
  uint64_t place_bytes = 0;
  uint32_t area = 0;
  uint32_t key_bytes = 0;
  std::array<std::byte, kPlaceKeyBytesMax> key = {};

  static constexpr size_t kHeadBytes = 24;

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
