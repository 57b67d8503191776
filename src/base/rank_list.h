// SPDX-License-Identifier: Apache-2.0
// Sentences about ranks that are missing from a rendezvous. Pure.
#ifndef PARALLAX_BASE_RANK_LIST_H_
#define PARALLAX_BASE_RANK_LIST_H_

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

// TIMEOUT. `where` is "at 10.0.0.1:29500" or "in /tmp/rendezvous"; `missing` by describe_missing.
Status missed_deadline(const std::string& where, const std::string& missing);

// A rank that waits logs this often for whom it waits, so that a user does not take it for hung.
inline constexpr int64_t kSilenceNs = 10'000 * kNanosecondsPerMillisecond;
void say_waiting(const std::string& where, const std::string& missing, int64_t left_ns);

// The error that ranks report which waited for a rank that left: that rank's own sentence where it
// names a culprit (PEER_LOST) or concerns all ranks (MISMATCH), else PEER_LOST with who left and
// why. An OK `why` means that it gave no reason.
Status departed(uint32_t rank, const std::string& host, const Status& why);

}  // namespace parallax

#endif  // PARALLAX_BASE_RANK_LIST_H_
