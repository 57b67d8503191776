// SPDX-License-Identifier: Apache-2.0
// Checking, comparing and initialising variables. See variable.h.
#include "variable/variable.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <limits>
#include <sstream>
#include <vector>

#include "base/text.h"
#include "variable/ceiling.h"
#include "variable/initial_value.h"
#include "variable/pins.h"
#include "variable/storage.h"

namespace parallax {

namespace {

constexpr uint64_t kRowElementsMax = 1ull << 20;
constexpr uint64_t kBytesMax = 1ull << 48;

Status check_shape(const parallax_variable_t& in, const std::string& name) {
  if (in.reserved != 0) {
    return unsupported(name + ": reserved is not 0; load a newer libparallax")
        .about_field("reserved");
  }
  if (in.rows == 0 || in.rows > UINT32_MAX) {
    return invalid(name + ": rows is " + std::to_string(in.rows) + "; it must be 1..2^32-1")
        .about_field("rows");
  }
  if (in.row_elements == 0 || in.row_elements > kRowElementsMax) {
    return invalid(name + ": row_elements is " + std::to_string(in.row_elements) +
                   "; it must be 1..2^20")
        .about_field("row_elements");
  }
  // Below 2^32 * 2^20 * 2^3, so nothing overflows.
  if (in.rows * in.row_elements * bytes_of_dtype(in.dtype) >= kBytesMax) {
    return invalid(name + ": rows x row_elements x " + std::to_string(bytes_of_dtype(in.dtype)) +
                   " bytes is 2^48 or more; split the variable")
        .about_field("rows");
  }
  return {};
}

Status check_form(const parallax_variable_t& in, const std::string& name) {
  if (in.tag > PARALLAX_SPARSE) {
    return invalid(name + ": tag is " + std::to_string(in.tag) +
                   "; it must be PARALLAX_AUTO, PARALLAX_DENSE or PARALLAX_SPARSE")
        .about_field("tag");
  }
  if (in.tag == PARALLAX_SPARSE && in.rows_max == 0) {
    return invalid(name + ": rows_max is 0; a sparse variable needs the most rows of one slice")
        .about_field("rows_max");
  }
  if (in.tag == PARALLAX_DENSE && in.rows_max != 0) {
    return invalid(name + ": rows_max is " + std::to_string(in.rows_max) +
                   "; it must be 0 for a dense variable (its slices carry every row)")
        .about_field("rows_max");
  }
  if (in.rows_max > INT32_MAX) {
    return invalid(name + ": rows_max is " + std::to_string(in.rows_max) +
                   "; it must be below 2^31")
        .about_field("rows_max");
  }
  return {};
}

std::string rule_names() {
  std::string names;
  for (const RuleTraits& traits : kRules) {
    names += (names.empty() ? "" : ", ") + std::string(traits.name);
  }
  return names;
}

Status check_reduction(const parallax_variable_t& in, const std::string& name) {
  if (in.reduction > PARALLAX_MEAN_ROW) {
    return invalid(name + ": reduction is " + std::to_string(in.reduction) +
                   "; it must be PARALLAX_SUM, PARALLAX_MEAN_WORLD, PARALLAX_MEAN_CONTRIBUTORS or "
                   "PARALLAX_MEAN_ROW")
        .about_field("reduction");
  }
  if (in.reduction == PARALLAX_MEAN_ROW && in.rows_max == 0) {
    return invalid(name +
                   ": reduction is PARALLAX_MEAN_ROW, which counts the ranks of each row; it needs "
                   "row ids (rows_max > 0)")
        .about_field("reduction");
  }
  return {};
}

Status check_integer(const parallax_variable_t& in, const std::string& name) {
  if (is_floating(in.dtype)) return {};
  const std::string lead = name + ": dtype is " + dtype_name(in.dtype) + ", ";
  if (!kRules[in.rule].integers) {
    return invalid(lead + "and rule " + kRules[in.rule].name +
                   " is for floating numbers; integers have PARALLAX_RULE_NONE and "
                   "PARALLAX_RULE_SUM")
        .about_field("rule");
  }
  if (in.reduction != PARALLAX_SUM)
    return invalid(lead + "whose reduction must be PARALLAX_SUM").about_field("reduction");
  if (in.init != PARALLAX_INIT_CONSTANT && in.init < PARALLAX_INIT_BUFFER) {
    return invalid(lead + "whose init must be PARALLAX_INIT_CONSTANT, BUFFER or BROADCAST")
        .about_field("init");
  }
  if (!(std::fabs(in.init_low) < 0x1p31f)) {
    return invalid(lead + "whose init_low must be finite and less than 2^31")
        .about_field("init_low");
  }
  return {};
}

Status check_rates(const parallax_variable_t& in, const std::string& name) {
  const std::string lead = name + ": rates is " + std::to_string(in.rates);
  if (in.rates >= kRatesMax) {
    return invalid(lead + "; it must be below " + std::to_string(kRatesMax)).about_field("rates");
  }
  if (in.rates != 0 && in.rule == PARALLAX_RULE_NONE) {
    return invalid(lead +
                   ", but rule NONE has no rates: the framework updates the variable; leave it 0")
        .about_field("rates");
  }
  return {};
}

// A number of a rule.
struct Coefficient {
  const char* name;
  double value;
  bool used;                // the rule has it
  bool has_default;         // 0 is not itself: PARALLAX_ZERO is
  double below = HUGE_VAL;  // and from 0 on
};

// -0.5 is a square root, which every machine rounds alike.
Status check_power(const parallax_variable_t& in, const std::string& name) {
  const double power = in.learning_rate_power;
  if (power == 0 || (power == -0.5 && kRules[in.rule].has_penalties)) return {};
  std::ostringstream lead;
  lead << name << ": learning_rate_power is " << power;
  if (!kRules[in.rule].has_penalties) {
    return invalid(lead.str() + ", but rule " + kRules[in.rule].name + " has none; leave it 0")
        .about_field("learning_rate_power");
  }
  return unsupported(lead.str() + "; this version has -0.5 (and 0, which is the same)")
      .about_field("learning_rate_power");
}

Status check_coefficients(const parallax_variable_t& in, const std::string& name) {
  const RuleTraits& rule = kRules[in.rule];
  const Coefficient all[] = {{"epsilon", in.epsilon, rule.epsilon > 0, true},
                             {"initial_accumulator_value", in.initial_accumulator_value,
                              rule.keeps_squares, rule.first_square > 0},
                             {"beta1", in.beta1, rule.has_betas, true, 1},
                             {"beta2", in.beta2, rule.has_betas, true, 1},
                             {"momentum", in.momentum, rule.has_momentum, false},
                             {"l1", in.l1, rule.has_penalties, false},
                             {"l2", in.l2, rule.has_penalties, false},
                             {"l2_shrinkage", in.l2_shrinkage, rule.has_penalties, false},
                             {"beta", in.beta, rule.has_penalties, false}};
  for (const Coefficient& each : all) {
    std::ostringstream lead;
    lead << name << ": " << each.name << " is " << each.value;
    const bool zero = each.has_default && each.value == PARALLAX_ZERO;
    if (!zero && !(each.value >= 0 && each.value < each.below)) {
      return invalid(lead.str() + "; it must be " + (each.below == 1 ? "less than 1" : "finite") +
                     " and not negative" + (each.has_default ? ", or PARALLAX_ZERO" : ""))
          .about_field(each.name);
    }
    if (each.value != 0 && !each.used) {
      return invalid(lead.str() + ", but rule " + rule.name + " has none" +
                     (each.name == std::string_view("momentum") ? "; use PARALLAX_RULE_MOMENTUM"
                                                                : "; leave it 0"))
          .about_field(each.name);
    }
  }
  const std::pair<const char*, uint32_t> flags[] = {{"nesterov", in.nesterov},
                                                    {"refuse_nonfinite", in.refuse_nonfinite},
                                                    {"accumulate", in.accumulate}};
  for (const auto& [field, value] : flags) {
    if (value <= 1) continue;
    return invalid(name + ": " + field + " is " + std::to_string(value) + "; it must be 0 or 1")
        .about_field(field);
  }
  if (in.nesterov == 1 && in.momentum == 0) {
    return invalid(name + ": nesterov is 1 but momentum is 0; give it a momentum")
        .about_field("nesterov");
  }
  return {};
}

Status check_rule(const parallax_variable_t& in, const std::string& name) {
  if (in.rule >= kRuleCount) {
    return unsupported(name + ": rule is " + std::to_string(in.rule) + "; this version has " +
                       rule_names())
        .about_field("rule");
  }
  PARALLAX_RETURN_IF_ERROR(check_reduction(in, name));
  if (kRules[in.rule].row_states > 0 && in.rows_max == 0) {
    return invalid(name + ": rule " + kRules[in.rule].name +
                   " keeps a number for each row; it needs row ids (rows_max > 0)")
        .about_field("rule");
  }
  PARALLAX_RETURN_IF_ERROR(check_initial(in, name));
  PARALLAX_RETURN_IF_ERROR(check_rates(in, name));
  PARALLAX_RETURN_IF_ERROR(check_integer(in, name));
  PARALLAX_RETURN_IF_ERROR(check_power(in, name));
  PARALLAX_RETURN_IF_ERROR(check_coefficients(in, name));
  return check_own_rule(in, name);
}

// What devices have kernels for.
Status check_memory(const parallax_variable_t& in, const std::string& name) {
  if (in.memory > PARALLAX_MEMORY_CUDA) {
    return invalid(name + ": memory is " + std::to_string(in.memory) +
                   "; it must be PARALLAX_MEMORY_HOST or PARALLAX_MEMORY_CUDA")
        .about_field("memory");
  }
  if (in.table_memory == PARALLAX_MEMORY_HOST) return {};
  const std::string lead = name + ": table_memory is ";
  const auto refuse = [&](const std::string& why) {
    return unsupported(lead + "PARALLAX_MEMORY_CUDA, and " + why +
                       "; keep its table in host memory (PARALLAX_MEMORY_HOST)")
        .about_field("table_memory");
  };
  if (in.table_memory > PARALLAX_MEMORY_CUDA) {
    return invalid(lead + std::to_string(in.table_memory) +
                   "; it must be PARALLAX_MEMORY_HOST or PARALLAX_MEMORY_CUDA")
        .about_field("table_memory");
  }
  if (in.rule == PARALLAX_RULE_NONE) {
    return invalid(lead +
                   "PARALLAX_MEMORY_CUDA, but it is framework-held (no update rule): its value is "
                   "the caller's, and the library keeps none")
        .about_field("table_memory");
  }
  if (!kRules[in.rule].on_devices) {
    std::string rules;
    for (const RuleTraits& each : kRules) {
      if (each.on_devices) rules += (rules.empty() ? "" : ", ") + std::string(each.name);
    }
    return refuse("devices do not have rule " + std::string(kRules[in.rule].name) + ", but " +
                  rules);
  }
  if (sum_type_of(in.dtype) != SumType::kF32) {
    return refuse("devices have tables of PARALLAX_F32, PARALLAX_F16 and PARALLAX_BF16, not of " +
                  std::string(kDtypes[in.dtype].constant));
  }
  return {};
}

double with_default(double value, double standard) {
  return value == 0 ? standard : value == PARALLAX_ZERO ? 0 : value;
}

// The compared fields, by name; floats and doubles by their bits.
enum class FieldKind : uint8_t { kInteger, kFloat, kDouble };
struct Field {
  const char* name;
  uint64_t value;
  FieldKind kind = FieldKind::kInteger;
  std::span<const char* const> names = {};  // of the values of an enumeration
};

constexpr auto kDtypeNames = [] {
  std::array<const char*, kDtypeCount> names = {};
  for (uint32_t dtype = 0; dtype < kDtypeCount; ++dtype) names[dtype] = kDtypes[dtype].constant;
  return names;
}();
constexpr const char* kTagNames[] = {"AUTO", "DENSE", "SPARSE"};
constexpr const char* kMemoryNames[] = {"HOST", "CUDA"};
constexpr const char* kRoundingNames[] = {"NEAREST_EVEN", "STOCHASTIC"};
constexpr const char* kReductionNames[] = {"SUM", "MEAN_WORLD", "MEAN_CONTRIBUTORS", "MEAN_ROW"};
constexpr auto kRuleNames = [] {
  std::array<const char*, kRuleCount> names = {};
  for (const RuleTraits& rule : kRules) names[rule.rule] = rule.name;
  return names;
}();

std::string text_of(const Field& field, uint64_t value) {
  std::ostringstream text;
  switch (field.kind) {
    case FieldKind::kInteger:
      if (value < field.names.size()) {
        text << field.names[value];
      } else {
        text << value;
      }
      break;
    case FieldKind::kFloat:
      text << std::setprecision(std::numeric_limits<float>::max_digits10)
           << std::bit_cast<float>(static_cast<uint32_t>(value));
      break;
    case FieldKind::kDouble:
      text << std::setprecision(std::numeric_limits<double>::max_digits10)
           << std::bit_cast<double>(value);
      break;
  }
  return text.str();
}

std::vector<Field> fields_of(const Variable& variable) {
  const auto bits = [](float value) { return uint64_t{std::bit_cast<uint32_t>(value)}; };
  const auto wide = [](double value) { return std::bit_cast<uint64_t>(value); };
  return {
      {"rows", variable.rows},
      {"row_elements", variable.row_elements},
      {"dtype", variable.dtype, FieldKind::kInteger, kDtypeNames},
      {"tag", variable.tag, FieldKind::kInteger, kTagNames},
      {"reduction", variable.reduction, FieldKind::kInteger, kReductionNames},
      {"rule", variable.rule, FieldKind::kInteger, kRuleNames},
      {"rows_max", variable.rows_max},
      {"init", variable.init, FieldKind::kInteger, kInitNames},
      {"init_low", bits(variable.init_low), FieldKind::kFloat},
      {"init_high", bits(variable.init_high), FieldKind::kFloat},
      {"init_mean", bits(variable.init_mean), FieldKind::kFloat},
      {"init_std", bits(variable.init_std), FieldKind::kFloat},
      {"init_seed", variable.init_seed},
      {"epsilon", wide(variable.epsilon), FieldKind::kDouble},
      {"initial_accumulator_value", bits(variable.initial_accumulator_value), FieldKind::kFloat},
      {"beta1", wide(variable.beta1), FieldKind::kDouble},
      {"beta2", wide(variable.beta2), FieldKind::kDouble},
      {"momentum", wide(variable.momentum), FieldKind::kDouble},
      {"nesterov", variable.nesterov},
      {"rates", variable.rates},
      {"memory", variable.memory, FieldKind::kInteger, kMemoryNames},
      {"table_memory", variable.table_memory, FieldKind::kInteger, kMemoryNames},
      {"storage_dtype", variable.stored_dtype(), FieldKind::kInteger, kDtypeNames},
      {"rounding", variable.rounding, FieldKind::kInteger, kRoundingNames},
      {"wire_dtype", variable.pushed_dtype(), FieldKind::kInteger, kDtypeNames},
      {"exchange_bytes_max", variable.exchange_bytes_max},
      {"placement", variable.pin.placement, FieldKind::kInteger, kPlacementPins},
      {"method", variable.pin.method, FieldKind::kInteger, kMethodPins},
      {"l1", wide(variable.penalties.l1), FieldKind::kDouble},
      {"l2", wide(variable.penalties.l2), FieldKind::kDouble},
      {"l2_shrinkage", wide(variable.penalties.l2_shrinkage), FieldKind::kDouble},
      {"beta", wide(variable.penalties.beta), FieldKind::kDouble},
      {"state_elements[0]", variable.own_rule.state_elements[0]},
      {"state_elements[1]", variable.own_rule.state_elements[1]},
      {"fuse_tables", variable.fuse_tables}};
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

Status check_dtype(const parallax_variable_t& in, const std::string& name) {
  if (in.dtype == PARALLAX_BYTES) {
    return invalid(name +
                   ": dtype is PARALLAX_BYTES, which only collectives that copy have; give "
                   "that of its numbers")
        .about_field("dtype");
  }
  if (!is_dtype(in.dtype)) {
    return unsupported(name + ": dtype is " + std::to_string(in.dtype) +
                       "; this version has PARALLAX_" + dtype_constants(is_dtype, "and"))
        .about_field("dtype");
  }
  return {};
}

Status check_name(const parallax_variable_t& in) {
  if (in.name == nullptr || in.name[0] == '\0')
    return invalid("variable: name is empty").about_field("name");
  if (strnlen(in.name, PARALLAX_NAME_MAX + 1) > PARALLAX_NAME_MAX) {
    return invalid("variable '" + std::string(in.name, 32) + "...': name is longer than " +
                   std::to_string(PARALLAX_NAME_MAX) + " bytes")
        .about_field("name");
  }
  if (printable(in.name) != in.name) {
    return invalid("variable '" + printable(in.name) +
                   "': name has control characters or is not UTF-8; it stands in tables and log "
                   "lines, so give one that prints on a line")
        .about_field("name");
  }
  return {};
}

}  // namespace

Status make_variable(const parallax_variable_t& in, Variable* variable) {
  PARALLAX_RETURN_IF_ERROR(check_name(in));
  const std::string name = "variable '" + std::string(in.name) + "'";
  PARALLAX_RETURN_IF_ERROR(check_dtype(in, name));
  PARALLAX_RETURN_IF_ERROR(check_shape(in, name));
  PARALLAX_RETURN_IF_ERROR(check_form(in, name));
  PARALLAX_RETURN_IF_ERROR(check_rule(in, name));
  PARALLAX_RETURN_IF_ERROR(check_memory(in, name));
  PARALLAX_RETURN_IF_ERROR(check_storage(in, name));
  PARALLAX_RETURN_IF_ERROR(check_wire(in, name));
  PARALLAX_RETURN_IF_ERROR(check_ceiling(in, name));
  *variable = {.name = in.name,
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
               .init_mean = in.init_mean,
               .init_std = in.init_std,
               .initial = static_cast<const std::byte*>(in.initial),
               .epsilon = with_default(in.epsilon, kRules[in.rule].epsilon),
               .initial_accumulator_value = static_cast<float>(
                   with_default(in.initial_accumulator_value, kRules[in.rule].first_square)),
               .dtype = in.dtype,
               .beta1 = with_default(in.beta1, 0.9),
               .beta2 = with_default(in.beta2, 0.999),
               .momentum = in.momentum,
               .nesterov = in.nesterov != 0,
               .refuse_nonfinite = in.refuse_nonfinite != 0,
               .accumulate = in.accumulate != 0,
               .penalties = {in.l1, in.l2, in.l2_shrinkage, in.beta},
               .rates = in.rates,
               .own_rule = {.apply = in.rule_fn,
                            .context = in.rule_context,
                            .state_elements = {in.state_elements[0], in.state_elements[1]}},
               .memory = in.memory,
               .table_memory = in.table_memory,
               .storage_dtype = storage_dtype_of(in),
               .rounding = in.rounding,
               .wire_dtype = wire_dtype_of(in),
               .exchange_bytes_max = in.exchange_bytes_max,
               .pin = {.placement = in.placement, .method = in.method},
               .priority = in.priority};
  PARALLAX_RETURN_IF_ERROR(check_pin(*variable, variable->pin));
  return check_place(in, name, &variable->place);
}

std::string encode_kind(const Variable& variable) {
  Variable kind = variable;
  kind.rows = kind.rows_max = kind.init_seed = 0;
  kind.init = PARALLAX_INIT_CONSTANT;
  kind.init_low = kind.init_high = kind.init_mean = kind.init_std = 0;
  std::string out;
  for (const Field& field : fields_of(kind)) append_number(&out, field.value);
  return out;
}

std::string encode_registry(std::span<const Variable* const> variables) {
  std::string out;
  append_number(&out, variables.size());
  for (const Variable* variable : variables) {
    append_number(&out, variable->name.size());
    out += variable->name;
    for (const Field& field : fields_of(*variable)) append_number(&out, field.value);
  }
  return out;
}

// Both are in the order of names: one that stands before the other's next is not there.
RegistryDifference compare_registries(std::string_view root_encoding,
                                      std::span<const Variable* const> mine,
                                      const std::string& root, const std::string& me) {
  const RegistryDifference unreadable = {me + " cannot read the registry of " + root};
  const auto only_on = [](const std::string& one, const std::string& other,
                          const std::string& name) -> RegistryDifference {
    return {"variable '" + printable(name) + "' is registered on " + one + " and not on " + other,
            name, "name"};
  };
  std::string_view in = root_encoding;
  uint64_t count = 0;
  if (!take_number(&in, &count)) return unreadable;
  size_t at = 0;
  for (uint64_t i = 0; i < count; ++i, ++at) {
    uint64_t length = 0;
    if (!take_number(&in, &length) || length > in.size()) return unreadable;
    const std::string name(in.substr(0, length));
    in.remove_prefix(length);
    if (at == mine.size() || name < mine[at]->name) return only_on(root, me, name);
    if (name > mine[at]->name) return only_on(me, root, mine[at]->name);
    for (const Field& field : fields_of(*mine[at])) {
      uint64_t theirs = 0;
      if (!take_number(&in, &theirs)) return unreadable;
      if (theirs == field.value) continue;
      return {"variable '" + name + "', field " + field.name + ": " + root + " has " +
                  text_of(field, theirs) + ", " + me + " has " + text_of(field, field.value),
              name, field.name};
    }
  }
  if (at < mine.size()) return only_on(me, root, mine[at]->name);
  return in.empty() ? RegistryDifference() : unreadable;
}

}  // namespace parallax
