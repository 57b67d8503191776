// SPDX-License-Identifier: Apache-2.0
// What a world of exchanges is made of, in words and in bytes. See exchange_world.h.
#include <cstring>
#include <sstream>
#include <type_traits>

#include "base/seeded_random.h"
#include "support/host_map_of.h"
#include "unit/collectives/exchange_world.h"

namespace parallax::exchange_conformance {

namespace {

HostMap map_layout(const std::vector<uint32_t>& hosts) {
  std::vector<std::string> names;
  for (const uint32_t host : hosts) names.push_back("host" + std::to_string(host));
  return map_hosts(names);
}

}  // namespace

HostMap map_of(const Candidate& candidate, const Setting& setting) {
  if (candidate.by_domains) return testkit::map_of_domains(setting.hosts);
  HostMap hosts = map_layout(setting.hosts);
  if (!candidate.rows || setting.domains == 1) return hosts;
  SeededRandom random(setting.seed + 77);
  std::vector<NearMemory> places;
  for (uint32_t rank = 0; rank < setting.world(); ++rank) {
    places.push_back({.node = static_cast<uint32_t>(random.below(setting.domains))});
  }
  set_domains(&hosts, places);
  return hosts;
}

std::string Setting::say() const {
  std::ostringstream text;
  text << "hosts";
  for (const uint32_t host : hosts) text << ' ' << host;
  text << "; " << shape.rows << " x " << shape.row_elements << ", rows_max " << shape.rows_max
       << "; " << dtype_name(dtype_of(sum)) << (ordered ? ", ordered" : "")
       << (counted ? ", counted" : "") << "; messages of " << message_bytes_max << "; seed " << seed
       << (staged ? ", staged" : "") << (rows_stay ? ", rows stay" : "")
       << (arrives ? ", arrives" : "") << "; " << domains << " domains";
  return text.str();
}

std::vector<std::byte> bytes_of(uint32_t dtype, std::span<const double> values) {
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) {
      T number;
      if constexpr (std::is_same_v<T, Half>) {
        number = to_half(static_cast<float>(values[i]));
      } else if constexpr (std::is_same_v<T, BFloat>) {
        number = to_bfloat(static_cast<float>(values[i]));
      } else {
        number = static_cast<T>(values[i]);
      }
      std::memcpy(&bytes[i * sizeof(T)], &number, sizeof number);
    }
    return bytes;
  });
}

}  // namespace parallax::exchange_conformance
