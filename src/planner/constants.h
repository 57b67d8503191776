// SPDX-License-Identifier: Apache-2.0
// CostConstants: what moving and adding numbers takes on the machines of a job, as its ranks
// measured it at commit (engine/cost_probe.h) and agreed on. Whole numbers, so that what every rank
// works out from them is the same to the last bit, and with it every choice.
//
// Plain values; any thread; nothing blocks.
#ifndef PARALLAX_PLANNER_CONSTANTS_H_
#define PARALLAX_PLANNER_CONSTANTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/number.h"
#include "base/status.h"

namespace parallax {

// Between two ranks.
struct LinkCost {
  uint64_t latency_ns = 0;   // from the last byte out to the first in
  uint64_t overhead_ns = 0;  // of a message, at the sender and at the receiver each
  uint64_t byte_ps = 0;      // picoseconds a byte: 80 is 100 Gbit/s
  bool operator==(const LinkCost&) const = default;
};

// The standard ones are those of a machine of 2020 and Ethernet of 10 Gbit/s.
struct CostConstants {
  LinkCost inside{300, 200, 100};
  LinkCost between{10'000, 1'000, 800};                 // hosts; a host's ranks share byte_ps
  std::array<uint64_t, 4> sum_byte_ps{80, 80, 80, 80};  // by SumType, of the sum
  uint64_t copy_byte_ps = 80;
  // Of a row, beside its bytes: that is looked up and added; that is put in order, of 4,096.
  uint64_t row_sum_ps = 15'000;
  uint64_t row_sort_ps = 40'000;
  // Between domains of memory of a host, all of its ranks together: 25 is 40 GB/s, about what links
  // between two sockets carry. Never measured.
  uint64_t across_byte_ps = 25;
  bool operator==(const CostConstants&) const = default;
};

// Each by its name, as the setting "costs", reports and messages have them.
struct ConstantRow {
  const char* name;
  uint64_t& (*of)(CostConstants& constants);
};
inline constexpr size_t kConstantCount = 14;
// A number beyond this is no machine's; times of the largest job stay far from overflow.
inline constexpr uint64_t kConstantMax = 1'000'000'000;
extern const std::array<ConstantRow, kConstantCount> kConstantRows;

uint64_t constant(const CostConstants& constants, size_t row);

// What the setting "costs" says: "measured"; "standard", those above; or name=value of some,
// separated by commas, which hold whatever is measured.
struct CostSetting {
  bool measured = true;
  std::array<bool, kConstantCount> given = {};
  CostConstants values;

  bool wanted() const {
    return measured || std::find(given.begin(), given.end(), true) != given.end();
  }
  // Of them, with what is given in its place.
  CostConstants over(CostConstants constants) const;
};
inline constexpr CostSetting kStandardCosts = {.measured = false, .given = {}, .values = {}};
// INVALID, with what is wrong.
Status parse_costs(std::string_view text, CostSetting* setting);

// "inside_latency_ns=300,...": as parse_costs takes it.
std::string costs_text(const CostConstants& constants);

}  // namespace parallax

#endif  // PARALLAX_PLANNER_CONSTANTS_H_
