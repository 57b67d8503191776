// SPDX-License-Identifier: Apache-2.0
// Which algorithm of congestion control a connection of transport tcp has: the system's, or
// another, as the setting tcp_congestion says. "auto" leaves BBR to long ways. It paces each
// connection by the share of the link that this one had in its last round trips, and takes some
// forty of them to find that it may have three times as much. Ranks send to few peers at one time
// and to all at another, so within a cluster links stand idle meanwhile
// (docs/adr/0124-near-ranks-do-without-bbr.md). Any thread; nothing blocks.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_CONGESTION_H_
#define PARALLAX_TRANSPORT_TCP_TCP_CONGESTION_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"

namespace parallax {

// Of a connection whose shortest round trip is less, both ends are in one place.
inline constexpr uint32_t kNearRoundTripUs = 1000;

// "auto", "system", or an algorithm that this process may have. INVALID.
Status check_tcp_congestion(std::string_view setting);

// Whether "auto" leaves a connection the system's algorithm.
bool suits_ranks(std::string_view algorithm, uint32_t round_trip_us);

// Of a connection that is made, by a setting that was checked. Where the kernel refuses, it stays
// as it is.
void set_tcp_congestion(const UniqueFd& connection, std::string_view setting);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_CONGESTION_H_
