// SPDX-License-Identifier: Apache-2.0
// WiringReceiver: what a transport between hosts polls with while its ranks connect in wire().
// Nobody speaks yet; but some may be lost, of whom the first is kept. Plain data; one caller.
#ifndef PARALLAX_TRANSPORT_MODULE_WIRING_RECEIVER_H_
#define PARALLAX_TRANSPORT_MODULE_WIRING_RECEIVER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace parallax {

class WiringReceiver final : public Receiver {
 public:
  void on_message(uint32_t, std::span<const std::byte>) override {}
  void on_sent(uint64_t) override {}
  void on_lost(uint32_t rank, Loss loss, std::string_view clause) override {
    if (!why.empty()) return;
    lost_rank = rank;
    own_lack = loss == Loss::kOwnLack;
    why = clause;
  }

  uint32_t lost_rank = 0;
  bool own_lack = false;
  std::string why;  // empty: nobody was lost
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_MODULE_WIRING_RECEIVER_H_
