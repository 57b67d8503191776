// SPDX-License-Identifier: Apache-2.0
// Checks of storage. See storage.h.
#include "variable/storage.h"

#include "base/counter_bits.h"
#include "base/number.h"

namespace parallax {

namespace {

bool is_narrow_float(uint32_t dtype) { return dtype == PARALLAX_F16 || dtype == PARALLAX_BF16; }

Status check_rounding(const parallax_variable_t& in, const std::string& name) {
  if (in.rounding > PARALLAX_ROUNDING_STOCHASTIC) {
    return invalid(name + ": rounding is " + std::to_string(in.rounding) +
                   "; it must be PARALLAX_ROUNDING_NEAREST_EVEN or PARALLAX_ROUNDING_STOCHASTIC")
        .about_field("rounding");
  }
  if (in.rounding != PARALLAX_ROUNDING_NEAREST_EVEN && storage_dtype_of(in) == 0) {
    return invalid(name +
                   ": rounding is PARALLAX_ROUNDING_STOCHASTIC, but values are kept as they are "
                   "updated, and none is rounded; set storage_dtype to "
                   "PARALLAX_AS(PARALLAX_BF16), or leave rounding 0")
        .about_field("rounding");
  }
  return {};
}

}  // namespace

uint32_t storage_dtype_of(const parallax_variable_t& in) {
  return in.storage_dtype == PARALLAX_AS(dtype_of(sum_type_of(in.dtype))) ? 0 : in.storage_dtype;
}

Status check_storage(const parallax_variable_t& in, const std::string& name) {
  PARALLAX_RETURN_IF_ERROR(check_rounding(in, name));
  if (in.storage_dtype == 0) return {};
  const uint32_t stored = in.storage_dtype - 1;
  if (!is_dtype(stored) || !is_floating(stored)) {
    return invalid(name + ": storage_dtype is " + std::to_string(in.storage_dtype) +
                   "; it must be 0, or PARALLAX_AS of PARALLAX_" +
                   dtype_constants([](uint32_t dtype) { return is_floating(dtype); }, "or"))
        .about_field("storage_dtype");
  }
  const std::string lead =
      name + ": storage_dtype is PARALLAX_AS(PARALLAX_" + kDtypes[stored].constant + ")";
  if (in.rule == PARALLAX_RULE_NONE) {
    return invalid(lead +
                   ", but it is framework-held (no update rule): its value is the caller's, and "
                   "the library keeps none; leave it 0")
        .about_field("storage_dtype");
  }
  if (storage_dtype_of(in) == 0) return {};
  const auto refuse = [&](const std::string& why) {
    return unsupported(lead + ", and " + why).about_field("storage_dtype");
  };
  if (sum_type_of(in.dtype) != SumType::kF32 || !is_narrow_float(stored)) {
    return refuse("its dtype is PARALLAX_" + std::string(kDtypes[in.dtype].constant) +
                  "; this version keeps variables of PARALLAX_F32, F16 and BF16 in "
                  "PARALLAX_F16 and BF16, and others as they are updated: leave it 0");
  }
  if (kRules[in.rule].calls_back) {
    return refuse(
        "its rule is CALLBACK, whose function gets values as they lie, in float; leave it 0, or "
        "take a rule of the library's");
  }
  if (in.table_memory != PARALLAX_MEMORY_HOST) {
    return refuse(
        "its table_memory is PARALLAX_MEMORY_CUDA; devices keep tables in float: leave it 0, or "
        "keep the table in host memory (PARALLAX_MEMORY_HOST)");
  }
  return {};
}

uint32_t wire_dtype_of(const parallax_variable_t& in) {
  return in.wire_dtype == PARALLAX_AS(dtype_of(sum_type_of(in.dtype))) ? 0 : in.wire_dtype;
}

Status check_wire(const parallax_variable_t& in, const std::string& name) {
  if (in.wire_dtype == 0) return {};
  const uint32_t wire = in.wire_dtype - 1;
  if (!is_dtype(wire) || !is_floating(wire)) {
    return invalid(name + ": wire_dtype is " + std::to_string(in.wire_dtype) +
                   "; it must be 0, or PARALLAX_AS of PARALLAX_" +
                   dtype_constants([](uint32_t dtype) { return is_floating(dtype); }, "or"))
        .about_field("wire_dtype");
  }
  const std::string lead =
      name + ": wire_dtype is PARALLAX_AS(PARALLAX_" + kDtypes[wire].constant + ")";
  if (in.rule == PARALLAX_RULE_NONE || in.rows_max == 0) {
    return invalid(lead + ", but " +
                   (in.rows_max == 0 ? "its slices carry every row (rows_max is 0)"
                                     : "it is framework-held (no update rule)") +
                   ", and no row of it is pushed to an owner; leave it 0")
        .about_field("wire_dtype");
  }
  if (wire_dtype_of(in) == 0) return {};
  const auto refuse = [&](const std::string& why) {
    return unsupported(lead + ", and " + why).about_field("wire_dtype");
  };
  if (sum_type_of(in.dtype) != SumType::kF32 || wire != PARALLAX_BF16) {
    return refuse("its dtype is PARALLAX_" + std::string(kDtypes[in.dtype].constant) +
                  "; this version rounds rows of PARALLAX_F32, F16 and BF16, to PARALLAX_BF16 "
                  "alone, which has float's range: leave it 0");
  }
  if (in.reduction == PARALLAX_MEAN_ROW) {
    return refuse(
        "its reduction is PARALLAX_MEAN_ROW, whose rows bring a count that must stay exact; leave "
        "it 0, or take another reduction");
  }
  return {};
}

uint64_t rounding_seed(const Variable& variable) {
  uint64_t seed = mix(variable.init_seed);
  for (const char each : variable.name) {
    seed = mix(seed + static_cast<uint8_t>(each) + kCounterStep);
  }
  return seed;
}

}  // namespace parallax
