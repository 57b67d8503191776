// SPDX-License-Identifier: Apache-2.0
// Variable: what a framework registered, checked and owned. A plain value; Registry holds those of
// a rank, and what of them ranks compare at commit is here.
#ifndef PARALLAX_VARIABLE_VARIABLE_H_
#define PARALLAX_VARIABLE_VARIABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/number.h"
#include "base/status.h"
#include "variable/own_rule.h"
#include "variable/place.h"
#include "variable/rule_table.h"

namespace parallax {

// Groups of rates that variables may name.
inline constexpr uint32_t kRatesMax = PARALLAX_RATES_MAX;

// Of FTRL, as Keras names them.
struct Penalties {
  double l1 = 0, l2 = 0, l2_shrinkage = 0, beta = 0;
};

// What is decided of where a variable lies and how its gradient travels; AUTO is the planner's.
struct Pin {
  uint32_t placement = PARALLAX_PLACEMENT_AUTO;
  uint32_t method = PARALLAX_METHOD_AUTO;
  bool given() const { return placement != 0 || method != 0; }
};

struct FusedMember;

struct Variable {
  uint32_t id = 0;  // its caller's
  std::string name;
  uint64_t rows = 0;
  uint64_t row_elements = 0;
  uint32_t tag = PARALLAX_AUTO;
  uint32_t reduction = PARALLAX_SUM;
  uint32_t rule = PARALLAX_RULE_NONE;
  uint64_t rows_max = 0;
  uint32_t init = PARALLAX_INIT_CONSTANT;
  float init_low = 0;
  float init_high = 0;
  uint64_t init_seed = 0;
  float init_mean = 0, init_std = 0;
  // BUFFER, and BROADCAST on rank 0: the caller's values, row-major, of the sum type; null once
  // they were taken.
  const std::byte* initial = nullptr;
  double epsilon = 0;
  float initial_accumulator_value = 0;
  uint32_t dtype = PARALLAX_F32;
  double beta1 = 0.9, beta2 = 0.999;
  double momentum = 0;
  bool nesterov = false;
  bool refuse_nonfinite = false;
  bool accumulate = false;
  Penalties penalties = {};
  uint32_t rates = 0;  // its group of the rates that a step ends with
  OwnRule own_rule = {};
  uint32_t memory = PARALLAX_MEMORY_HOST;        // where its slices lie on every rank
  uint32_t table_memory = PARALLAX_MEMORY_HOST;  // where the library keeps it, if it is managed
  // PARALLAX_AS of what its values are kept in where that is narrower than their sum type, and how
  // they are rounded to it; 0: they are kept as they are updated.
  uint32_t storage_dtype = 0;
  uint32_t rounding = PARALLAX_ROUNDING_NEAREST_EVEN;
  // PARALLAX_AS of what rows that are pushed are rounded to between hosts; 0: they are not.
  uint32_t wire_dtype = 0;
  // Of rows that the framework holds: what may be reserved to exchange them; 0: what it takes.
  uint64_t exchange_bytes_max = 0;
  Place place = {};  // where this rank's slices lie
  Pin pin = {};
  int32_t priority = 0;  // this rank's: the higher goes first
  // Agreed at commit: its slices stay on their devices, which sum them among themselves.
  bool direct = false;
  // By the setting: it may be one of several that go as one (fused_tables.h).
  bool fuse_tables = false;
  // That it is in place of; they outlive it. Empty: of none.
  std::span<const FusedMember> fused = {};
  uint32_t first_member = 0;  // Registry::member_of the first of them

  bool managed() const { return rule != PARALLAX_RULE_NONE; }
  bool ids_declared() const { return rows_max > 0; }
  const RuleTraits& traits() const { return kRules[rule]; }
  // Numbers a row of a state that its rule keeps; 0: it keeps none.
  uint64_t state_width(uint32_t state) const {
    const RuleTraits& kept = traits();
    if (kept.calls_back) return own_rule.state_elements[state];
    if (state < kept.element_states) return row_elements;
    return state < kept.element_states + kept.row_states ? 1 : 0;
  }
  SumType sum_type() const { return sum_type_of(dtype); }
  // The dtype that a table keeps its values in. States are of the sum type.
  uint32_t stored_dtype() const {
    return storage_dtype == 0 ? dtype_of(sum_type()) : storage_dtype - 1;
  }
  // In which rows that are pushed cross between hosts.
  uint32_t pushed_dtype() const { return wire_dtype == 0 ? dtype_of(sum_type()) : wire_dtype - 1; }
  bool counts_ranks() const { return reduction == PARALLAX_MEAN_ROW; }
  // Of a managed one the vote counts who was not absent.
  bool counts_contributors() const { return !managed() && reduction == PARALLAX_MEAN_CONTRIBUTORS; }
  // Of a row of its gradient on the way.
  uint64_t gradient_elements() const { return row_elements + (counts_ranks() ? 1 : 0); }
  uint64_t elements() const { return rows * row_elements; }
};

// Checks one registration (all fields but the uniqueness of the name) and copies it.
Status make_variable(const parallax_variable_t& description, Variable* variable);

// What ranks compare of a variable, but for its name, how many rows it has and what they begin
// with, as bytes that tell kinds of variables apart.
std::string encode_kind(const Variable& variable);

// Variables by name, ascending, as bytes to be compared across ranks.
std::string encode_registry(std::span<const Variable* const> variables);
// The first difference, as a sentence: "variable 'x', field rows: rank 0 has 5, rank 3 has 6", or
// "variable 'x' is registered on rank 3 and not on rank 0"; "" if there is none.
struct RegistryDifference {
  std::string sentence;
  std::string variable = {};  // its name
  std::string field = {};
};
// Of what rank 0 has, and `mine`; the ranks as sentences name them.
RegistryDifference compare_registries(std::string_view root_encoding,
                                      std::span<const Variable* const> mine,
                                      const std::string& root, const std::string& me);

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_VARIABLE_H_
