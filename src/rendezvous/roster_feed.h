// SPDX-License-Identifier: Apache-2.0
// RosterFeed: what rank 0 has still to send to one member of a tcp rendezvous: where its parent in
// the tree of ranks listens, that a round is complete, the round's blobs if rank 0 is its parent or
// if it fetches them, and the verdict. Pure: frames are sealed into the member's bytes. One thread,
// or under its owner's lock.
//
// A round's blobs leave rank 0 once for each of its children, not for each rank: see
// roster_frames.h.
#ifndef PARALLAX_RENDEZVOUS_ROSTER_FEED_H_
#define PARALLAX_RENDEZVOUS_ROSTER_FEED_H_

#include <cstdint>
#include <string>

#include "rendezvous/frame.h"
#include "rendezvous/roster.h"
#include "rendezvous/roster_frames.h"

namespace parallax {

inline constexpr size_t kFeedBytes = 64 * 1024;  // what is kept ready for one rank

class RosterFeed {
 public:
  explicit RosterFeed(uint32_t rank);

  // Once, as soon as it is known. `from`: from where the member came to rank 0.
  void put_parent(const Roster& roster, const SocketAddress& from, Channel* channel,
                  std::string* out);
  // Piece by piece, so that a member that does not read costs kFeedBytes and not all blobs of the
  // world.
  void put_rounds(const Roster& roster, Channel* channel, std::string* out);
  // Whether put_rounds() has more to put.
  bool lags(const Roster& roster) const { return roster.complete(round_); }
  // Once, if there is one.
  void put_verdict(const Roster& roster, Channel* channel, std::string* out);

  // The member gets its blobs from rank 0 from now on. False: it asks for what no member lacks that
  // is told of its rounds.
  bool fetch(const Roster& roster, const FetchRequest& request);

 private:
  void put_piece(const Roster& roster, Channel* channel, std::string* out);

  const uint32_t rank_;
  const uint32_t parent_;
  bool fed_;  // it gets the blobs of a round from rank 0
  bool parent_told_ = false;
  bool complete_told_ = false;  // of round_
  uint64_t round_ = 0;          // the round that it is told of next, or whose blobs it is sent,
  uint32_t next_ = 0;           // from this rank's blob on
  bool verdict_told_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_ROSTER_FEED_H_
