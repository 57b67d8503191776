// SPDX-License-Identifier: Apache-2.0
// Ways that variables can go, and patterns of names. See pins.h.
#include "variable/pins.h"

#include <fnmatch.h>
#include <locale.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/number.h"
#include "base/text.h"

namespace parallax {
namespace {

bool has_rows(const Variable& variable) {
  return variable.tag != PARALLAX_DENSE && variable.ids_declared();
}

bool fits_form(const Variable& variable, uint32_t method) {
  switch (method) {
    case PARALLAX_METHOD_AUTO:
      return true;
    case PARALLAX_METHOD_ALLREDUCE:
      return !has_rows(variable);
    case PARALLAX_METHOD_PUSH_PULL:
      return variable.managed();
    case PARALLAX_METHOD_MADE_DENSE:
      return has_rows(variable) && is_floating(variable.dtype);
    default:
      return has_rows(variable);
  }
}

std::string ways_of(const Variable& variable) {
  std::string ways;
  for (uint32_t method = 1; method < std::size(kMethodPins); ++method) {
    if (fits_form(variable, method))
      ways += (ways.empty() ? "" : ", ") + std::string(kMethodPins[method]);
  }
  return ways;
}

std::optional<Pin> pin_named(std::string_view way) {
  for (uint32_t i = 1; i < std::size(kPlacementPins); ++i) {
    if (way == kPlacementPins[i]) return Pin{.placement = i};
  }
  for (uint32_t i = 1; i < std::size(kMethodPins); ++i) {
    if (way == kMethodPins[i]) return Pin{.method = i};
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

Status check_pin(const Variable& variable, Pin pin) {
  const std::string name = "variable '" + variable.name + "': ";
  if (pin.placement >= std::size(kPlacementPins)) {
    return invalid(name + "placement is " + std::to_string(pin.placement) +
                   "; it must be PARALLAX_PLACEMENT_AUTO, SHARDED or MIRRORED")
        .about_field("placement");
  }
  if (pin.method >= std::size(kMethodPins)) {
    return invalid(name + "method is " + std::to_string(pin.method) +
                   "; it must be PARALLAX_METHOD_AUTO, ALLREDUCE, ALLGATHERV, REDUCE_ROWS, "
                   "MADE_DENSE or PUSH_PULL")
        .about_field("method");
  }
  if (pin.placement != PARALLAX_PLACEMENT_AUTO && !variable.managed()) {
    return invalid(name + "placement is pinned to " + kPlacementPins[pin.placement] +
                   ", and without an update rule it lies where the framework keeps it; leave it 0")
        .about_field("placement");
  }
  if (!fits_form(variable, pin.method)) {
    const bool integers = pin.method == PARALLAX_METHOD_MADE_DENSE && has_rows(variable);
    return invalid(name + "method is pinned to " + kMethodPins[pin.method] + ", by which " +
                   (integers             ? "rows of integers cannot go"
                    : has_rows(variable) ? "what carries row ids cannot go"
                    : variable.managed() ? "what carries every row cannot go"
                                         : "what the framework keeps cannot go") +
                   "; it can be " + ways_of(variable))
        .about_field("method");
  }
  const bool sharded = pin.method == PARALLAX_METHOD_PUSH_PULL;
  if (pin.placement != PARALLAX_PLACEMENT_AUTO && pin.method != PARALLAX_METHOD_AUTO &&
      sharded != (pin.placement == PARALLAX_PLACEMENT_SHARDED)) {
    return invalid(name + "placement is pinned to " + kPlacementPins[pin.placement] +
                   " and method to " + kMethodPins[pin.method] +
                   ", which goes with the other placement; pin one of them")
        .about_field("method");
  }
  return {};
}

Status Pins::parse(std::string_view text, bool sparse_as_dense, Pins* pins) {
  *pins = {};
  pins->sparse_as_dense_ = sparse_as_dense;
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    const std::string_view piece = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (piece.empty()) continue;
    // A name may have an =, a way has none.
    const size_t equals = piece.rfind('=');
    const std::string_view way = equals == piece.npos ? "" : trimmed(piece.substr(equals + 1));
    const std::string_view pattern = trimmed(piece.substr(0, std::min(equals, piece.size())));
    const std::optional<Pin> pin = pin_named(way);
    if (!pin.has_value() || pattern.empty()) {
      return invalid("open: pins: '" + printable(piece) +
                     "' is no PATTERN=WAY; a way is sharded, mirrored, allreduce, allgatherv, "
                     "reduce_rows, made_dense or push_pull")
          .about_field("pins");
    }
    pins->rules_.push_back({.pattern = std::string(pattern), .pin = *pin});
  }
  return {};
}

// By bytes: ranks may have other locales, and are to pin alike.
bool Pins::Rule::is_of(const std::string& name) const {
  if (pattern == name) return true;
  static const locale_t bytes = newlocale(LC_ALL_MASK, "C", nullptr);
  const locale_t before = uselocale(bytes);
  const bool matches = fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  uselocale(before);
  return matches;
}

// An escaped one is none.
bool Pins::Rule::has_wildcard() const {
  for (size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] == '\\') {
      ++at;
    } else if (pattern[at] == '*' || pattern[at] == '?' || pattern[at] == '[') {
      return true;
    }
  }
  return false;
}

Status Pins::apply(Variable* variable) const {
  if (variable->pin.given()) return {};
  for (const Rule& rule : rules_) {
    if (!rule.is_of(variable->name)) continue;
    const Status fits = check_pin(*variable, rule.pin);
    if (fits.ok()) {
      variable->pin = rule.pin;
      return {};
    }
    if (rule.has_wildcard() && rule.pattern != variable->name) continue;
    return fits.prefixed("pins: ").about_field("pins");
  }
  if (sparse_as_dense_ && fits_form(*variable, PARALLAX_METHOD_MADE_DENSE)) {
    variable->pin = {.method = PARALLAX_METHOD_MADE_DENSE};
  }
  return {};
}

std::string Pins::idle(std::span<const Variable* const> variables) const {
  std::string patterns;
  for (const Rule& rule : rules_) {
    const bool used = std::any_of(variables.begin(), variables.end(), [&](const Variable* each) {
      return rule.is_of(each->name) && check_pin(*each, rule.pin).ok();
    });
    if (!used) patterns += (patterns.empty() ? "'" : ", '") + printable(rule.pattern) + "'";
  }
  return patterns;
}

}  // namespace parallax
