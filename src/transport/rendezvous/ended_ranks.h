// SPDX-License-Identifier: Apache-2.0
// EndedRanks: a launcher's word for ranks that can say nothing any more. `parallax run` adds a line
// for each rank that ends to a file that PARALLAX_ENDED_RANKS names to the others; on other hosts
// what holds the connection writes it. Ranks that wait for one that never comes hear of it there.
//
//   3 TAB gpu03 TAB killed by signal 9 LF     rank, host, how
//
// Nothing of it passes the network of the meeting, and only a file that nobody but this user or
// root can write is believed. One thread; look() blocks on the file system at most.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_ENDED_RANKS_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_ENDED_RANKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/rendezvous/environment.h"
#include "transport/rendezvous/rendezvous.h"
#include "transport/shm/unique_fd.h"

namespace parallax {

inline constexpr const char* kEndedRanksVariable = "PARALLAX_ENDED_RANKS";

struct EndedRank {
  uint32_t rank = 0;
  std::string host;
  std::string how;  // "killed by signal 9", "exited with status 0"
};

std::string ended_line(const EndedRank& ended);

// What those answer that wait for it `where` ("at 127.0.0.1:29500", "in /tmp/meeting"): PEER_LOST.
Status ended_before_meeting(const EndedRank& ended, const std::string& where);

// The file that speaks of this job's ranks; "" if there is none, or where the program gives its
// ranks other numbers than the launcher did.
std::string ended_ranks_file(const Environment& environment, uint32_t rank, uint32_t world);

class EndedRanks {
 public:
  explicit EndedRanks(const RendezvousOptions& options);

  // Reads what was added since, if it is time to.
  void look(int64_t now_ns);
  int64_t due_ns() const { return due_ns_; }
  // The others of this job that have ended, in that order.
  const std::vector<EndedRank>& all() const { return all_; }
  // Null: it has not, as far as is known.
  const EndedRank* find(uint32_t rank) const;

 private:
  bool open();
  void take(std::string_view line);

  std::string file_;
  uint32_t rank_;
  uint32_t world_;
  int64_t due_ns_;
  UniqueFd fd_;
  std::string partial_;  // a line that is not whole yet
  std::vector<EndedRank> all_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_ENDED_RANKS_H_
