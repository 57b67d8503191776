// SPDX-License-Identifier: Apache-2.0
// Uniform and normal values by counter. See initial_value.h.
#include "variable/initial_value.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <sstream>

#include "base/counter_bits.h"
#include "variable/fused_tables.h"

namespace parallax {

namespace {

// A polynomial of degree 7 by Horner's rule, the highest power first.
double polynomial(const double (&coefficients)[8], double x) {
  double sum = coefficients[0];
  for (int i = 1; i < 8; ++i) sum = sum * x + coefficients[i];
  return sum;
}

// Of AS 241: where |centred| <= 0.425, by 0.425^2 - centred^2; in the tails by
// sqrt(-log(probability)), less 1.6 up to 5 and less 5 beyond.
constexpr double kCentreTop[8] = {2.5090809287301226727e+3, 3.3430575583588128105e+4,
                                  6.7265770927008700853e+4, 4.5921953931549871457e+4,
                                  1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                  1.3314166789178437745e+2, 3.3871328727963666080e+0};
constexpr double kCentreBottom[8] = {5.2264952788528545610e+3, 2.8729085735721942674e+4,
                                     3.9307895800092710610e+4, 2.1213794301586595867e+4,
                                     5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                     4.2313330701600911252e+1, 1.0};
constexpr double kTailTop[8] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                                2.41780725177450611770e-1, 1.27045825245236838258e+0,
                                3.64784832476320460504e+0, 5.76949722146069140550e+0,
                                4.63033784615654529590e+0, 1.42343711074968357734e+0};
constexpr double kTailBottom[8] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                   1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                   6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                   2.05319162663775882187e+0, 1.0};
constexpr double kFarTop[8] = {2.01033439929228813265e-7, 2.71155556874348757815e-5,
                               1.24266094738807843860e-3, 2.65321895265761230930e-2,
                               2.96560571828504891230e-1, 1.78482653991729133580e+0,
                               5.46378491116411436990e+0, 6.65790464350110377720e+0};
constexpr double kFarBottom[8] = {2.04426310338993978564e-15, 1.42151175831644588870e-7,
                                  1.84631831751005468180e-5,  7.86869131145613259100e-4,
                                  1.48753612908506148525e-2,  1.36929880922735805310e-1,
                                  5.99832206555887937690e-1,  1.0};

// Not inlined, so that the centre, which six of seven values take, stays short.
[[gnu::noinline]] double tail_quantile(double centred) {
  const double root = std::sqrt(negated_log(0.5 - std::fabs(centred)));
  const double magnitude =
      root <= 5 ? polynomial(kTailTop, root - 1.6) / polynomial(kTailBottom, root - 1.6)
                : polynomial(kFarTop, root - 5) / polynomial(kFarBottom, root - 5);
  return centred < 0 ? -magnitude : magnitude;
}

inline double quantile(double centred) {
  if (std::fabs(centred) > 0.425) return tail_quantile(centred);
  const double r = 0.180625 - centred * centred;
  return polynomial(kCentreTop, r) * centred / polynomial(kCentreBottom, r);
}

// P(|Z| < 2).
constexpr double kWithinTwo = 0.9544997361036416;

// What does not change within a row.
class RowValues {
 public:
  RowValues(const Variable& variable, uint64_t row)
      : variable_(variable), bits_(variable.init_seed, row) {}

  float uniform(uint64_t column) const {
    const float unit = static_cast<float>(bits_.at(column) >> 40) * 0x1p-24f;
    return variable_.init_low + (variable_.init_high - variable_.init_low) * unit;
  }
  double normal(uint64_t column) const { return placed(quantile(centred(column))); }
  double truncated(uint64_t column) const { return placed(quantile(kWithinTwo * centred(column))); }

 private:
  // An odd multiple of 2^-53 in (-1/2, 1/2), without rounding.
  double centred(uint64_t column) const {
    return (static_cast<double>(bits_.at(column) >> 12) + 0.5) * 0x1p-52 - 0.5;
  }
  double placed(double standard) const {
    return static_cast<double>(variable_.init_mean) +
           static_cast<double>(variable_.init_std) * standard;
  }

  const Variable& variable_;
  const CounterBits bits_;
};

}  // namespace

