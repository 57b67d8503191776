// SPDX-License-Identifier: Apache-2.0
// Numbers: the dtypes of the C ABI as types, what each is summed in, and the conversions between
// them. A gradient travels in its sum type: f16 and bf16 are widened to float where a slice enters
// and rounded once (to nearest even) where a result leaves; integers wrap. Which type a buffer has
// is asked once per call (with_sum_type, with_dtype), never once per element. All that is said of a
// dtype follows from its C++ type, its case in with_dtype and its row of kDtypes; nothing else
// lists them.
#ifndef PARALLAX_BASE_NUMBER_H_
#define PARALLAX_BASE_NUMBER_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <type_traits>

#include "parallax/parallax.h"

namespace parallax {

struct Half {  // IEEE 754 binary16
  uint16_t bits;
};
struct BFloat {  // the upper half of a binary32
  uint16_t bits;
};

// What a dtype is summed, kept and updated in.
enum class SumType : uint8_t { kF32, kF64, kI32, kI64 };

template <typename T>
struct TypeTag {
  using type = T;
};

// ---- conversions of one number; the rounding mode is the default one (FloatEnvironment)

inline float widen(Half half) {
  constexpr uint32_t kExponentBias = (127 - 15) << 23;
  const uint32_t sign = uint32_t{half.bits} << 16 & 0x80000000u;
  const uint32_t magnitude = (half.bits & 0x7fffu) << 13;
  if (magnitude >= 0x7c00u << 13) {  // infinity, NaN; a NaN is quiet then, as of any conversion
    const uint32_t quiet = magnitude > 0x7c00u << 13 ? 0x400000u : 0;
    return std::bit_cast<float>(sign | (magnitude + 2 * kExponentBias) | quiet);
  }
  if (magnitude >= 0x0400u << 13) return std::bit_cast<float>(sign | (magnitude + kExponentBias));
  // Zero or subnormal: built on the least normal number, which is then taken off again.
  constexpr uint32_t kLeastNormal = (127 - 14) << 23;
  const float value =
      std::bit_cast<float>(magnitude + kLeastNormal) - std::bit_cast<float>(kLeastNormal);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

inline float widen(BFloat value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

inline Half to_half(float value) {
  const uint32_t all = std::bit_cast<uint32_t>(value);
  const uint32_t sign = all & 0x80000000u;
  uint32_t bits = all ^ sign;
  uint32_t out;
  if (bits >= (127 + 16) << 23) {  // beyond the largest half whatever is rounded; infinity, NaN
    out = bits > 0xffu << 23 ? 0x7e00u : 0x7c00u;
  } else if (bits < (127 - 14) << 23) {  // subnormal or zero: the adder rounds at the right bit
    constexpr uint32_t kMagic = ((127 - 15) + (23 - 10) + 1) << 23;
    out =
        std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + std::bit_cast<float>(kMagic)) - kMagic;
  } else {
    const uint32_t odd = bits >> 13 & 1;
    bits -= (127 - 15) << 23;
    out = (bits + 0xfff + odd) >> 13;
  }
  return {static_cast<uint16_t>(out | sign >> 16)};
}

inline BFloat to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>(bits >> 16 | 0x40u)};  // NaN: quiet, never rounded to infinity
  }
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// The way back from what a narrow type is summed in.
inline Half narrow(float value, TypeTag<Half>) { return to_half(value); }
inline BFloat narrow(float value, TypeTag<BFloat>) { return to_bfloat(value); }

// Rounded to odd, so that rounding the result once more, to fewer bits, is right (Boldo and
// Melquiond 2008).
inline float narrow_to_odd(double value) {
  const float near = static_cast<float>(value);
  if (static_cast<double>(near) == value || std::isnan(value)) return near;
  uint32_t bits = std::bit_cast<uint32_t>(near);
  if (std::fabs(static_cast<double>(near)) > std::fabs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1);
}

// ---- types by number

template <typename In>
struct SumOf {
  using type = In;
};
template <>
struct SumOf<Half> {
  using type = float;
};
template <>
struct SumOf<BFloat> {
  using type = float;
};
template <typename In>
using sum_of_t = typename SumOf<In>::type;
// Widened where it enters, rounded where it leaves.
template <typename T>
inline constexpr bool kNarrow = !std::is_same_v<sum_of_t<T>, T>;

// Calls visit(TypeTag<T>{}).
template <typename Visit>
constexpr decltype(auto) with_sum_type(SumType sum, const Visit& visit) {
  switch (sum) {
    case SumType::kF64:
      return visit(TypeTag<double>{});
    case SumType::kI32:
      return visit(TypeTag<int32_t>{});
    case SumType::kI64:
      return visit(TypeTag<int64_t>{});
    case SumType::kF32:
      break;
  }
  return visit(TypeTag<float>{});
}

