// SPDX-License-Identifier: Apache-2.0
// Registry: the variables of a group at one rank. A caller knows a variable by its id: the place
// among its own registrations, which may come in another order on every rank. Ranks know it by its
// number, which a commit gives: those registered since the commit before come next, by name. Names
// are all that ranks must have alike for that, so numbers take no message; whether they are alike
// is what the commit finds out. Everything inside a group, and on the wire, goes by number; ids are
// translated where a call comes in and where a caller is told of a variable.
//
// Variables stay where they are. Engine's owner only.
#ifndef PARALLAX_VARIABLE_REGISTRY_H_
#define PARALLAX_VARIABLE_REGISTRY_H_

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "variable/variable.h"

namespace parallax {

class Registry {
 public:
  Registry() = default;
  Registry(const Registry&) = delete;  // names point into it
  Registry& operator=(const Registry&) = delete;

  // ---- by id
  // INVALID: the name is taken. LIMIT.
  Status add(Variable variable, uint32_t* id);
  uint32_t size() const { return static_cast<uint32_t>(variables_.size()); }
  const Variable& operator[](uint32_t id) const { return variables_[id]; }
  // PARALLAX_NO_VARIABLE: none has it, as may be with a name that another rank tells.
  uint32_t id_named(std::string_view name) const;
  // A commit has numbered it.
  bool has_number(uint32_t id) const { return number_of_[id] != PARALLAX_NO_VARIABLE; }
  uint32_t number_of(uint32_t id) const { return number_of_[id]; }

  // ---- by number
  // Numbers those that have none.
  void number_new();
  std::span<const Variable* const> numbered() const { return numbered_; }
  // Of those, what number_new() added last.
  std::span<const Variable* const> newest() const { return numbered().subspan(newest_first_); }
  uint32_t id_of(uint32_t number) const { return id_of_[number]; }
  // The buffers that variables with such initial values came with are the caller's again.
  void forget_initial(uint32_t init);
  // As Variable::direct has it, before the first slice of the variable.
  void set_direct(uint32_t number) { variables_[id_of_[number]].direct = true; }

 private:
  std::deque<Variable> variables_;                             // by id
  std::unordered_map<std::string_view, uint32_t> id_of_name_;  // of names that lie in variables_
  std::vector<uint32_t> number_of_;                            // by id
  std::vector<const Variable*> numbered_;
  std::vector<uint32_t> id_of_;  // by number
  size_t newest_first_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_REGISTRY_H_
