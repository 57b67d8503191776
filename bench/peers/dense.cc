// SPDX-License-Identifier: Apache-2.0
// Tensors and their check. See dense.h.
#include "dense.h"

#include <cmath>
#include <cstring>
#include <map>
#include <sstream>

#include "base/number.h"

namespace parallax::peers {
namespace {

constexpr uint64_t kLineElements = 64 / sizeof(float);

// Small whole numbers: every sum of floats is exact, in any order.
float value_of(uint32_t rank, uint64_t at) {
  return static_cast<float>((at * 7 + rank * 3) % 11 + rank);
}

// Tensors differ, so that one in another's place is seen.
uint64_t number_of(size_t tensor, uint64_t at) { return at + tensor * 5; }

template <typename T>
void put(float value, std::byte* to) {
  T number = {};
  if constexpr (kNarrow<T>) {
    number = narrow(value, TypeTag<T>{});
  } else {
    number = static_cast<T>(value);
  }
  std::memcpy(to, &number, sizeof number);
}

void fill(const Dense::Memory& tensors, uint32_t dtype, uint32_t rank) {
  with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      std::byte* to = tensors[tensor].data();
      for (uint64_t at = 0; at < tensors[tensor].size() / sizeof(T); ++at, to += sizeof(T)) {
        put<T>(value_of(rank, number_of(tensor, at)), to);
      }
    }
  });
}

// How much a number may be wrong, relatively: what is added up in 16 bits is rounded at each rank,
// and a mean by the factor and by the product.
double tolerance_of(const DenseStep& step, uint32_t world) {
  if (step.dtype == PARALLAX_F32) return step.mean ? 0x1p-22 : 0;
  return world * (step.dtype == PARALLAX_F16 ? 0x1p-11 : 0x1p-8);
}

uint64_t count_wrong(const Dense::Memory& tensors, const DenseStep& step, uint32_t world) {
  const double tolerance = tolerance_of(step, world);
  uint64_t wrong = 0;
  with_dtype(step.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      const std::byte* from = tensors[tensor].data();
      for (uint64_t at = 0; at < tensors[tensor].size() / sizeof(T); ++at, from += sizeof(T)) {
        double want = 0;
        for (uint32_t rank = 0; rank < world; ++rank) want += value_of(rank, number_of(tensor, at));
        if (step.mean) want /= world;
        // What is not a number is wrong, too.
        if (!(std::fabs(static_cast<double>(load<T>(from)) - want) <= tolerance * want)) ++wrong;
      }
    }
  });
  return wrong;
}

}  // namespace

DenseStep DenseStep::read(const std::string& words) {
  static const std::map<std::string, uint32_t> kDtypes = {
      {"f32", PARALLAX_F32}, {"f16", PARALLAX_F16}, {"bf16", PARALLAX_BF16}};
  std::istringstream parts(words);
  std::string dtype, reduction, each;
  DenseStep step;
  std::getline(parts, dtype, '/');
  std::getline(parts, reduction, '/');
  const auto known = kDtypes.find(dtype);
  if (known == kDtypes.end() || (reduction != "sum" && reduction != "mean")) {
    fail("no step of tensors: " + words);
  }
  step.dtype = known->second;
  step.mean = reduction == "mean";
  while (std::getline(parts, each, ',')) {
    step.bytes.push_back(std::strtoull(each.c_str(), nullptr, 10));
    if (step.bytes.back() == 0 || step.bytes.back() % sizeof(float) != 0) {
      fail("no bytes of a tensor: " + each);
    }
  }
  if (step.bytes.empty()) fail("no tensors: " + words);
  return step;
}

uint64_t slab_elements(const std::vector<uint64_t>& bytes, Gaps gaps) {
  const uint64_t unit = gaps == Gaps::kNone ? 1 : kLineElements;
  uint64_t elements = 0;
  for (const uint64_t each : bytes) {
    elements += (each / sizeof(float) + unit - 1) / unit * unit;
  }
  return elements;
}

Tensors on_slab(float* slab, const std::vector<uint64_t>& bytes, Gaps gaps) {
  Tensors tensors;
  for (const uint64_t each : bytes) {
    tensors.emplace_back(slab, each / sizeof(float));
    slab += slab_elements({each}, gaps);
  }
  return tensors;
}

Dense::Memory memory_of(const Tensors& tensors) {
  Dense::Memory memory;
  for (const auto& tensor : tensors) memory.push_back(std::as_writable_bytes(tensor));
  return memory;
}

Tensors Slab::place(const std::vector<uint64_t>& bytes) {
  const uint64_t elements = slab_elements(bytes, Gaps::kToLines);
  if (values_.size() < elements) values_.resize(elements);
  return on_slab(values_.data(), bytes, Gaps::kToLines);
}

size_t Fusion::pack(const Tensors& tensors, size_t first) {
  used_ = 0;
  size_t end = first;
  for (; end < tensors.size(); ++end) {
    const auto& tensor = tensors[end];
    if (end > first && (used_ + tensor.size()) * sizeof(float) > kFusionBytes) break;
    if (buffer_.size() < used_ + tensor.size()) buffer_.resize(used_ + tensor.size());
    std::memcpy(&buffer_[used_], tensor.data(), tensor.size_bytes());
    used_ += tensor.size();
  }
  return end;
}

void Fusion::unpack(const Tensors& tensors, size_t first, size_t end) const {
  const float* from = buffer_.data();
  for (size_t each = first; each < end; ++each) {
    std::memcpy(tensors[each].data(), from, tensors[each].size_bytes());
    from += tensors[each].size();
  }
}

uint64_t Dense::check(const std::string& variant, const std::string& words) {
  const DenseStep step = DenseStep::read(words);
  given_ = place(variant, step);
  fill(given_, step.dtype, rank_);
  iterate();
  const uint64_t wrong = sums() ? count_wrong(given_, step, world_) : 0;
  refill();
  return wrong;
}

// Zeros stay zeros however often they are summed in place.
void Dense::refill() {
  for (const auto& tensor : given_) std::memset(tensor.data(), 0, tensor.size());
}

Dense::Memory FloatDense::place(const std::string& variant, const DenseStep& step) {
  if (step.dtype != PARALLAX_F32) fail("floats alone");
  factor_ = step.mean ? 1.0F / static_cast<float>(world_) : 1.0F;
  floats_ = tensors(variant, step.bytes);
  return memory_of(floats_);
}

Took FloatDense::iterate() {
  Took took = allreduce();
  if (factor_ == 1.0F || multiplies()) return took;
  const int64_t start_ns = now_ns();
  for (const auto& tensor : floats_) {
    for (float& value : tensor) value *= factor_;
  }
  const int64_t pass_ns = now_ns() - start_ns;
  return {took.result_ns + pass_ns, took.step_ns + pass_ns};
}

}  // namespace parallax::peers
