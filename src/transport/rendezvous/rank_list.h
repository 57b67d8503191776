// SPDX-License-Identifier: Apache-2.0
// The words for ranks that are missing from a meeting. Pure.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_RANK_LIST_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_RANK_LIST_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace parallax {

// "rank 3", "ranks 1, 4 and 7", "ranks 0, 1, ... and 996 more".
std::string rank_list(std::span<const uint32_t> ranks);

// "ranks 1 and 2 never came; rank 5 came but has not got this far"
std::string describe_missing(std::span<const uint32_t> absent, std::span<const uint32_t> late);

// TIMEOUT: of a meeting `where` ("at 10.0.0.1:29500", "in /tmp/meeting"), by what is missing.
Status missed_deadline(const std::string& where, const std::string& missing);

// As often as this a rank that waits says for whom, and that it goes on.
inline constexpr int64_t kSilenceNs = 10'000 * kNanosecondsPerMillisecond;
void say_waiting(const std::string& where, const std::string& missing, int64_t left_ns);

// What those answer who waited for a rank that left: its own words where they name a culprit
// (PEER_LOST) or concern all (MISMATCH), else PEER_LOST with who left and why. An OK `why` means
// that it gave no reason.
Status departed(uint32_t rank, const std::string& host, const Status& why);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_RANK_LIST_H_
