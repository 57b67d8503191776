// SPDX-License-Identifier: Apache-2.0
// DomainColumns: who sums a column's rows inside a host whose ranks lie in several NUMA nodes, as
// one of them sees it. What crosses between nodes goes once for each: the ranks of a node give the
// rows of a column whose leader lies in another one to one of them, who sums them and gives the sum
// to the leader. Of a node those who lead columns take turns at it, since only leaders are told who
// has ended a step. A node of one rank gives what it has to the leaders at once, and so does one of
// which fewer than half of the ranks lead (of hosts of unlike sizes), who would carry all others'.
//
// A pure value; any thread; nothing blocks.
#ifndef PARALLAX_WORLD_DOMAIN_COLUMNS_H_
#define PARALLAX_WORLD_DOMAIN_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "world/patterns.h"

namespace parallax {

// Ranks that give a rank rows of a column, ascending, and of how many ranks the rows of each are.
struct RowGivers {
  std::vector<uint32_t> ranks, rows_of;
};

class DomainColumns {
 public:
  explicit DomainColumns(const Columns& columns);

  // Somebody of this host sums his node's rows before their leader does. Else nothing more is
  // asked.
  bool any() const { return any_; }
  // Whom this rank gives its rows of a column. It may be itself.
  uint32_t taker(uint32_t column) const { return takers_[column]; }
  // The columns that others lead of which this rank sums its node's rows, ascending.
  const std::vector<uint32_t>& summed() const { return summed_; }

  // To this rank as a leader, of its column; and for its node, of each of summed().
  const RowGivers& to_leader() const { return to_leader_; }
  const RowGivers& in_domain() const { return in_domain_; }

 private:
  bool any_ = false;
  std::vector<uint32_t> takers_;  // by column
  std::vector<uint32_t> summed_;
  RowGivers to_leader_, in_domain_;
};

}  // namespace parallax

#endif  // PARALLAX_WORLD_DOMAIN_COLUMNS_H_
