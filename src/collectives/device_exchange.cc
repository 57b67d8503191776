// SPDX-License-Identifier: Apache-2.0
// What a variable gives to the launches. See device_exchange.h.
#include "collectives/device_exchange.h"

namespace parallax {

void DeviceExchange::open(uint64_t step) {
  results_[step & 1] = nullptr;
  if (shares() != nullptr) shares()->open(step);
}

void DeviceExchange::contribute(uint64_t step, const Contribution& slice, uint32_t* pending) {
  results_[step & 1] = slice.result.values;
  launches_.give(variable_, step,
                 {.from = slice.elements.rows, .to = slice.result.values, .after = slice.after},
                 pending);
}

void DeviceExchange::end(uint32_t from, uint64_t step) {
  if (from == rank_) launches_.give_nothing(variable_, step);
}

// What is given is not on its way through this rank's memory: a vote need not wait for the devices,
// only the end of the step does.
ExchangeState DeviceExchange::state(uint64_t step) const {
  return {.contributed = true,
          .reduced = launches_.joined(variable_, step),
          .delivered = launches_.ended(variable_, step)};
}

bool DeviceExchange::on_section(uint32_t from, const Section& section) {
  if (section.header.kind == SectionKind::kLaunchOrder) return launches_.on_order(from, section);
  return shares() != nullptr && shares()->on_section(from, section);
}

MissingRanks DeviceExchange::missing(uint64_t step) const {
  return between_ != nullptr && between_->waits(step) ? shares()->missing(step) : MissingRanks();
}

ReducedGradient DeviceExchange::whole(uint64_t step) const {
  return {.contributed = true,
          .has_values = true,
          .placed = true,
          .values = results_[step & 1],
          .count = elements_};
}

}  // namespace parallax
