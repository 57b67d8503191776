// SPDX-License-Identifier: Apache-2.0
// Checking, comparing and initialising variables. See variable.h.
#include "variable/variable.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <limits>
#include <sstream>

namespace parallax {

namespace {

constexpr uint64_t kRowElementsMax = 1ull << 20;
constexpr uint64_t kBytesMax = 1ull << 48;

Status check_shape(const parallax_variable_t& in, const std::string& name) {
  if (in.rows == 0 || in.rows > UINT32_MAX) {
    return invalid(name + ": rows is " + std::to_string(in.rows) + "; it must be 1..2^32-1");
  }
  if (in.row_elements == 0 || in.row_elements > kRowElementsMax) {
    return invalid(name + ": row_elements is " + std::to_string(in.row_elements) +
                   "; it must be 1..2^20");
  }
  if (in.rows >= kBytesMax / sizeof(float) / in.row_elements) {
    return invalid(name + ": rows x row_elements x 4 bytes is 2^48 or more; split the variable");
  }
  return {};
}

Status check_form(const parallax_variable_t& in, const std::string& name) {
  if (in.tag > PARALLAX_SPARSE) {
    return invalid(name + ": tag is " + std::to_string(in.tag) +
                   "; it must be PARALLAX_AUTO, PARALLAX_DENSE or PARALLAX_SPARSE");
  }
  if (in.tag == PARALLAX_SPARSE && in.rows_max == 0) {
    return invalid(name + ": rows_max is 0; a sparse variable needs the most rows of one slice");
  }
  if (in.tag == PARALLAX_DENSE && in.rows_max != 0) {
    return invalid(name + ": rows_max is " + std::to_string(in.rows_max) +
                   "; it must be 0 for a dense variable (its slices carry every row)");
  }
  if (in.rows_max > INT32_MAX) {
    return invalid(name + ": rows_max is " + std::to_string(in.rows_max) +
                   "; it must be below 2^31");
  }
  if (in.rows_max > 0 && in.row_elements > kRowElementsMaxWithIds) {
    return unsupported(name + ": row_elements is " + std::to_string(in.row_elements) +
                       "; variables with row ids have at most " +
                       std::to_string(kRowElementsMaxWithIds) +
                       " in this version; register it as DENSE or split its rows");
  }
  return {};
}

Status check_rule(const parallax_variable_t& in, const std::string& name) {
  if (in.reduction > PARALLAX_MEAN_CONTRIBUTORS) {
    return invalid(name + ": reduction is " + std::to_string(in.reduction) +
                   "; it must be PARALLAX_SUM, PARALLAX_MEAN_WORLD or PARALLAX_MEAN_CONTRIBUTORS");
  }
  if (in.rule > PARALLAX_RULE_ADAGRAD) {
    return unsupported(name + ": rule is " + std::to_string(in.rule) +
                       "; this version has NONE, SGD and ADAGRAD");
  }
  if (in.rule == PARALLAX_RULE_NONE && in.reduction != PARALLAX_SUM) {
    return unsupported(name +
                       ": reduction of a framework-held variable is SUM in this version; "
                       "divide the aggregate, or give the variable an update rule");
  }
  if (in.init > PARALLAX_INIT_UNIFORM) {
    return invalid(name + ": init is " + std::to_string(in.init) +
                   "; it must be PARALLAX_INIT_CONSTANT or PARALLAX_INIT_UNIFORM");
  }
  if (!(in.epsilon >= 0) || !std::isfinite(in.epsilon)) {
    return invalid(name + ": epsilon must be finite and not negative");
  }
  if (!(in.initial_accumulator_value >= 0) || !std::isfinite(in.initial_accumulator_value)) {
    return invalid(name + ": initial_accumulator_value must be finite and not negative");
  }
  return {};
}

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// The compared fields, by name; floats by their bits.
struct Field {
  const char* name;
  uint64_t value;
  bool is_float = false;
};

std::string text_of(const Field& field, uint64_t value) {
  if (!field.is_float) return std::to_string(value);
  std::ostringstream text;
  text << std::setprecision(std::numeric_limits<float>::max_digits10)
       << std::bit_cast<float>(static_cast<uint32_t>(value));
  return text.str();
}

std::vector<Field> fields_of(const Variable& variable) {
  const auto bits = [](float value) { return uint64_t{std::bit_cast<uint32_t>(value)}; };
  return {{"rows", variable.rows},
          {"row_elements", variable.row_elements},
          {"tag", variable.tag},
          {"reduction", variable.reduction},
          {"rule", variable.rule},
          {"rows_max", variable.rows_max},
          {"init", variable.init},
          {"init_low", bits(variable.init_low), true},
          {"init_high", bits(variable.init_high), true},
          {"init_seed", variable.init_seed},
          {"epsilon", bits(variable.epsilon), true},
          {"initial_accumulator_value", bits(variable.initial_accumulator_value), true}};
}

void append_number(std::string* out, uint64_t value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

bool take_number(std::string_view* in, uint64_t* value) {
  if (in->size() < sizeof *value) return false;
  std::memcpy(value, in->data(), sizeof *value);
  in->remove_prefix(sizeof *value);
  return true;
}

}  // namespace

Status make_variable(const parallax_variable_t& in, Variable* variable) {
  if (in.name == nullptr || in.name[0] == '\0') return invalid("variable: name is empty");
  const size_t length = strnlen(in.name, PARALLAX_NAME_MAX + 1);
  if (length > PARALLAX_NAME_MAX) {
    return invalid("variable '" + std::string(in.name, 32) + "...': name is longer than " +
                   std::to_string(PARALLAX_NAME_MAX) + " bytes");
  }
  const std::string name = "variable '" + std::string(in.name, length) + "'";
  PARALLAX_RETURN_IF_ERROR(check_shape(in, name));
  if (in.dtype != PARALLAX_F32) {
    return unsupported(name + ": dtype is " + std::to_string(in.dtype) +
                       "; this version carries PARALLAX_F32");
  }
  PARALLAX_RETURN_IF_ERROR(check_form(in, name));
  PARALLAX_RETURN_IF_ERROR(check_rule(in, name));
  *variable = {.name = std::string(in.name, length),
               .rows = in.rows,
               .row_elements = in.row_elements,
               .tag = in.tag,
               .reduction = in.reduction,
               .rule = in.rule,
               .rows_max = in.rows_max,
               .init = in.init,
               .init_low = in.init_low,
               .init_high = in.init_high,
               .init_seed = in.init_seed,
               .epsilon = in.epsilon == 0 ? 1e-10f : in.epsilon,
               .initial_accumulator_value = in.initial_accumulator_value};
  return {};
}

std::string encode_registry(std::span<const Variable> variables) {
  std::string out;
  append_number(&out, variables.size());
  for (const Variable& variable : variables) {
    append_number(&out, variable.name.size());
    out += variable.name;
    for (const Field& field : fields_of(variable)) append_number(&out, field.value);
  }
  return out;
}

std::string compare_registries(const std::string& root_encoding, std::span<const Variable> mine,
                               uint32_t my_rank) {
  const std::string me = "rank " + std::to_string(my_rank);
  std::string_view in = root_encoding;
  uint64_t count = 0;
  if (!take_number(&in, &count)) return me + " cannot read the registry of rank 0";
  for (uint64_t i = 0; i < count && i < mine.size(); ++i) {
    uint64_t length = 0;
    if (!take_number(&in, &length) || length > in.size()) {
      return me + " cannot read the registry of rank 0";
    }
    const std::string name(in.substr(0, length));
    in.remove_prefix(length);
    if (name != mine[i].name) {
      return "variable " + std::to_string(i) + ", field name: rank 0 has '" + name + "', " + me +
             " has '" + mine[i].name + "'";
    }
    for (const Field& field : fields_of(mine[i])) {
      uint64_t theirs = 0;
      if (!take_number(&in, &theirs)) return me + " cannot read the registry of rank 0";
      if (theirs != field.value) {
        return "variable '" + name + "', field " + field.name + ": rank 0 has " +
               text_of(field, theirs) + ", " + me + " has " + text_of(field, field.value);
      }
    }
  }
  if (count != mine.size()) {
    return "number of variables: rank 0 registered " + std::to_string(count) + ", " + me + " " +
           std::to_string(mine.size());
  }
  return "";
}

float initial_value(const Variable& variable, uint64_t row, uint64_t column) {
  if (variable.init == PARALLAX_INIT_CONSTANT) return variable.init_low;
  const uint64_t bits = mix(mix(variable.init_seed + 0x9e3779b97f4a7c15 * (row + 1)) + column);
  const float unit = static_cast<float>(bits >> 40) * 0x1p-24f;
  return variable.init_low + (variable.init_high - variable.init_low) * unit;
}

}  // namespace parallax
