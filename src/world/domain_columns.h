// SPDX-License-Identifier: Apache-2.0
// DomainColumns: who sums a column's rows inside a host whose ranks lie in several domains of
// memory, as one of them sees it. What crosses between domains goes once for each: the ranks of a
// domain give the rows of a column whose leader lies in another one to one of them, who sums them
// and gives the sum to the leader. Of a domain those who lead columns take turns at it, so that
// each sums about as much. A rank that is alone in its domain gives what it has to the leader, and
// so does one in whose domain nobody leads, since only leaders are told who has ended a step.
//
// A pure value; any thread; nothing blocks.
#ifndef PARALLAX_WORLD_DOMAIN_COLUMNS_H_
#define PARALLAX_WORLD_DOMAIN_COLUMNS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "world/patterns.h"

namespace parallax {

class DomainColumns {
 public:
  explicit DomainColumns(const Columns& columns);

  // Somebody of this host sums his domain's rows before their leader does. Else nothing more is
  // asked.
  bool any() const { return any_; }
  // Whom this rank gives its rows of a column. It may be itself.
  uint32_t taker(uint32_t column) const { return takers_[column]; }
  // The columns that others lead of which this rank sums its domain's rows, ascending.
  const std::vector<uint32_t>& summed() const { return summed_; }

  // By rank of the host, how many ranks' rows come from it at once; 0: it gives none. To this rank
  // as a leader, of its column; and for its domain, of each of summed().
  std::span<const uint32_t> given_to_leader() const { return given_to_leader_; }
  std::span<const uint32_t> given_in_domain() const { return given_in_domain_; }

 private:
  bool any_ = false;
  std::vector<uint32_t> takers_;  // by column
  std::vector<uint32_t> summed_;
  std::vector<uint32_t> given_to_leader_, given_in_domain_;
};

}  // namespace parallax

#endif  // PARALLAX_WORLD_DOMAIN_COLUMNS_H_
