// SPDX-License-Identifier: Apache-2.0
// See nccl_numbers.h.
#include "cuda/double/nccl_numbers.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/number.h"

namespace nccl_double {

namespace {

using parallax::BFloat;
using parallax::Half;
using parallax::TypeTag;

template <typename Visit>
bool with_type(ncclDataType_t type, Visit visit) {
  switch (type) {
    case ncclInt8:
      return visit(TypeTag<int8_t>{});
    case ncclUint8:
      return visit(TypeTag<uint8_t>{});
    case ncclInt32:
      return visit(TypeTag<int32_t>{});
    case ncclUint32:
      return visit(TypeTag<uint32_t>{});
    case ncclInt64:
      return visit(TypeTag<int64_t>{});
    case ncclUint64:
      return visit(TypeTag<uint64_t>{});
    case ncclFloat16:
      return visit(TypeTag<Half>{});
    case ncclBfloat16:
      return visit(TypeTag<BFloat>{});
    case ncclFloat32:
      return visit(TypeTag<float>{});
    case ncclFloat64:
      return visit(TypeTag<double>{});
    default:
      return false;
  }
}

template <typename T>
T combined(ncclRedOp_t op, T a, T b) {
  if (op == ncclMax) return a < b ? b : a;
  if (op == ncclMin) return b < a ? b : a;
  if constexpr (std::is_integral_v<T>) {
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<T>(op == ncclProd ? x * y : x + y);
  } else {
    return op == ncclProd ? a * b : a + b;
  }
}

template <typename T>
T stored(parallax::sum_of_t<T> value) {
  if constexpr (parallax::kNarrow<T>) {
    return parallax::narrow(value, TypeTag<T>{});
  } else {
    return value;
  }
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  size_t bytes = 0;
  with_type(type, [&](auto tag) {
    bytes = sizeof(typename decltype(tag)::type);
    return true;
  });
  return bytes;
}

bool may_combine(ncclDataType_t type, ncclRedOp_t op) {
  return bytes_of(type) > 0 && op >= ncclSum && op < ncclNumOps;
}

void combine(ncclDataType_t type, ncclRedOp_t op, std::span<const std::byte* const> sources,
             std::byte* to, size_t count) {
  with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = parallax::sum_of_t<T>;
    for (size_t i = 0; i < count; ++i) {
      Sum all = parallax::load<T>(sources[0] + i * sizeof(T));
      for (size_t s = 1; s < sources.size(); ++s) {
        all = combined<Sum>(op, all, parallax::load<T>(sources[s] + i * sizeof(T)));
      }
      if (op == ncclAvg) all = static_cast<Sum>(all / static_cast<Sum>(sources.size()));
      const T value = stored<T>(all);
      std::memcpy(to + i * sizeof(T), &value, sizeof value);
    }
    return true;
  });
}

}  // namespace nccl_double
