// SPDX-License-Identifier: Apache-2.0
// DeviceExchange: the gradient of a variable whose slices lie on devices, which sum it among
// themselves (device_launches.h). No number of it comes to the host, nothing travels by the outbox,
// and no memory is reserved. The sum goes where each rank that gave the variable wants it.
//
// Of framework-held variables without row ids, whose step no rank ends before it has its result.
#ifndef PARALLAX_COLLECTIVES_DEVICE_EXCHANGE_H_
#define PARALLAX_COLLECTIVES_DEVICE_EXCHANGE_H_

#include <array>
#include <cstdint>

#include "base/arena.h"
#include "collectives/device_launches.h"
#include "collectives/exchange.h"

namespace parallax {

class DeviceExchange final : public Exchange {
 public:
  // The launches, which know the variable, outlive the exchange. `rank` is this one.
  DeviceExchange(uint32_t variable, uint32_t rank, uint64_t elements, DeviceLaunches& launches)
      : variable_(variable), rank_(rank), elements_(elements), launches_(launches) {}

  Status reserve() override { return {}; }
  size_t needed_bytes() override { return 0; }
  const Arena& arena() const override { return arena_; }
  void open(uint64_t step) override;
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) override;
  void end(uint32_t from, uint64_t step) override;
  [[nodiscard]] bool on_section(uint32_t, const Section&) override { return false; }
  ExchangeState state(uint64_t step) const override;
  // Which rank keeps a device waiting is nobody's to know but the devices'.
  MissingRanks missing(uint64_t) const override { return {}; }
  ReducedGradient owned(uint64_t) const override { return {}; }
  ReducedGradient whole(uint64_t step) const override;
  ExchangeCounts counts(uint64_t) const override { return {}; }

 private:
  const uint32_t variable_;
  const uint32_t rank_;
  const uint64_t elements_;
  DeviceLaunches& launches_;
  Arena arena_;                                   // empty
  std::array<const std::byte*, 2> results_ = {};  // by step parity
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_DEVICE_EXCHANGE_H_
