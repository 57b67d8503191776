// SPDX-License-Identifier: Apache-2.0
// Pins: what the program or the operator decided about where a variable lies and how its gradient
// travels, so that the planner chooses among fewer ways or none. A variable's own pin goes before
// one by a pattern of names, which goes before sparse_as_dense. Values in, values out; nothing
// blocks.
#ifndef PARALLAX_VARIABLE_PINS_H_
#define PARALLAX_VARIABLE_PINS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "variable/variable.h"

namespace parallax {

// As plans and settings spell them, by parallax_placement_t and parallax_method_t.
inline constexpr const char* kPlacementPins[] = {"auto", "sharded", "mirrored"};
inline constexpr const char* kMethodPins[] = {"auto",        "allreduce",  "allgatherv",
                                              "reduce_rows", "made_dense", "push_pull"};

// INVALID, naming the field: the variable cannot lie so, or its gradient cannot travel so.
Status check_pin(const Variable& variable, Pin pin);

class Pins {
 public:
  // PATTERN=WAY[; PATTERN=WAY...] of the option `pins`: a name, or a shell's pattern (* ? [...] and
  // \ before what is meant as it stands; by bytes, in any locale) of whole names, and a placement
  // or a method. INVALID names the piece.
  static Status parse(std::string_view text, bool sparse_as_dense, Pins* pins);

  // Gives a variable without a pin that of the first pattern that its name is of and that it can
  // follow; none: of sparse_as_dense. A pattern without a wildcard means its variable: where that
  // cannot follow, INVALID.
  Status apply(Variable* variable) const;

  // The patterns that none of these variables is of and can follow, with commas.
  std::string idle(std::span<const Variable* const> variables) const;

 private:
  struct Rule {
    std::string pattern;
    Pin pin;
    bool is_of(const std::string& name) const;
    bool has_wildcard() const;
  };
  std::vector<Rule> rules_;
  bool sparse_as_dense_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_PINS_H_
