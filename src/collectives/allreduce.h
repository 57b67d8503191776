// SPDX-License-Identifier: Apache-2.0
// Builders of dense algorithms, one file each: pure functions from the shape of a job to the
// schedule of one rank. Each is proved for every world of 1 to 64 ranks and uneven hosts by
// tests/unit/collectives/allreduce_test.cc.
#ifndef PARALLAX_COLLECTIVES_ALLREDUCE_H_
#define PARALLAX_COLLECTIVES_ALLREDUCE_H_

#include "collectives/schedule.h"

namespace parallax {

struct AllreduceShape {
  const Columns& columns;      // whose rank() the schedule is for
  const Partition& partition;  // its ranges say who owns which elements
  uint32_t variable = 0;       // spreads roots over the ranks
  // Sums add the ranks of a host in order, then hosts in order.
  bool ordered = false;
  // Every rank gets the total back; else the owners alone have it.
  bool returned = true;
  // Hosts contribute, not ranks: the input of a column's leader is its host's sum of what that
  // column's owners own, and the other ranks have none.
  bool of_hosts = false;
  // Not kNoRank: of all ranks this one alone gets the total, of its owners. allreduce_direct only.
  uint32_t only_to = kNoRank;
};

// Reduce-scatter to the owners, then allgather, summed inside each host first: every rank sends
// each range to the leader of its owner's column, leaders send what they summed to the owner, and
// on the way back the owner to the leaders of its column on all hosts and these to their host. With
// one host leader and owner are one rank, and each range travels once each way.
Schedule allreduce_direct(const AllreduceShape& shape);

// The same on one host, with its domains of memory in the place of hosts: of each range what
// crosses between domains is one sum of each, and one total to each, whatever ranks they have. Sums
// follow domains, so `ordered` is not the order of ranks.
Schedule allreduce_levels(const AllreduceShape& shape);

// Everything from every rank to every other, and each sums all of it, in the order of ranks: one
// round where others take two, for as many elements as there are ranks besides this one, times
// over. For few elements and few ranks. Rank `variable` of the world counts as the owner.
Schedule allreduce_oneshot(const AllreduceShape& shape);

// Everything up a tree of hosts to one root, and down again. log(hosts) hops of latency, and the
// root's links carry all: for few elements and many hosts.
Schedule allreduce_tree(const AllreduceShape& shape);

// A ring over all ranks, hosts after one another: each range goes once round to be summed and once
// round to be handed out (Patarasuk and Yuan, 2009). Each link carries 2 (P - 1) / P of the
// elements, whatever P, in 2 (P - 1) steps: for many elements. The order of adding follows the
// ring, so `ordered` cannot be asked for.
Schedule allreduce_ring(const AllreduceShape& shape);

// Summed inside each host first; then, column by column, hosts at half the distance each round give
// one another the half of their elements that the other sums on, and in as many rounds back what
// they have of the result, twice as much each time (Rabenseifner, 2004). As few bytes as a ring or
// the owners take, in 2 log2(hosts) messages a leader: for elements in between, and many hosts.
// Hosts beyond the largest power of two give theirs to one below it, and get the result from there.
// Which rank reduces what follows from the rounds: of the column's elements a 1/2^k each.
Schedule allreduce_halving(const AllreduceShape& shape);

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ALLREDUCE_H_
