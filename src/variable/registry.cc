// SPDX-License-Identifier: Apache-2.0
// Ids and numbers of variables. See registry.h.
#include "variable/registry.h"

#include <algorithm>
#include <string>
#include <utility>

namespace parallax {

Status Registry::add(Variable variable, uint32_t* id) {
  if (variables_.size() == PARALLAX_VARIABLES_MAX) {
    return limit("register: a job holds at most " + std::to_string(PARALLAX_VARIABLES_MAX) +
                 " variables; put several into one");
  }
  const uint32_t taken = id_named(variable.name);
  if (taken != PARALLAX_NO_VARIABLE) {
    return invalid("variable '" + variable.name + "': the name is registered already")
        .about_field("name")
        .about_variable(taken);
  }
  const uint32_t next = size();
  variable.id = next;
  numbers_.emplace_back();
  try {
    variables_.push_back(std::move(variable));
    by_id_.push_back(&variables_.back());
    id_of_name_.emplace(variables_.back().name, next);
  } catch (...) {  // no memory: none is registered by half
    if (by_id_.size() > next) by_id_.pop_back();
    if (variables_.size() > next) variables_.pop_back();
    numbers_.pop_back();
    throw;
  }
  *id = next;
  return {};
}

uint32_t Registry::id_named(std::string_view name) const {
  const auto found = id_of_name_.find(name);
  return found == id_of_name_.end() ? PARALLAX_NO_VARIABLE : found->second;
}

void Registry::number_new() {
  newest_first_ = numbered_.size();
  newest_registered_.clear();
  for (uint32_t id = 0; id < size(); ++id) {
    if (!has_number(id)) newest_registered_.push_back(&variables_[id]);
  }
  // Byte by byte, as no locale of a rank changes.
  std::sort(newest_registered_.begin(), newest_registered_.end(),
            [](const Variable* a, const Variable* b) { return a->name < b->name; });
  std::deque<FusedTables> sets = fuse_tables(newest_registered_);
  // Those of a set stand where the first of them does.
  std::unordered_map<const Variable*, FusedTables*> set_of;
  for (FusedTables& set : sets) {
    for (const FusedMember& member : set.members) set_of[member.variable] = &set;
  }
  for (const Variable* variable : newest_registered_) {
    const auto found = set_of.find(variable);
    if (found == set_of.end()) {
      numbers_[variable->id].number = static_cast<uint32_t>(numbered_.size());
      numbered_.push_back(variable);
      id_of_.push_back(variable->id);
      continue;
    }
    if (!has_number(variable->id)) number_fused(std::move(*found->second));
  }
}

void Registry::number_fused(FusedTables set) {
  set.whole.first_member = member_count_;
  const FusedTables& kept = fused_.emplace_back(std::move(set));
  for (const FusedMember& member : kept.members) {
    const uint32_t id = member.variable->id;
    numbers_[id] = {.number = static_cast<uint32_t>(numbered_.size()),
                    .member = member_count_++,
                    .first_row = member.first_row};
  }
  numbered_.push_back(&kept.whole);
  id_of_.push_back(kept.whole.id);
}

void Registry::forget_initial(uint32_t init) {
  for (Variable& variable : variables_) {
    if (variable.init == init) variable.initial = nullptr;
  }
}

}  // namespace parallax