double negated_log(double number) {
  // number = 2^exponent * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
  constexpr uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd;
  constexpr uint64_t kExponentMask = 0xfff0000000000000;
  const uint64_t bits = std::bit_cast<uint64_t>(number);
  const uint64_t scale = (bits - kRootOfHalf) & kExponentMask;
  const double exponent = static_cast<double>(static_cast<int64_t>(scale) >> 52);
  const double scaled = std::bit_cast<double>(bits - scale);
  // log(1 + f) = 2 artanh(s) with s = f / (2 + f), |s| < 0.172: its series up to s^21.
  const double s = (scaled - 1) / (scaled + 1);
  const double square = s * s;
  double sum = 1.0 / 21;
  for (int odd = 19; odd >= 3; odd -= 2) sum = sum * square + 1.0 / odd;
  const double log_scaled = 2 * s + 2 * s * (sum * square);
  // log(2) in two parts, of which the first, times an exponent, does not round.
  constexpr double kLog2High = 0x1.62e42feep-1, kLog2Low = 0x1.a39ef35793c76p-33;
  return -(exponent * kLog2High + (exponent * kLog2Low + log_scaled));
}

double normal_quantile(double centred) { return quantile(centred); }

// ---- what is registered

namespace {

// A field that only some kinds have.
struct InitField {
  const char* name;
  bool zero;
  uint32_t least, most;  // of the kinds that have it
};

Status check_bounds(const parallax_variable_t& in, const std::string& name) {
  std::ostringstream lead;
  lead << name << ": init_low is " << in.init_low << " and init_high is " << in.init_high;
  if (!std::isfinite(in.init_low) || !std::isfinite(in.init_high) ||
      !std::isfinite(in.init_high - in.init_low)) {
    return invalid(lead.str() + "; both and what lies between must be finite")
        .about_field("init_low");
  }
  if (in.init == PARALLAX_INIT_CONSTANT && in.init_high != 0 && in.init_high != in.init_low) {
    return invalid(lead.str() +
                   ", but init is PARALLAX_INIT_CONSTANT, which uses init_low alone; set "
                   "PARALLAX_INIT_UNIFORM, or init_high to 0")
        .about_field("init_high");
  }
  if (in.init == PARALLAX_INIT_UNIFORM && in.init_low > in.init_high) {
    return invalid(lead.str() + "; low must not be above high").about_field("init_low");
  }
  return {};
}

Status check_normal(const parallax_variable_t& in, const std::string& name) {
  // No value lies 9 standard deviations away.
  if (std::isfinite(in.init_mean) && in.init_std >= 0 &&
      std::isfinite(std::fabs(in.init_mean) + 9 * in.init_std)) {
    return {};
  }
  std::ostringstream lead;
  lead << name << ": init_mean is " << in.init_mean << " and init_std is " << in.init_std;
  return invalid(lead.str() +
                 "; both must be finite, as must what they give, and init_std not negative")
      .about_field(std::isfinite(in.init_mean) ? "init_std" : "init_mean");
}

}  // namespace

Status check_initial(const parallax_variable_t& in, const std::string& name) {
  if (in.init >= std::size(kInitNames)) {
    return invalid(name + ": init is " + std::to_string(in.init) +
                   "; it must be PARALLAX_INIT_CONSTANT, UNIFORM, NORMAL, TRUNCATED_NORMAL, BUFFER "
                   "or BROADCAST")
        .about_field("init");
  }
  const std::string kind = std::string("PARALLAX_INIT_") + kInitNames[in.init];
  if (in.init > PARALLAX_INIT_UNIFORM && in.rule == PARALLAX_RULE_NONE) {
    return invalid(name + ": init is " + kind +
                   ", but a framework-held variable's values are the caller's; leave it 0")
        .about_field("init");
  }
  const InitField fields[] = {
      {"init_low", in.init_low == 0, PARALLAX_INIT_CONSTANT, PARALLAX_INIT_UNIFORM},
      {"init_high", in.init_high == 0, PARALLAX_INIT_CONSTANT, PARALLAX_INIT_UNIFORM},
      {"init_mean", in.init_mean == 0, PARALLAX_INIT_NORMAL, PARALLAX_INIT_TRUNCATED_NORMAL},
      {"init_std", in.init_std == 0, PARALLAX_INIT_NORMAL, PARALLAX_INIT_TRUNCATED_NORMAL},
      {"initial", in.initial == nullptr, PARALLAX_INIT_BUFFER, PARALLAX_INIT_BROADCAST}};
  for (const InitField& field : fields) {
    if (field.zero || (in.init >= field.least && in.init <= field.most)) continue;
    return invalid(name + ": " + field.name + " is set, but init is " + kind +
                   ", which has none; leave it 0")
        .about_field(field.name);
  }
  if (in.init == PARALLAX_INIT_BUFFER && in.initial == nullptr) {
    return invalid(name + ": initial is NULL; PARALLAX_INIT_BUFFER takes its values from there")
        .about_field("initial");
  }
  PARALLAX_RETURN_IF_ERROR(check_normal(in, name));
  return check_bounds(in, name);
}

