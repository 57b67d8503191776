// SPDX-License-Identifier: Apache-2.0
// Words for missing ranks: see the header. Pure.
#include "base/rank_list.h"

#include "base/log.h"

namespace parallax {

namespace {
constexpr size_t kRanksNamedMax = 16;
}  // namespace

std::string rank_list(std::span<const uint32_t> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t named = ranks.size() > kRanksNamedMax ? kRanksNamedMax : ranks.size();
  for (size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (named < ranks.size()) text += " and " + std::to_string(ranks.size() - named) + " more";
  return text;
}

std::string describe_missing(std::span<const uint32_t> absent, std::span<const uint32_t> late) {
  std::string text;
  if (!absent.empty()) text = rank_list(absent) + " never came";
  if (!late.empty()) {
    if (!text.empty()) text += "; ";
    text +=
        rank_list(late) + " came but " + (late.size() == 1 ? "has" : "have") + " not got this far";
  }
  return text;
}

void say_waiting(const std::string& where, const std::string& missing, int64_t left_ns) {
  PARALLAX_LOG(kWarn, kInit,
               "still waiting in the rendezvous " + where + ", for " +
                   std::to_string(left_ns / (1000 * kNanosecondsPerMillisecond)) +
                   " s more: " + missing);
}

Status missed_deadline(const std::string& where, const std::string& missing) {
  return timed_out("the rendezvous " + where + " passed its deadline: " + missing +
                   "; see what is printed there, or allow more in timeout_ms");
}

Status departed(uint32_t rank, const std::string& host, const Status& why) {
  if (why.code() == PARALLAX_PEER_LOST || why.code() == PARALLAX_MISMATCH) return why;
  return peer_lost("rank " + std::to_string(rank) + " (host " + host +
                   ") gave up before all ranks had met" +
                   (why.ok() ? std::string() : ": " + why.message()))
      .about_peer(rank, host);
}

}  // namespace parallax
