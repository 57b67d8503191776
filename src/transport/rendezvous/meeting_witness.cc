// SPDX-License-Identifier: Apache-2.0
// Speaking for ranks that have ended: see the header.
#include "transport/rendezvous/meeting_witness.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "transport/rendezvous/meeting_claim.h"
#include "transport/rendezvous/meeting_end.h"

namespace parallax {

namespace {

// Some rank has come, and the meeting is of the world that the launcher knows: whoever gives ranks
// and world by himself may hold one of fewer. Without rank 0 that cannot be told.
bool waits_for(const MeetingDirectory& directory, uint32_t rank) {
  std::vector<std::string> names;
  if (!directory.list(&names).ok()) return false;
  if (std::none_of(names.begin(), names.end(),
                   [](const std::string& name) { return name.starts_with("claim."); })) {
    return false;
  }
  std::string job;
  bool there = false;
  uint32_t world = 0;
  const bool told = directory.read("job", &job, &there).ok() && there &&
                    std::sscanf(job.c_str(), "%*16x %" SCNu32, &world) == 1;
  return told ? rank < world : rank == 0;
}

}  // namespace

void tell_of_ended(const std::string& path, const EndedRank& ended) {
  MeetingDirectory directory;
  if (!MeetingDirectory::open_existing(path, &directory).ok()) return;
  MeetingEnd end;
  Claim claim;
  if (!waits_for(directory, ended.rank) || !look_at_claim(directory, ended.rank, &claim).ok() ||
      (claim.taken && !claim.let_go) || !end.open(directory).ok() || end.is_gone(ended.rank)) {
    return;
  }
  end.pronounce(peer_lost(
      "rank " + std::to_string(ended.rank) + " (host " + ended.host + ") ended (" + ended.how +
      ") " + (claim.taken ? "while ranks met in " : "before it came to the meeting in ") +
      directory.path()));
  end.mark_gone(ended.rank);
}

}  // namespace parallax
