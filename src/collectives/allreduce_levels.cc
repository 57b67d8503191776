// SPDX-License-Identifier: Apache-2.0
// Inside domains of memory, then between them. See allreduce.h.
#include "collectives/allreduce.h"

namespace parallax {

// Domains are to the ranks of a host what hosts are to those of a job: what lies far is summed
// before it goes there, in columns, so that every rank carries a share of it.
Schedule allreduce_levels(const AllreduceShape& shape) {
  const HostMap domains = domains_as_hosts(shape.columns.map());
  const Columns columns(domains, shape.columns.rank());
  return allreduce_direct({.columns = columns,
                           .partition = shape.partition,
                           .variable = shape.variable,
                           .ordered = shape.ordered,
                           .returned = shape.returned});
}

}  // namespace parallax
