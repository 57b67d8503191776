// SPDX-License-Identifier: Apache-2.0
// Conversions of whole buffers. See number.h.
#include "base/number.h"

#include <vector>

#include "base/half_numbers.h"
#include "base/vector_code.h"

namespace parallax {

namespace {

template <typename Out, typename Sum>
Out narrowed(Sum value) {
  if constexpr (!kNarrow<Out>) {
    return static_cast<Out>(value);
  } else if constexpr (std::is_same_v<Sum, double>) {
    return narrow(narrow_to_odd(value), TypeTag<Out>{});
  } else {
    return narrow(value, TypeTag<Out>{});
  }
}

template <typename In, typename Out>
void convert_plainly(const std::byte* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Out out = narrowed<Out>(load<In>(from + i * sizeof(In)));
    std::memcpy(to + i * sizeof(Out), &out, sizeof out);
  }
}

template <typename In, typename Out>
void convert_all(const std::byte* from, std::byte* to, size_t count) {
  if (count < kVectorCountMin) {
    convert_plainly<In, Out>(from, to, count);
  } else if constexpr (std::is_same_v<In, Half> && std::is_same_v<Out, float>) {
    widen_halves(from, to, count);
  } else if constexpr (std::is_same_v<In, float> && std::is_same_v<Out, Half>) {
    round_to_halves(from, to, count);
  } else {
    in_vectors([=] { convert_plainly<In, Out>(from, to, count); });
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

std::string dtype_constants(bool (*takes)(uint32_t dtype), const char* last_word) {
  std::vector<const char*> names;
  for (uint32_t dtype = 0; dtype < kDtypeCount; ++dtype) {
    if (takes(dtype)) names.push_back(kDtypes[dtype].constant);
  }
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 < names.size() ? ", " : std::string(" ") + last_word + " ";
    list += names[i];
  }
  return list;
}

}  // namespace parallax
