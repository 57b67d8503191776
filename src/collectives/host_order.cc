// SPDX-License-Identifier: Apache-2.0
// The word of a host's first rank. See host_order.h.
#include "collectives/host_order.h"

#include <cstring>
#include <span>

namespace parallax {

// The first word has the id with it.
void HostOrder::say(const Next& next) {
  const SectionHeader header = {
      .kind = SectionKind::kLaunchOrder,
      .part = static_cast<uint8_t>(next.leg == DeviceLeg::kToHost ? 0 : 1),
      .tag = next.variable,
      .step = next.step,
      .first = said_};
  const auto payload =
      said_ == 0 ? std::span<const std::byte>(id_.bytes) : std::span<const std::byte>();
  for (const uint32_t local : columns_.locals()) {
    if (local != columns_.rank()) outbox_.send_bytes(local, header, payload);
  }
  ++said_;
  next_.push_back(next);
}

bool HostOrder::on_section(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  const size_t bytes = said_ == 0 ? id_.bytes.size() : 0;
  if (decides() || from != columns_.locals()[0] || header.first != said_ || header.part > 1 ||
      section.payload.size() != bytes) {
    return false;
  }
  if (said_ == 0) {
    std::memcpy(id_.bytes.data(), section.payload.data(), bytes);
    has_id_ = true;
  }
  ++said_;
  next_.push_back({.variable = header.tag,
                   .step = header.step,
                   .leg = header.part == 0 ? DeviceLeg::kToHost : DeviceLeg::kFromHost});
  return true;
}

}  // namespace parallax
