// SPDX-License-Identifier: Apache-2.0
// Tensors and their check. See dense.h.
#include "dense.h"

#include <cstring>
#include <sstream>

namespace parallax::peers {
namespace {

// Small whole numbers: every sum is exact, in any order.
float value_of(uint32_t rank, uint64_t at) {
  return static_cast<float>((at * 7 + rank * 3) % 11 + rank);
}

constexpr uint64_t kLineElements = 64 / sizeof(float);

// Tensors differ, so that one in another's place is seen.
uint64_t number_of(size_t tensor, uint64_t at) { return at + tensor * 5; }

void fill(const Tensors& tensors, uint32_t rank) {
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    uint64_t at = 0;
    for (float& value : tensors[tensor]) value = value_of(rank, number_of(tensor, at++));
  }
}

uint64_t count_wrong(const Tensors& tensors, uint32_t world) {
  uint64_t wrong = 0;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    for (uint64_t at = 0; at < tensors[tensor].size(); ++at) {
      float want = 0;
      for (uint32_t rank = 0; rank < world; ++rank) want += value_of(rank, number_of(tensor, at));
      if (tensors[tensor][at] != want) ++wrong;
    }
  }
  return wrong;
}

// False for what is no list of the bytes of tensors of floats.
bool read_bytes(const std::string& words, std::vector<uint64_t>& bytes) {
  std::istringstream list(words);
  for (std::string each; std::getline(list, each, ',');) {
    bytes.push_back(std::strtoull(each.c_str(), nullptr, 10));
    if (bytes.back() == 0 || bytes.back() % sizeof(float) != 0) return false;
  }
  return !bytes.empty();
}

}  // namespace

uint64_t slab_elements(const std::vector<uint64_t>& bytes) {
  uint64_t elements = 0;
  for (const uint64_t each : bytes) {
    elements += (each / sizeof(float) + kLineElements - 1) / kLineElements * kLineElements;
  }
  return elements;
}

Tensors on_slab(float* slab, const std::vector<uint64_t>& bytes) {
  Tensors tensors;
  for (const uint64_t each : bytes) {
    tensors.emplace_back(slab, each / sizeof(float));
    slab += slab_elements({each});
  }
  return tensors;
}

Tensors Slab::place(const std::vector<uint64_t>& bytes) {
  // One tensor has no padding behind it: its buffer is as long as it is.
  used_ = bytes.size() == 1 ? bytes[0] / sizeof(float) : slab_elements(bytes);
  if (values_.size() < slab_elements(bytes)) values_.resize(slab_elements(bytes));
  return on_slab(values_.data(), bytes);
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
  std::vector<uint64_t> bytes;
  if (!read_bytes(words, bytes)) fail("no bytes of tensors: " + words);
  given_ = tensors(variant, bytes);
  fill(given_, rank_);
  allreduce();
  const uint64_t wrong = sums() ? count_wrong(given_, world_) : 0;
  refill();
  return wrong;
}

// Zeros stay zeros however often they are summed in place.
void Dense::refill() {
  for (const auto& tensor : given_) std::memset(tensor.data(), 0, tensor.size_bytes());
}

}  // namespace parallax::peers
