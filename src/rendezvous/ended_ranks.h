// SPDX-License-Identifier: Apache-2.0
// EndedRanks: which ranks have ended, as their launcher reports. A process that ends before it
// joins the rendezvous cannot say so itself, and the others would wait for it until their deadline.
// `parallax run` appends a line for each rank that ends to a file that PARALLAX_ENDED_RANKS names
// to all; on a remote host the process that holds the connection to the launcher writes that file.
//
//   3 TAB gpu03 TAB killed by signal 9 LF     rank, host, how
//
// None of this travels over the rendezvous, and only a file that nobody but this user or root can
// write is believed. One thread; look() blocks on the file system at most.
#ifndef PARALLAX_RENDEZVOUS_ENDED_RANKS_H_
#define PARALLAX_RENDEZVOUS_ENDED_RANKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "rendezvous/environment.h"
#include "rendezvous/rendezvous.h"

namespace parallax {

inline constexpr const char* kEndedRanksVariable = "PARALLAX_ENDED_RANKS";

struct EndedRank {
  uint32_t rank = 0;
  std::string host;
  std::string how;  // "killed by signal 9", "exited with status 0"
};

std::string ended_line(const EndedRank& ended);

// PEER_LOST: what ranks report that wait for the ended rank. `where` is "at 127.0.0.1:29500" or
// "in /tmp/rendezvous".
Status ended_before_rendezvous(const EndedRank& ended, const std::string& where);

// The file that lists this job's ended ranks; "" if there is none, or where the program numbers its
// ranks otherwise than the launcher, since the file's numbers would then name the wrong ranks.
std::string ended_ranks_file(const Environment& environment, uint32_t rank, uint32_t world);

class EndedRanks {
 public:
  explicit EndedRanks(const RendezvousOptions& options);

  // Reads what was appended since the last call, if due_ns() has come.
  void look(int64_t now_ns);
  int64_t due_ns() const { return due_ns_; }
  // The other ranks of this job that have ended, in the order in which they did.
  const std::vector<EndedRank>& all() const { return all_; }
  // Null: not known to have ended.
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

#endif  // PARALLAX_RENDEZVOUS_ENDED_RANKS_H_
