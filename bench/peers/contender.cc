// SPDX-License-Identifier: Apache-2.0
// Serving commands, checking and timing. See contender.h.
#include "contender.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

namespace parallax::peers {
namespace {

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

int64_t quantile(const std::vector<int64_t>& sorted, double share) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(std::lround(last * share))];
}

void serve(Contender& contender, uint32_t rank, uint32_t world, const std::string& folder) {
  const std::string own = folder + "/" + std::to_string(rank);
  std::ifstream commands(own + ".in");
  std::ofstream answers(own + ".out");
  std::string line;
  while (std::getline(commands, line)) {
    std::istringstream words(line);
    std::string variant, list;
    std::vector<uint64_t> bytes;
    uint64_t iterations = 0;
    if (!(words >> variant >> list >> iterations) || !read_bytes(list, bytes)) {
      fail("not a command: " + line);
    }
    const Tensors tensors = contender.tensors(variant, bytes);
    fill(tensors, rank);
    contender.allreduce();
    const uint64_t wrong = contender.sums() ? count_wrong(tensors, world) : 0;
    // Zeros stay zeros however often they are summed in place.
    for (const auto& tensor : tensors) std::memset(tensor.data(), 0, tensor.size_bytes());
    for (uint64_t warm_up = 0; warm_up < iterations / 10 + 1; ++warm_up) contender.allreduce();
    std::vector<int64_t> reduces(iterations), steps(iterations);
    for (uint64_t at = 0; at < iterations; ++at) {
      const Took took = contender.allreduce();
      reduces[at] = took.reduce_ns;
      steps[at] = took.step_ns;
    }
    std::sort(reduces.begin(), reduces.end());
    std::sort(steps.begin(), steps.end());
    answers << quantile(reduces, 0.5) << ' ' << quantile(reduces, 0.99) << ' '
            << quantile(steps, 0.5) << ' ' << quantile(steps, 0.99) << ' ' << wrong << std::endl;
  }
}

std::string argument(int count, char** all, int at) {
  if (at >= count) fail(std::string(all[0]) + " is started by bench/peers/run");
  return all[at];
}

}  // namespace parallax::peers
