// SPDX-License-Identifier: Apache-2.0
// RosterFeed: what rank 0 has still to send to one member of a tcp rendezvous: the blobs of every
// round that is complete, and the verdict. Pure: frames are sealed into the member's bytes. One
// thread, or under its owner's lock.
#ifndef PARALLAX_RENDEZVOUS_ROSTER_FEED_H_
#define PARALLAX_RENDEZVOUS_ROSTER_FEED_H_

#include <cstdint>
#include <string>

#include "rendezvous/frame.h"
#include "rendezvous/roster.h"

namespace parallax {

inline constexpr size_t kFeedBytes = 64 * 1024;  // what is kept ready for one rank

class RosterFeed {
 public:
  // Piece by piece, so that a member that does not read costs kFeedBytes and not all blobs of the
  // world.
  void put_blobs(const Roster& roster, Channel* channel, std::string* out);
  // Once, if there is one.
  void put_verdict(const Roster& roster, Channel* channel, std::string* out);

 private:
  uint64_t round_ = 0;  // the round whose blobs are sent next,
  uint32_t next_ = 0;   // from this rank's blob on
  bool told_ = false;   // the verdict was sent
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_ROSTER_FEED_H_
