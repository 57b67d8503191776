// SPDX-License-Identifier: Apache-2.0
// Contact: while ranks meet, each attaches the shared memory of its host-mates, and is connected
// with other hosts; and who is at fault where that fails. All ranks have come this far: one that
// does not answer is lost, after four fifths of the lease as in the rest of the rendezvous, so that
// all ranks hear of it within the lease. A rank that gives up here hangs up on the others, so it
// says why first, and they ask before they judge.
#ifndef PARALLAX_JOB_CONTACT_H_
#define PARALLAX_JOB_CONTACT_H_

#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/status.h"
#include "rendezvous/rendezvous.h"

namespace parallax {

enum class ContactWay : uint8_t { kSharedMemory, kNetwork };

// The job's, all of them.
struct ContactMeans {
  const Clock& clock;
  std::function<void(int64_t ns)> pause;
  Rendezvous& rendezvous;
  int64_t lease_ns = 0;
};

// Calls `others`, which gets in touch with the ranks that are reached this way, until a deadline.
// Returns what it says, or what the rendezvous says of who is lost; any error is also left there.
Status make_contact(const ContactMeans& means, ContactWay way, int64_t deadline_ns,
                    const std::function<Status(int64_t deadline_ns)>& others);

}  // namespace parallax

#endif  // PARALLAX_JOB_CONTACT_H_
