// SPDX-License-Identifier: Apache-2.0
// A rank's claim in the directory of a "file:" meeting: claim.R, made exclusively by the process
// that is rank R, and locked by it for as long as it needs the meeting. The lock goes with the
// process, however it ends, so who waits for it sees that at once.
//
//   process 4711 on host b
//   locked on BOOT/DEVICE    only if it is; written once it is, so no reader comes in between
//
// A lock is believed by those alone that see it where it was taken: the same boot of the same
// machine, the same file system. Elsewhere, where locks are not to be had, and while a child that
// was forked meanwhile holds it on, leases tell. NFS counts as such: its locks may keep a caller
// waiting without bound.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_CLAIM_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_CLAIM_H_

#include <cstdint>
#include <string>

#include "transport/rendezvous/meeting_directory.h"

namespace parallax {

std::string claim_name(uint32_t rank);

// Kept for as long as *held is. INVALID: who has it already.
Status take_claim(const MeetingDirectory& directory, uint32_t rank, const std::string& host,
                  UniqueFd* held);

struct Claim {
  bool taken = false;
  std::string holder;  // "process 4711 on host b"
  std::string host;
  bool let_go = false;  // its process has ended, or needs the meeting no more; false: who knows
};
// OK also where there is none.
Status look_at_claim(const MeetingDirectory& directory, uint32_t rank, Claim* claim);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_CLAIM_H_
