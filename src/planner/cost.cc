// SPDX-License-Identifier: Apache-2.0
// The cost formulas of cost.h. Pure arithmetic on doubles; any thread; nothing blocks. Figures are
// written by to_chars, which no locale changes.
#include "planner/cost.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace parallax::cost {
namespace {

double row_bytes(const VariableFacts& facts) {
  return static_cast<double>(facts.row_elements) * facts.element_bytes;
}

// (N-1)/N: what a party does not own itself.
double others_share(uint32_t parties) {
  PARALLAX_CHECK(parties >= 1);
  return static_cast<double>(parties - 1) / parties;
}

double whole_both_ways(const VariableFacts& facts, uint32_t parties) {
  return 2 * others_share(parties) * static_cast<double>(facts.rows) * row_bytes(facts);
}

std::string parties_text(uint32_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string share_text(uint32_t parties) {
  return std::to_string(parties - 1) + "/" + std::to_string(parties);
}

}  // namespace

uint32_t counted_parties(const TopologyFacts& topology) {
  PARALLAX_CHECK(topology.hosts >= 1 && topology.ranks >= topology.hosts);
  return topology.hosts > 1 ? topology.hosts : topology.ranks;
}

double allreduce(const VariableFacts& facts, uint32_t parties) {
  return whole_both_ways(facts, parties);
}

double made_dense(const VariableFacts& facts, uint32_t parties) {
  return whole_both_ways(facts, parties);
}

double allgatherv(const VariableFacts& facts, uint32_t parties) {
  PARALLAX_CHECK(parties >= 1);
  return (parties - 1) * facts.touched_rows_per_host * (row_bytes(facts) + kRowIdBytes);
}

double reduce_rows(const VariableFacts& facts, uint32_t parties) {
  return others_share(parties) * (facts.touched_rows_per_host + facts.union_rows) *
         (row_bytes(facts) + kRowIdBytes);
}

double push_pull(const VariableFacts& facts, uint32_t parties) {
  if (!carries_rows(facts)) return whole_both_ways(facts, parties);
  return others_share(parties) * (facts.touched_rows_per_host + facts.pulled_rows_per_host) *
         (row_bytes(facts) + kRowIdBytes);
}

double received_bytes(Method method, const VariableFacts& facts, uint32_t parties) {
  switch (method) {
    case Method::kAllreduce:
      return allreduce(facts, parties);
    case Method::kAllgatherv:
      return allgatherv(facts, parties);
    case Method::kReduceRows:
      return reduce_rows(facts, parties);
    case Method::kMadeDense:
      return made_dense(facts, parties);
    case Method::kPushPull:
      return push_pull(facts, parties);
  }
  PARALLAX_CHECK(!"a method without a formula");
  return 0;
}

double replicated_bound(const VariableFacts& facts, uint32_t parties) {
  if (parties < 2) return 0;
  const double others = static_cast<double>(parties - 2) / parties;
  return (facts.touched_rows_per_host + facts.union_rows * others) *
         (row_bytes(facts) + kRowIdBytes);
}

bool needs_measurement(Method method, const VariableFacts& facts) {
  return carries_rows(facts) && method != Method::kAllreduce && method != Method::kMadeDense;
}

std::string figure(double value) {
  const bool fraction = std::abs(value) < 10'000 && std::abs(value - std::round(value)) >= 0.05;
  std::array<char, 512> text;  // a double in fixed notation has at most 309 digits before the point
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::fixed, fraction ? 1 : 0);
  return {text.data(), end.ptr};
}

std::string formula(Method method, const VariableFacts& facts, const TopologyFacts& topology) {
  const uint32_t parties = counted_parties(topology);
  if (parties == 1) return "one rank, nothing moves";
  const std::string share = share_text(parties);
  const std::string bare = figure(row_bytes(facts));
  const std::string with_id = figure(row_bytes(facts) + kRowIdBytes);
  const std::string touched = figure(facts.touched_rows_per_host);
  std::string text;
  if (method == Method::kAllgatherv) {
    text = parties_text(parties - 1, topology.hosts > 1 ? "host" : "rank") + " x " + touched +
           " rows x " + with_id + " bytes";
  } else if (method == Method::kReduceRows) {
    text = share + " x (" + touched + " touched + " + figure(facts.union_rows) + " union rows) x " +
           with_id + " bytes";
  } else if (method == Method::kPushPull && carries_rows(facts)) {
    text = share + " x (" + touched + " pushed + " + figure(facts.pulled_rows_per_host) +
           " pulled rows) x " + with_id + " bytes";
  } else {
    text = "2 x " + share + " x " + std::to_string(facts.rows) + " rows x " + bare + " bytes";
  }
  if (topology.hosts == 1) text += ", between ranks in shared memory, nothing on the wire";
  return text;
}

}  // namespace parallax::cost
