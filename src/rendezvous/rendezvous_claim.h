// SPDX-License-Identifier: Apache-2.0
// A rank's claim in the directory of a "file:" rendezvous: claim.R, made exclusively by the process
// that is rank R, and locked by it for as long as it needs the rendezvous. The kernel drops the
// lock when the process ends, however it ends, so ranks that wait for it see that at their next
// poll.
//
//   process 4711 on host b
//   locked on BOOT/DEVICE    written after the lock was taken, so a reader never misses it
//
// Only a reader on the same boot of the same machine and the same file system trusts the lock. All
// others go by the keepalives, as does everyone where locks cannot be had, or where a forked child
// still holds the lock. NFS is treated as having none: its locks may block a caller without bound.
#ifndef PARALLAX_RENDEZVOUS_RENDEZVOUS_CLAIM_H_
#define PARALLAX_RENDEZVOUS_RENDEZVOUS_CLAIM_H_

#include <cstdint>
#include <string>

#include "rendezvous/rendezvous_directory.h"

namespace parallax {

std::string claim_name(uint32_t rank);

// The claim lasts as long as *held is open. INVALID names who has claimed the rank already.
Status take_claim(const RendezvousDirectory& directory, uint32_t rank, const std::string& host,
                  UniqueFd* held);

struct Claim {
  bool taken = false;
  std::string holder;  // "process 4711 on host b"
  std::string host;
  bool let_go = false;  // released, or its process has ended; false where that cannot be told
};
// OK also where there is no claim.
Status look_at_claim(const RendezvousDirectory& directory, uint32_t rank, Claim* claim);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_RENDEZVOUS_CLAIM_H_
