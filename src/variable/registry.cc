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
  number_of_.push_back(PARALLAX_NO_VARIABLE);
  try {
    variables_.push_back(std::move(variable));
    id_of_name_.emplace(variables_.back().name, next);
  } catch (...) {  // no memory: none is registered by half
    if (variables_.size() > next) variables_.pop_back();
    number_of_.pop_back();
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
  for (uint32_t id = 0; id < size(); ++id) {
    if (!has_number(id)) id_of_.push_back(id);
  }
  // Byte by byte, as no locale of a rank changes.
  std::sort(id_of_.begin() + static_cast<std::ptrdiff_t>(newest_first_), id_of_.end(),
            [this](uint32_t a, uint32_t b) { return variables_[a].name < variables_[b].name; });
  for (size_t number = newest_first_; number < id_of_.size(); ++number) {
    number_of_[id_of_[number]] = static_cast<uint32_t>(number);
    numbered_.push_back(&variables_[id_of_[number]]);
  }
}

void Registry::forget_initial(uint32_t init) {
  for (Variable& variable : variables_) {
    if (variable.init == init) variable.initial = nullptr;
  }
}

}  // namespace parallax
