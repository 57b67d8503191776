// SPDX-License-Identifier: Apache-2.0
// Blocks by class, and the bound. See pinned_pool.h.
#include "device/pinned_pool.h"

#include <bit>
#include <string>

namespace parallax {

PinnedPool::~PinnedPool() { release_unused(); }

uint32_t PinnedPool::class_of(uint64_t bytes) {
  const auto bits = static_cast<uint32_t>(std::bit_width(bytes - 1));
  return bits <= kSmallestBits ? 0 : bits - kSmallestBits;
}

void PinnedPool::release_unused() {
  for (uint32_t i = 0; i < kClasses; ++i) {
    for (std::byte* memory : unused_[i]) {
      devices_.release_pinned(memory);
      bytes_held_ -= uint64_t{1} << (kSmallestBits + i);
    }
    unused_[i].clear();
  }
}

Status PinnedPool::take(uint64_t bytes, PinnedBlock* block) {
  const uint32_t size_class = class_of(bytes);
  const uint64_t block_bytes = uint64_t{1} << (kSmallestBits + size_class);
  const auto refuse = [&](const std::string& why) {
    return limit(std::to_string(bytes) + " bytes of pinned host memory: " + why);
  };
  if (size_class >= kClasses) return refuse("no machine has as much");
  std::vector<std::byte*>& unused = unused_[size_class];
  if (unused.empty()) {
    if (bytes_max_ != 0 && bytes_held_ + block_bytes > bytes_max_) release_unused();
    if (bytes_max_ != 0 && bytes_held_ + block_bytes > bytes_max_) {
      return refuse(std::to_string(bytes_in_use_) + " are in use, and pinned_max_bytes is " +
                    std::to_string(bytes_max_) + "; wait for earlier calls, or raise it")
          .about_field("pinned_max_bytes");
    }
    // Before there is memory that could be lost.
    unused.reserve(unused.size() + 1);
    std::byte* memory = nullptr;
    Status pinned = devices_.allocate_pinned(block_bytes, &memory);
    if (!pinned.ok()) {
      // What is kept may be what the machine lacks.
      release_unused();
      pinned = devices_.allocate_pinned(block_bytes, &memory);
    }
    if (!pinned.ok()) return refuse(pinned.message());
    unused.push_back(memory);
    bytes_held_ += block_bytes;
    ++growth_count_;
  }
  *block = {unused.back(), block_bytes};
  unused.pop_back();
  bytes_in_use_ += block_bytes;
  return {};
}

void PinnedPool::give_back(const PinnedBlock& block) {
  if (block.memory == nullptr) return;
  bytes_in_use_ -= block.bytes;
  unused_[class_of(block.bytes)].push_back(block.memory);
}

}  // namespace parallax
