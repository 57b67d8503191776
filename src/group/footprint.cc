// SPDX-License-Identifier: Apache-2.0
// Sums and sentences of memory. See footprint.h.
#include "group/footprint.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace parallax {

namespace {

// Saturating: the sum of what may be registered can pass 2^64.
uint64_t add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
uint64_t times(uint64_t a, uint64_t b) { return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b; }

}  // namespace

uint64_t total_bytes(std::span<const Footprint> variables) {
  return std::accumulate(
      variables.begin(), variables.end(), uint64_t{0},
      [](uint64_t sum, const Footprint& variable) { return add(sum, variable.bytes()); });
}

std::string shown_bytes(uint64_t bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes >= 10240) {
    bytes >>= 10;
    ++unit;
  }
  return std::to_string(bytes) + " " + kUnits[unit];
}

std::string smaller_remedy(const Footprint& variable) {
  if (variable.table_bytes >= variable.buffer_bytes) {
    return "its table is the most of it: register fewer rows or a rule with less state, or shard "
           "it over more ranks and hosts";
  }
  if (variable.made_dense) {
    return "its buffers are the most of it, for made_dense holds every row: leave that pin";
  }
  if (variable.ids_declared) return "its buffers are the most of it: lower its rows_max";
  return "its buffers are the most of it: cut it in two";
}

std::string largest_variables(std::vector<Footprint> variables) {
  constexpr size_t kNamed = 3;
  std::stable_sort(variables.begin(), variables.end(),
                   [](const Footprint& a, const Footprint& b) { return a.bytes() > b.bytes(); });
  std::string text;
  for (size_t i = 0; i < variables.size() && i < kNamed; ++i) {
    text += (i == 0 ? "'" : ", '") + variables[i].name + "' (" +
            shown_bytes(variables[i].table_bytes) + " values and state, " +
            shown_bytes(variables[i].buffer_bytes) + " buffers)";
  }
  if (variables.size() > kNamed) {
    text += " and " + std::to_string(variables.size() - kNamed) + " more";
  }
  return text;
}

std::string memory_shortage(const std::vector<Footprint>& variables, uint32_t ranks,
                            const std::string& host, const MachineMemory& machine) {
  const uint64_t most = machine.most_bytes();
  const uint64_t wanted = times(total_bytes(variables), ranks);
  if (most == 0 || wanted <= most) return "";
  const bool limited = machine.limit_bytes != 0;
  return (ranks == 1 ? "the rank" : "the " + std::to_string(ranks) + " ranks") + " of host " +
         host + " may touch " + shown_bytes(wanted) + " of memory, and " +
         (limited ? "their control group gives them " : "the machine has ") + shown_bytes(most) +
         (limited ? " (" + machine.limit_file + ")" : " (with swap)") +
         "; of each rank's, the largest variables: " + largest_variables(variables) +
         "; what is not touched costs nothing, but past that the kernel kills processes; " +
         "register fewer rows, lower rows_max, or take more hosts";
}

}  // namespace parallax
