// SPDX-License-Identifier: Apache-2.0
// Conversions of whole buffers. See number.h.
#include "base/number.h"

namespace parallax {

namespace {

template <typename Out>
Out narrowed(float value) {
  if constexpr (std::is_same_v<Out, Half>) {
    return to_half(value);
  } else if constexpr (std::is_same_v<Out, BFloat>) {
    return to_bfloat(value);
  } else {
    return value;
  }
}

template <typename Out>
Out narrowed(double value) {
  if constexpr (std::is_same_v<Out, Half> || std::is_same_v<Out, BFloat>) {
    return narrowed<Out>(narrow_to_odd(value));
  } else {
    return static_cast<Out>(value);
  }
}

template <typename In, typename Out>
void convert_all(const std::byte* from, std::byte* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Out out = narrowed<Out>(load<In>(from + i * sizeof(In)));
    std::memcpy(to + i * sizeof(Out), &out, sizeof out);
  }
}

}  // namespace

Convert converter(uint32_t from_dtype, uint32_t to_dtype) {
  if (from_dtype == to_dtype) return nullptr;
  return with_dtype(from_dtype, [to_dtype](auto from) -> Convert {
    using In = typename decltype(from)::type;
    return with_dtype(to_dtype, [](auto to) -> Convert {
      using Out = typename decltype(to)::type;
      if constexpr (std::is_integral_v<In> || std::is_integral_v<Out>) {
        return nullptr;
      } else {
        return &convert_all<In, Out>;
      }
    });
  });
}

const char* dtype_name(uint32_t dtype) {
  switch (dtype) {
    case PARALLAX_F32:
      return "f32";
    case PARALLAX_F64:
      return "f64";
    case PARALLAX_F16:
      return "f16";
    case PARALLAX_BF16:
      return "bf16";
    case PARALLAX_I32:
      return "i32";
    case PARALLAX_I64:
      return "i64";
    default:
      return "unknown";
  }
}

}  // namespace parallax
