// SPDX-License-Identifier: Apache-2.0
// Who takes whose rows. See domain_columns.h.
#include "world/domain_columns.h"

#include <algorithm>

namespace parallax {

namespace {

// The ranks of a host by domain, and of these those who lead, ascending.
struct Domains {
  explicit Domains(const Columns& columns) : columns(columns) {
    const uint32_t count = domain_count(columns.map(), columns.host());
    ranks.resize(count);
    leaders.resize(count);
    for (const uint32_t rank : columns.locals()) {
      ranks[of(rank)].push_back(rank);
      if (columns.is_leader(rank)) leaders[of(rank)].push_back(rank);
    }
  }

  uint32_t of(uint32_t rank) const {
    const auto& domain_of = columns.map().domain_of;
    return domain_of.empty() ? 0 : domain_of[rank];
  }

  // Whom a rank gives its rows of a column.
  uint32_t taker(uint32_t rank, uint32_t column) const {
    const uint32_t leader = columns.leader(columns.host(), column);
    const uint32_t here = of(rank), there = of(leader);
    if (here == there || ranks[here].size() == 1 || leaders[here].empty()) return leader;
    const std::vector<uint32_t>& beside = leaders[there];
    const auto turn = std::find(beside.begin(), beside.end(), leader) - beside.begin();
    return leaders[here][static_cast<size_t>(turn) % leaders[here].size()];
  }

  const Columns& columns;
  std::vector<std::vector<uint32_t>> ranks, leaders;
};

}  // namespace

DomainColumns::DomainColumns(const Columns& columns) {
  if (domain_count(columns.map(), columns.host()) == 1) return;
  const Domains domains(columns);
  const uint32_t self = columns.rank(), here = domains.of(self);
  for (uint32_t column = 0; column < columns.count(); ++column) {
    const uint32_t leader = columns.leader(columns.host(), column);
    takers_.push_back(domains.taker(self, column));
    if (takers_.back() == self && leader != self) summed_.push_back(column);
    for (const uint32_t rank : columns.locals()) any_ |= domains.taker(rank, column) != leader;
  }
  for (const uint32_t rank : columns.locals()) {
    const uint32_t there = domains.of(rank);
    given_in_domain_.push_back(there == here ? 1 : 0);
    if (!columns.is_leader()) continue;
    const uint32_t taker = domains.taker(rank, columns.my_column());
    const auto in_domain = static_cast<uint32_t>(domains.ranks[there].size());
    given_to_leader_.push_back(taker == self ? 1 : taker == rank ? in_domain : 0);
  }
}

}  // namespace parallax