// ---- values

bool has_initial_values(const Variable& variable) {
  if (!variable.fused.empty()) {
    return std::any_of(variable.fused.begin(), variable.fused.end(), [](const FusedMember& member) {
      return has_initial_values(*member.variable);
    });
  }
  if (variable.init == PARALLAX_INIT_CONSTANT) return variable.init_low != 0;
  // Of BROADCAST they come later, by take_values(); those of rank 0 are here.
  return variable.init != PARALLAX_INIT_BROADCAST || variable.initial != nullptr;
}

namespace {

template <typename T>
void fill_row(const Variable& variable, uint64_t row, uint64_t column, std::span<T> values) {
  const RowValues of_row(variable, row);
  const auto each = [&](auto value_at) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(value_at(column + i));
  };
  switch (variable.init) {
    case PARALLAX_INIT_UNIFORM:
      return each([&](uint64_t at) { return of_row.uniform(at); });
    case PARALLAX_INIT_NORMAL:
      return each([&](uint64_t at) { return of_row.normal(at); });
    case PARALLAX_INIT_TRUNCATED_NORMAL:
      return each([&](uint64_t at) { return of_row.truncated(at); });
    default:
      return each([&](uint64_t) { return variable.init_low; });
  }
}

}  // namespace

double initial_value(const Variable& variable, uint64_t row, uint64_t column) {
  const RowValues values(variable, row);
  switch (variable.init) {
    case PARALLAX_INIT_UNIFORM:
      return values.uniform(column);
    case PARALLAX_INIT_NORMAL:
      return values.normal(column);
    case PARALLAX_INIT_TRUNCATED_NORMAL:
      return values.truncated(column);
    default:
      return variable.init_low;
  }
}

template <typename T>
void fill_initial(const Variable& variable, uint64_t row, uint64_t column, std::span<T> values) {
  if (!variable.fused.empty()) {
    const FusedMember& member = member_of(variable.fused, row);
    return fill_initial(*member.variable, row - member.first_row, column, values);
  }
  if (variable.initial != nullptr) {
    return copy_given(variable, row * variable.row_elements + column,
                      std::as_writable_bytes(values));
  }
  fill_row(variable, row, column, values);
}
template void fill_initial(const Variable&, uint64_t, uint64_t, std::span<float>);
template void fill_initial(const Variable&, uint64_t, uint64_t, std::span<double>);
template void fill_initial(const Variable&, uint64_t, uint64_t, std::span<int32_t>);
template void fill_initial(const Variable&, uint64_t, uint64_t, std::span<int64_t>);

void copy_given(const Variable& variable, uint64_t first, std::span<std::byte> values) {
  const uint32_t number_bytes = bytes_of_sum(variable.sum_type());
  if (variable.fused.empty()) {
    std::memcpy(values.data(), variable.initial + first * number_bytes, values.size());
    return;
  }
  while (!values.empty()) {
    const FusedMember& member = member_of(variable.fused, first / variable.row_elements);
    const uint64_t in_member = first - member.first_row * variable.row_elements;
    const uint64_t count =
        std::min(values.size() / number_bytes, member.variable->elements() - in_member);
    copy_given(*member.variable, in_member, values.first(count * number_bytes));
    values = values.subspan(count * number_bytes);
    first += count;
  }
}

}  // namespace parallax
