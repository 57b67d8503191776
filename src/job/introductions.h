// SPDX-License-Identifier: Apache-2.0
// Introductions: what each rank tells all others at the rendezvous: who it is, and then where it is
// reached. Collective; blocks until all have come, or the deadline.
#ifndef PARALLAX_JOB_INTRODUCTIONS_H_
#define PARALLAX_JOB_INTRODUCTIONS_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "rendezvous/rendezvous.h"
#include "transport/endpoint.h"

namespace parallax {

// Of every rank, by rank: all but its addresses. An error names who brought what is none.
Status exchange_endpoints(Rendezvous& rendezvous, const Endpoint& mine, int64_t deadline_ns,
                          std::vector<Endpoint>* all);

// Adds them to what is known of each rank. A rank that has none, because of `own`, an error, takes
// part all the same: not every rendezvous could tell the others that it left. It gets that error
// back, and the others PEER_LOST with it, of the first such rank.
Status exchange_addresses(Rendezvous& rendezvous, const Endpoint& mine, const Status& own,
                          int64_t deadline_ns, std::vector<Endpoint>* all);

}  // namespace parallax

#endif  // PARALLAX_JOB_INTRODUCTIONS_H_
