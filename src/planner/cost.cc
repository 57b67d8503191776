// SPDX-License-Identifier: Apache-2.0
// The costs of cost.h. Pure arithmetic on doubles; any thread; nothing blocks. Figures are
// written by to_chars, which no locale changes.
#include "planner/cost.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/check.h"

namespace parallax::cost {
namespace {

double row_bytes(const VariableFacts& facts) {
  return static_cast<double>(facts.row_elements) * facts.element_bytes;
}

double with_id_bytes(const VariableFacts& facts) { return row_bytes(facts) + kRowIdBytes; }

// Of a row that is pulled, and with its id.
double pulled_row_bytes(const VariableFacts& facts) {
  if (facts.pulled.bytes == 0) return row_bytes(facts);
  return static_cast<double>(facts.row_elements) * facts.pulled.bytes;
}
double pulled_with_id_bytes(const VariableFacts& facts) {
  return pulled_row_bytes(facts) + kRowIdBytes;
}

// Of a row that is pushed, with its id: within a host it is summed as it is.
double pushed_with_id_bytes(const VariableFacts& facts, const TopologyFacts& topology) {
  if (facts.pushed.bytes == 0 || topology.hosts == 1) return with_id_bytes(facts);
  return static_cast<double>(facts.row_elements) * facts.pushed.bytes + kRowIdBytes;
}

// (N-1)/N: what a party does not own itself.
double others_share(uint32_t parties) { return static_cast<double>(parties - 1) / parties; }

const ScheduleCost& counted(const ScheduleCost& cost) {
  PARALLAX_CHECK(cost.algorithm != nullptr);
  return cost;
}

std::string hosts_text(uint32_t count) {
  return std::to_string(count) + (count == 1 ? " host" : " hosts");
}

std::string share_text(uint32_t parties) {
  return std::to_string(parties - 1) + "/" + std::to_string(parties);
}

// How often a party receives the elements: "2 x 3/4", or "1.969" where it is no share of parties or
// ranks.
std::string times_text(double times, const TopologyFacts& topology) {
  for (const uint32_t count : {counted_parties(topology), topology.ranks}) {
    for (const uint32_t ways : {1u, 2u}) {
      if (std::abs(times - ways * others_share(count)) > 1e-9) continue;
      return (ways == 2 ? "2 x " : "") + share_text(count);
    }
  }
  std::array<char, 512> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), times, std::chars_format::fixed, 3);
  return {text.data(), end.ptr};
}

// Of elements, by a schedule, and `other_bytes` beside it. The direct one is the rule and not
// named.
std::string elements_text(const ScheduleCost& cost, double other_bytes, const VariableFacts& facts,
                          const TopologyFacts& topology) {
  const double times = (counted(cost).received_bytes + other_bytes) / cost.carried_bytes;
  const std::string text = times_text(times, topology) + " x " + std::to_string(facts.rows) +
                           " rows x " +
                           figure(cost.carried_bytes / static_cast<double>(facts.rows)) + " bytes";
  if (std::string_view(cost.algorithm) == "direct") return text;
  return text + ", " + cost.description;
}

std::string push_pull_text(const VariableFacts& facts, const TopologyFacts& topology,
                           const std::string& share, const std::string& touched) {
  const std::string with_id = figure(pushed_with_id_bytes(facts, topology));
  const std::string pulled = figure(facts.pulled_rows_per_host);
  const std::string pulled_with_id = figure(pulled_with_id_bytes(facts));
  if (pulled_with_id == with_id) {
    return share + " x (" + touched + " pushed + " + pulled + " pulled rows) x " + with_id +
           " bytes";
  }
  return share + " x (" + touched + " pushed rows x " + with_id + " + " + pulled +
         " pulled rows x " + pulled_with_id + " bytes)";
}

std::string made_dense_text(const VariableFacts& facts, const TopologyFacts& topology) {
  const std::string elements = elements_text(facts.to_all, 0, facts, topology);
  if (topology.hosts > 1) return elements;
  return elements + " and " + share_text(counted_parties(topology)) + " x " +
         figure(facts.touched_rows_per_host) + " touched rows x " + figure(with_id_bytes(facts)) +
         " bytes";
}

}  // namespace