// `dtype` is a parallax_dtype_t, checked before.
template <typename Visit>
constexpr decltype(auto) with_dtype(uint32_t dtype, const Visit& visit) {
  switch (dtype) {
    case PARALLAX_F64:
      return visit(TypeTag<double>{});
    case PARALLAX_F16:
      return visit(TypeTag<Half>{});
    case PARALLAX_BF16:
      return visit(TypeTag<BFloat>{});
    case PARALLAX_I32:
      return visit(TypeTag<int32_t>{});
    case PARALLAX_I64:
      return visit(TypeTag<int64_t>{});
    default:
      return visit(TypeTag<float>{});
  }
}

// What a dtype is called. A row's index is the number of its dtype.
struct DtypeNames {
  const char* name;      // in plans and sentences
  const char* constant;  // in parallax.h, after PARALLAX_
  const char* word;      // on command lines, as nccl-tests has it
};
inline constexpr DtypeNames kDtypes[] = {
    {"f32", "F32", "float"},      {"f64", "F64", "double"}, {"f16", "F16", "half"},
    {"bf16", "BF16", "bfloat16"}, {"i32", "I32", "int32"},  {"i64", "I64", "int64"},
};
inline constexpr uint32_t kDtypeCount = std::size(kDtypes);
static_assert(kDtypeCount == PARALLAX_I64 + 1, "a row for each dtype of parallax.h");

inline constexpr bool is_dtype(uint32_t dtype) { return dtype < kDtypeCount; }
// Of a collective that combines nothing, too.
inline constexpr bool is_copied_dtype(uint32_t dtype) {
  return is_dtype(dtype) || dtype == PARALLAX_BYTES;
}
inline const char* dtype_name(uint32_t dtype) {
  if (dtype == PARALLAX_BYTES) return "bytes";
  return is_dtype(dtype) ? kDtypes[dtype].name : "unknown";
}

// "PARALLAX_F32, F64, F16, BF16, I32 and I64", or those that `takes` says yes to.
std::string dtype_constants(bool (*takes)(uint32_t dtype), const char* last_word);

constexpr SumType sum_type_of(uint32_t dtype) {
  return with_dtype(dtype, [](auto tag) {
    using Sum = sum_of_t<typename decltype(tag)::type>;
    if constexpr (std::is_same_v<Sum, double>) {
      return SumType::kF64;
    } else if constexpr (std::is_same_v<Sum, int32_t>) {
      return SumType::kI32;
    } else if constexpr (std::is_same_v<Sum, int64_t>) {
      return SumType::kI64;
    } else {
      static_assert(std::is_same_v<Sum, float>);
      return SumType::kF32;
    }
  });
}
// The dtype that holds a sum type as it is.
constexpr uint32_t dtype_of(SumType sum) {
  switch (sum) {
    case SumType::kF64:
      return PARALLAX_F64;
    case SumType::kI32:
      return PARALLAX_I32;
    case SumType::kI64:
      return PARALLAX_I64;
    case SumType::kF32:
      break;
  }
  return PARALLAX_F32;
}
constexpr uint32_t bytes_of_dtype(uint32_t dtype) {
  if (dtype == PARALLAX_BYTES) return 1;
  return with_dtype(
      dtype, [](auto tag) { return static_cast<uint32_t>(sizeof(typename decltype(tag)::type)); });
}
constexpr uint32_t bytes_of_sum(SumType sum) { return bytes_of_dtype(dtype_of(sum)); }
constexpr bool is_floating(uint32_t dtype) {
  return with_dtype(dtype, [](auto tag) {
    return std::is_floating_point_v<sum_of_t<typename decltype(tag)::type>>;
  });
}

// ---- numbers in memory, which may be unaligned

// The number at `from`, widened to what it is summed in.
template <typename In>
sum_of_t<In> load(const std::byte* from) {
  In value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (kNarrow<In>) {
    return widen(value);
  } else {
    return value;
  }
}

// a + b; integers wrap.
template <typename T>
T plus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

// Converts `count` numbers; neither side need be aligned.
using Convert = void (*)(const std::byte* from, std::byte* to, size_t count);

// Between floating dtypes, or of an integer dtype to itself; null where bytes are copied as they
// are. convertible() tells what there is.
Convert converter(uint32_t from_dtype, uint32_t to_dtype);
inline bool convertible(uint32_t from_dtype, uint32_t to_dtype) {
  return from_dtype == to_dtype || (is_floating(from_dtype) && is_floating(to_dtype));
}

inline void convert_or_copy(Convert convert, const std::byte* from, std::byte* to, size_t count,
                            size_t to_element_bytes) {
  if (convert != nullptr) {
    convert(from, to, count);
  } else if (count > 0) {
    std::memcpy(to, from, count * to_element_bytes);
  }
}

}  // namespace parallax

#endif  // PARALLAX_BASE_NUMBER_H_
