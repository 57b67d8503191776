// SPDX-License-Identifier: Apache-2.0
// Registry: the variables of a group at one rank. A caller knows a variable by its id: the place
// among its own registrations, which may come in another order on every rank. Ranks know it by its
// number, which a commit gives: those registered since the commit before come next, by name. Names
// are all that ranks must have alike for that, so numbers take no message; whether they are alike
// is what the commit finds out. Everything inside a group, and on the wire, goes by number; ids are
// translated where a call comes in and where a caller is told of a variable. Fused tables
// (fused_tables.h) have one number, and each has a place among the rows of all.
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
#include "variable/fused_tables.h"
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
  const Variable& operator[](uint32_t id) const { return *by_id_[id]; }
  std::span<const Variable* const> registered() const { return by_id_; }
  // PARALLAX_NO_VARIABLE: none has it, as may be with a name that another rank tells.
  uint32_t id_named(std::string_view name) const;
  // A commit has numbered it.
  bool has_number(uint32_t id) const { return numbers_[id].number != PARALLAX_NO_VARIABLE; }
  uint32_t number_of(uint32_t id) const { return numbers_[id].number; }
  // Of fused tables: which of all of them it is, kNotFused: none; and where its rows begin.
  uint32_t member_of(uint32_t id) const { return numbers_[id].member; }
  uint64_t first_row_of(uint32_t id) const { return numbers_[id].first_row; }
  static constexpr uint32_t kNotFused = UINT32_MAX;

  // ---- by number
  // Numbers those that have none.
  void number_new();
  // As they are registered, what it numbered last, by name.
  std::span<const Variable* const> newest_registered() const { return newest_registered_; }
  std::span<const Variable* const> numbered() const { return numbered_; }
  // Of those, what number_new() added last.
  std::span<const Variable* const> newest() const { return numbered().subspan(newest_first_); }
  // The first one's, of fused tables.
  uint32_t id_of(uint32_t number) const { return id_of_[number]; }
  // The first one's that is_given(member), of fused tables.
  template <typename IsGiven>
  uint32_t id_given(uint32_t number, IsGiven is_given) const {
    for (const FusedMember& each : numbered_[number]->fused) {
      if (is_given(member_of(each.variable->id))) return each.variable->id;
    }
    return id_of(number);
  }
  // That of a row of its own, or of one of fused tables.
  uint32_t id_of_row(uint32_t number, uint64_t row) const {
    const std::span<const FusedMember> fused = numbered_[number]->fused;
    return fused.empty() ? id_of(number) : parallax::member_of(fused, row).variable->id;
  }
  // The buffers that variables with such initial values came with are the caller's again.
  void forget_initial(uint32_t init);
  // As Variable::direct has it, before the first slice of the variable.
  void set_direct(uint32_t number) { variables_[id_of_[number]].direct = true; }

 private:
  struct Number {
    uint32_t number = PARALLAX_NO_VARIABLE;
    uint32_t member = kNotFused;
    uint64_t first_row = 0;
  };
  void number_fused(FusedTables set);

  std::deque<Variable> variables_;                             // by id
  std::unordered_map<std::string_view, uint32_t> id_of_name_;  // of names that lie in variables_
  std::vector<const Variable*> by_id_;                         // where they lie: found sooner
  std::vector<Number> numbers_;                                // by id

  std::vector<const Variable*> numbered_;
  std::vector<uint32_t> id_of_;  // by number
  uint32_t member_count_ = 0;
  std::deque<FusedTables> fused_;
  std::vector<const Variable*> newest_registered_;
  size_t newest_first_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_REGISTRY_H_