uint32_t counted_parties(const TopologyFacts& topology) {
  PARALLAX_CHECK(topology.hosts >= 1 && topology.ranks >= topology.hosts);
  return topology.hosts > 1 ? topology.hosts : topology.ranks;
}

double allreduce(const VariableFacts& facts, const TopologyFacts&) {
  return counted(facts.to_all).received_bytes;
}

double made_dense(const VariableFacts& facts, const TopologyFacts& topology) {
  const double of_elements = counted(facts.to_all).received_bytes;
  if (topology.hosts > 1) return of_elements;
  return of_elements + others_share(counted_parties(topology)) * facts.touched_rows_per_host *
                           with_id_bytes(facts);
}

double allgatherv(const VariableFacts& facts, const TopologyFacts& topology) {
  if (topology.hosts == 1) return reduce_rows(facts, topology);
  return (counted_parties(topology) - 1) * facts.touched_rows_per_host * with_id_bytes(facts);
}

double reduce_rows(const VariableFacts& facts, const TopologyFacts& topology) {
  return others_share(counted_parties(topology)) *
         (facts.touched_rows_per_host + facts.union_rows) * with_id_bytes(facts);
}

double push_pull(const VariableFacts& facts, const TopologyFacts& topology) {
  const uint32_t parties = counted_parties(topology);
  if (carries_rows(facts)) {
    return others_share(parties) *
           (facts.touched_rows_per_host * pushed_with_id_bytes(facts, topology) +
            facts.pulled_rows_per_host * pulled_with_id_bytes(facts));
  }
  const double pulled = static_cast<double>(facts.rows) * pulled_row_bytes(facts) * (parties - 1);
  return counted(facts.to_owners).received_bytes + pulled / parties;
}

double received_bytes(Method method, const VariableFacts& facts, const TopologyFacts& topology) {
  switch (method) {
    case Method::kAllreduce:
      return allreduce(facts, topology);
    case Method::kAllgatherv:
      return allgatherv(facts, topology);
    case Method::kReduceRows:
      return reduce_rows(facts, topology);
    case Method::kMadeDense:
      return made_dense(facts, topology);
    case Method::kPushPull:
      return push_pull(facts, topology);
  }
  PARALLAX_CHECK(!"a method without a cost");
  return 0;
}

double replicated_bound(const VariableFacts& facts, const TopologyFacts& topology) {
  const uint32_t parties = counted_parties(topology);
  if (parties < 2) return 0;
  const double others = static_cast<double>(parties - 2) / parties;
  return (facts.touched_rows_per_host + facts.union_rows * others) * with_id_bytes(facts);
}

bool needs_measurement(Method method, const VariableFacts& facts, const TopologyFacts& topology) {
  if (!carries_rows(facts) || method == Method::kAllreduce) return false;
  return method != Method::kMadeDense || topology.hosts == 1;
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
  const std::string with_id = figure(with_id_bytes(facts));
  const std::string touched = figure(facts.touched_rows_per_host);
  std::string text;
  if (method == Method::kAllgatherv && topology.hosts > 1) {
    text = hosts_text(parties - 1) + " x " + touched + " rows x " + with_id + " bytes";
  } else if (method == Method::kAllgatherv || method == Method::kReduceRows) {
    text = share + " x (" + touched + " touched + " + figure(facts.union_rows) + " union rows) x " +
           with_id + " bytes";
  } else if (method == Method::kPushPull && carries_rows(facts)) {
    text = push_pull_text(facts, topology, share, touched);
  } else if (method == Method::kPushPull) {
    const double pulled = push_pull(facts, topology) - facts.to_owners.received_bytes;
    text = elements_text(facts.to_owners, pulled, facts, topology);
  } else if (method == Method::kMadeDense) {
    text = made_dense_text(facts, topology);
  } else {
    text = elements_text(facts.to_all, 0, facts, topology);
  }
  if (topology.hosts == 1) text += ", between ranks in shared memory, nothing on the wire";
  return text;
}

}  // namespace parallax::cost
