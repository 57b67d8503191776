// SPDX-License-Identifier: Apache-2.0
// Who takes whose rows. See domain_columns.h.
#include "world/domain_columns.h"

namespace parallax {

namespace {

// The ranks of a host by NUMA node, and of these those who lead, ascending.
class Nodes {
 public:
  explicit Nodes(const Columns& columns)
      : columns_(columns),
        ranks_(domain_count(columns.map(), columns.host())),
        leaders_(ranks_.size()) {
    for (const uint32_t rank : columns.locals()) {
      ranks_[of(rank)].push_back(rank);
      if (!columns.is_leader(rank)) continue;
      places_.push_back(static_cast<uint32_t>(leaders_[of(rank)].size()));
      leaders_[of(rank)].push_back(rank);
    }
  }

  uint32_t of(uint32_t rank) const { return columns_.map().domain_of[rank]; }
  const std::vector<uint32_t>& ranks(uint32_t node) const { return ranks_[node]; }
  // What leaders of others get of its ranks is summed first.
  bool sums(uint32_t node) const {
    return ranks_[node].size() > 1 && 2 * leaders_[node].size() >= ranks_[node].size();
  }
  bool any_sums() const {
    for (uint32_t node = 0; node < ranks_.size(); ++node) {
      const bool others_lead = leaders_[node].size() < columns_.count();
      if (sums(node) && others_lead) return true;
    }
    return false;
  }
  // Whom the ranks of a node give their rows of a column.
  uint32_t taker(uint32_t node, uint32_t column) const {
    const uint32_t leader = columns_.leader(columns_.host(), column);
    if (node == of(leader) || !sums(node)) return leader;
    return leaders_[node][places_[column] % leaders_[node].size()];
  }
  bool gives_at_once(uint32_t node, uint32_t column) const {
    return taker(node, column) == columns_.leader(columns_.host(), column);
  }

 private:
  const Columns& columns_;
  std::vector<std::vector<uint32_t>> ranks_, leaders_;  // by node
  std::vector<uint32_t> places_;  // by column, of its leader among those of its node
};

bool lie_in_nodes(const Columns& columns) {
  const HostMap& map = columns.map();
  return !map.domain_of.empty() && map.domains_are_nodes[columns.host()] != 0;
}

}  // namespace

DomainColumns::DomainColumns(const Columns& columns) {
  if (!lie_in_nodes(columns)) return;
  const Nodes nodes(columns);
  any_ = nodes.any_sums();
  if (!any_) return;
  const uint32_t self = columns.rank(), here = nodes.of(self);
  for (uint32_t column = 0; column < columns.count(); ++column) {
    takers_.push_back(nodes.taker(here, column));
    const bool leads = columns.is_leader() && column == columns.my_column();
    if (takers_.back() == self && !leads) summed_.push_back(column);
  }
  in_domain_.ranks = nodes.ranks(here);
  in_domain_.rows_of.assign(in_domain_.ranks.size(), 1);
  if (!columns.is_leader()) return;
  for (const uint32_t rank : columns.locals()) {
    const uint32_t node = nodes.of(rank);
    const bool at_once = nodes.gives_at_once(node, columns.my_column());
    if (!at_once && nodes.taker(node, columns.my_column()) != rank) continue;
    to_leader_.ranks.push_back(rank);
    to_leader_.rows_of.push_back(at_once ? 1 : static_cast<uint32_t>(nodes.ranks(node).size()));
  }
}

}  // namespace parallax
