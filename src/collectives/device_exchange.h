// SPDX-License-Identifier: Apache-2.0
// DeviceExchange: the gradient of a variable whose slices lie on devices, which sum it among
// themselves (device_launches.h). No number of it comes to the host, nothing travels by the outbox,
// and no memory is reserved. The sum goes where each rank that gave the variable wants it. Where
// they sum within hosts alone, shares of it go between hosts (between_hosts.h).
//
// Of framework-held variables without row ids, whose step no rank ends before it has its result.
#ifndef PARALLAX_COLLECTIVES_DEVICE_EXCHANGE_H_
#define PARALLAX_COLLECTIVES_DEVICE_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/arena.h"
#include "collectives/between_hosts.h"
#include "collectives/device_launches.h"
#include "collectives/exchange.h"

namespace parallax {

class DeviceExchange final : public Exchange {
 public:
  // The launches, which know the variable, outlive the exchange. `rank` is this one.
  DeviceExchange(uint32_t variable, uint32_t rank, uint64_t elements, DeviceLaunches& launches,
                 std::unique_ptr<BetweenHosts> between = nullptr)
      : variable_(variable),
        rank_(rank),
        elements_(elements),
        launches_(launches),
        between_(std::move(between)) {}

  BetweenHosts* between() { return between_.get(); }

  Status reserve() override { return shares() == nullptr ? Status() : shares()->reserve(); }
  size_t needed_bytes() override { return shares() == nullptr ? 0 : shares()->needed_bytes(); }
  const Arena& arena() const override { return shares() == nullptr ? arena_ : shares()->arena(); }
  void open(uint64_t step) override;
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) override;
  void end(uint32_t from, uint64_t step) override;
  [[nodiscard]] bool on_section(uint32_t from, const Section& section) override;
  ExchangeState state(uint64_t step) const override;
  // Which rank keeps a device waiting is nobody's to know but the devices'; of other hosts it is.
  MissingRanks missing(uint64_t step) const override;
  ReducedGradient owned(uint64_t) const override { return {}; }
  ReducedGradient whole(uint64_t step) const override;
  ExchangeCounts counts(uint64_t) const override { return {}; }

 private:
  DenseExchange* shares() const { return between_ == nullptr ? nullptr : between_->exchange(); }

  const uint32_t variable_;
  const uint32_t rank_;
  const uint64_t elements_;
  DeviceLaunches& launches_;
  const std::unique_ptr<BetweenHosts> between_;   // null: devices sum all of it
  Arena arena_;                                   // empty
  std::array<const std::byte*, 2> results_ = {};  // by step parity
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_DEVICE_EXCHANGE_H_
