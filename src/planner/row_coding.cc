// SPDX-License-Identifier: Apache-2.0
// Bytes spared beside time taken. See row_coding.h.
#include "planner/row_coding.h"

#include <algorithm>
#include <cmath>

#include "planner/cost.h"

namespace parallax {
namespace {

// Coding is to spare so many times what it takes: it is not free where others wait for the
// processor.
constexpr double kGainMin = 1.5;
// A row key is put in order by its bytes, coded and read, in 15 ns where row_sort_ps, which is by
// comparisons, says 40.
constexpr double kKeyShare = 3.0 / 8;
// Of differences of row keys that are spread evenly: their code over their entropy.
constexpr double kBitsOfOrder = 1.5;
// Numbers, coded and read, of which so many bytes take what row_sort_ps says of a row key: both are
// bound by instructions, where a copy in the cache goes by its width (docs/adr/0122). And what that
// spares of them, where they are normally distributed (docs/adr/0111).
struct NumberCoding {
  double bytes_per_sort, spared;
};
constexpr NumberCoding kOfF32 = {110, 0.14}, kOfBf16 = {70, 0.28};

struct Gain {
  double spared_ns = 0, taken_ns = 0;
  bool pays() const { return spared_ns > kGainMin * taken_ns; }
};

std::string text_of(const Gain& gain) {
  return cost::figure(gain.spared_ns) + " ns of link for " + cost::figure(gain.taken_ns);
}

// Of one row key: of `rows` keys so many lie, on average, in one owner's list.
Gain of_row_key(const VariableFacts& facts, const TopologyFacts& topology) {
  const double of_owner = std::max(1.0, facts.touched_rows_per_host / topology.ranks);
  const double gap = std::max(1.0, static_cast<double>(facts.rows) / of_owner);
  const double bytes = std::min<double>(cost::kRowIdBytes, (std::log2(gap) + kBitsOfOrder) / 8);
  return {.spared_ns = (cost::kRowIdBytes - bytes) *
                       static_cast<double>(topology.costs.between.byte_ps) / 1000,
          .taken_ns = static_cast<double>(topology.costs.row_sort_ps) * kKeyShare / 1000};
}

// Of the numbers of one row; none: no numbers that are coded.
Gain of_numbers(const WireNumbers& numbers, const VariableFacts& facts,
                const TopologyFacts& topology) {
  if (!numbers.has_code) return {};
  const NumberCoding& coding = numbers.bytes == 2 ? kOfBf16 : kOfF32;
  const double bytes = static_cast<double>(facts.row_elements) * numbers.bytes;
  return {.spared_ns =
              bytes * coding.spared * static_cast<double>(topology.costs.between.byte_ps) / 1000,
          .taken_ns = bytes / coding.bytes_per_sort *
                      static_cast<double>(topology.costs.row_sort_ps) / 1000};
}

}  // namespace

RowCodingChoice choose_row_coding(const VariableFacts& facts, const TopologyFacts& topology) {
  RowCodingChoice choice;
  if (topology.row_coding == RowCodingMode::kOff) {
    choice.why = "row_coding is off";
    return choice;
  }
  const Gain key = of_row_key(facts, topology);
  const Gain pushed = of_numbers(facts.pushed, facts, topology);
  const Gain pulled = of_numbers(facts.pulled, facts, topology);
  const bool all = topology.row_coding == RowCodingMode::kOn;
  choice.row_keys = all || key.pays();
  choice.pushed = (all && pushed.taken_ns > 0) || pushed.pays();
  choice.pulled = facts.managed && ((all && pulled.taken_ns > 0) || pulled.pays());
  if (all) {
    choice.why = "row_coding is on";
    return choice;
  }
  choice.why = "a row key would spare " + text_of(key);
  if (pushed.taken_ns > 0) choice.why += ", the numbers of a row pushed " + text_of(pushed);
  if (facts.managed && pulled.taken_ns > 0) choice.why += ", and pulled " + text_of(pulled);
  choice.why += "; coded from " + cost::figure(kGainMin) + " times on";
  return choice;
}

}  // namespace parallax
