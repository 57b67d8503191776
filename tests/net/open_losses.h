// SPDX-License-Identifier: Apache-2.0
// Random jobs of two hosts of which one rank is killed soon after it has come to the rendezvous: in
// open, in commit, in a step. Expects every survivor to name that rank and to end by no signal.
// Tests only, one thread.
#ifndef PARALLAX_TESTS_NET_OPEN_LOSSES_H_
#define PARALLAX_TESTS_NET_OPEN_LOSSES_H_

#include <cstddef>
#include <cstdint>

namespace parallax::net {

// `count` jobs, a few at once; a failed expectation names the seed of the job.
void expect_no_living_rank_is_blamed(uint64_t seed, size_t count);

}  // namespace parallax::net

#endif  // PARALLAX_TESTS_NET_OPEN_LOSSES_H_
