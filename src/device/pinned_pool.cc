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
    Class& blocks = classes_[i];
    for (std::byte* memory : blocks.unused) {
      devices_.release_pinned(memory);
      bytes_held_ -= uint64_t{1} << (kSmallestBits + i);
    }
    blocks.held -= blocks.unused.size();
    blocks.unused.clear();
  }
}

Status PinnedPool::grow(uint64_t block_bytes, Class* blocks) {
  // Before there is memory that could be lost, and so that what comes back always has room.
  blocks->unused.reserve(blocks->held + 1);
  std::byte* memory = nullptr;
  PARALLAX_RETURN_IF_ERROR(devices_.allocate_pinned(block_bytes, &memory));
  blocks->unused.push_back(memory);
  ++blocks->held;
  bytes_held_ += block_bytes;
  ++growth_count_;
  return {};
}

Status PinnedPool::take(uint64_t bytes, PinnedBlock* block) {
  const uint32_t size_class = class_of(bytes);
  const uint64_t block_bytes = uint64_t{1} << (kSmallestBits + size_class);
  const auto refuse = [&](const std::string& why) {
    return limit(std::to_string(bytes) + " bytes of pinned host memory: " + why);
  };
  if (size_class >= kClasses) return refuse("no machine has as much");
  Class& blocks = classes_[size_class];
  if (blocks.unused.empty()) {
    if (bytes_max_ != 0 && bytes_held_ + block_bytes > bytes_max_) release_unused();
    if (bytes_max_ != 0 && bytes_held_ + block_bytes > bytes_max_) {
      return refuse(std::to_string(bytes_in_use_) + " are in use, and pinned_max_bytes is " +
                    std::to_string(bytes_max_) + "; wait for earlier calls, or raise it")
          .about_field("pinned_max_bytes");
    }
    const Status grown = grow(block_bytes, &blocks);
    if (!grown.ok()) {
      // What is kept may be what the machine lacks, and is there for the next call.
      const bool kept = bytes_held_ > bytes_in_use_;
      release_unused();
      return refuse(grown.message() +
                    (kept ? "; what was kept for later calls is given back: call again" : ""));
    }
  }
  *block = {blocks.unused.back(), block_bytes};
  blocks.unused.pop_back();
  bytes_in_use_ += block_bytes;
  return {};
}

void PinnedPool::give_back(const PinnedBlock& block) noexcept {
  if (block.memory == nullptr) return;
  bytes_in_use_ -= block.bytes;
  classes_[class_of(block.bytes)].unused.push_back(block.memory);
}

}  // namespace parallax
