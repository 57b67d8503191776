// SPDX-License-Identifier: Apache-2.0
// Blocks by class, and the bound. See block_pool.h.
#include "device/block_pool.h"

#include <bit>
#include <string>
#include <utility>

namespace parallax {

BlockPool::~BlockPool() { release_unused(); }

uint32_t BlockPool::class_of(uint64_t bytes) {
  const auto bits = static_cast<uint32_t>(std::bit_width(bytes - 1));
  return bits <= kSmallestBits ? 0 : bits - kSmallestBits;
}

void BlockPool::release_unused() {
  for (uint32_t i = 0; i < kClasses; ++i) {
    Class& blocks = classes_[i];
    for (std::byte* memory : blocks.unused) {
      source_.release(memory);
      bytes_held_ -= uint64_t{1} << (kSmallestBits + i);
    }
    blocks.held -= blocks.unused.size();
    blocks.unused.clear();
  }
}

Status BlockPool::grow(uint64_t block_bytes, Class* blocks) {
  // Before there is memory that could be lost, and so that what comes back always has room.
  blocks->unused.reserve(blocks->held + 1);
  std::byte* memory = nullptr;
  PARALLAX_RETURN_IF_ERROR(source_.allocate(block_bytes, &memory));
  blocks->unused.push_back(memory);
  ++blocks->held;
  bytes_held_ += block_bytes;
  ++growth_count_;
  return {};
}

Status BlockPool::take(uint64_t bytes, MemoryBlock* block) {
  const uint32_t size_class = class_of(bytes);
  const uint64_t block_bytes = uint64_t{1} << (kSmallestBits + size_class);
  const auto refuse = [&](const std::string& why) {
    return limit(std::to_string(bytes) + " " + source_.what + ": " + why);
  };
  if (size_class >= kClasses) return refuse("no machine has as much");
  Class& blocks = classes_[size_class];
  if (blocks.unused.empty()) {
    if (bytes_max_ != 0 && bytes_held_ + block_bytes > bytes_max_) release_unused();
    if (bytes_max_ != 0 && bytes_held_ + block_bytes > bytes_max_) {
      return refuse(std::to_string(bytes_in_use_) + " are in use, and " + source_.setting + " is " +
                    std::to_string(bytes_max_) + "; wait for earlier calls, or raise it")
          .about_field(source_.setting);
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

void BlockPool::give_back(const MemoryBlock& block) noexcept {
  if (block.memory == nullptr) return;
  bytes_in_use_ -= block.bytes;
  classes_[class_of(block.bytes)].unused.push_back(block.memory);
}

// ---- the two kinds

PinnedPool::PinnedPool(Devices& devices, uint64_t bytes_max)
    : BlockPool({.what = "bytes of pinned host memory",
                 .setting = "pinned_max_bytes",
                 .allocate =
                     [&devices](uint64_t bytes, std::byte** memory) {
                       return devices.allocate_pinned(bytes, memory);
                     },
                 .release = [&devices](std::byte* memory) { devices.release_pinned(memory); }},
                bytes_max) {}

Status ScratchPool::take(uint32_t device, uint64_t bytes, MemoryBlock* block) {
  auto pool = pools_.find(device);
  if (pool == pools_.end()) {
    auto made = std::make_unique<BlockPool>(
        BlockPool::Source{
            .what = "bytes of memory of device " + std::to_string(device),
            .setting = "device_scratch_max_bytes",
            .allocate =
                [this, device](uint64_t size, std::byte** memory) {
                  return devices_.allocate_scratch(device, size, memory);
                },
            .release = [this,
                        device](std::byte* memory) { devices_.release_scratch(device, memory); }},
        bytes_max_);
    pool = pools_.emplace(device, std::move(made)).first;
  }
  return pool->second->take(bytes, block);
}

uint64_t ScratchPool::bytes_in_use() const {
  uint64_t bytes = 0;
  for (const auto& [device, pool] : pools_) bytes += pool->bytes_in_use();
  return bytes;
}

}  // namespace parallax
