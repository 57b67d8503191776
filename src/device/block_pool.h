// SPDX-License-Identifier: Apache-2.0
// BlockPool: memory that takes long to get and to give back, in blocks of powers of two. Blocks
// that come back are kept, and the pool grows to what was in use at once; beyond its bound it first
// gives up blocks that nobody uses, then refuses. Two kinds: PinnedPool, of host memory that
// devices copy to and from by themselves, and ScratchPool, of a device's.
//
// Engine's owner only. take() may block where the pool has to grow; nothing waits for a device.
#ifndef PARALLAX_DEVICE_BLOCK_POOL_H_
#define PARALLAX_DEVICE_BLOCK_POOL_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/devices.h"

namespace parallax {

struct MemoryBlock {
  std::byte* memory = nullptr;  // null: none
  uint64_t bytes = 0;
};

class BlockPool {
 public:
  // The smallest block.
  static constexpr uint32_t kSmallestBits = 16;
  static constexpr uint64_t kSmallestBytes = uint64_t{1} << kSmallestBits;

  struct Source {
    std::string what;               // "bytes of pinned host memory"
    const char* setting = nullptr;  // of the bound
    std::function<Status(uint64_t bytes, std::byte** memory)> allocate;
    std::function<void(std::byte* memory)> release;  // does not throw
  };

  // bytes_max: in all. 0: no bound.
  BlockPool(Source source, uint64_t bytes_max)
      : source_(std::move(source)), bytes_max_(bytes_max) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // At least so many bytes, 1 or more. LIMIT: beyond the bound, or the machine has no more.
  Status take(uint64_t bytes, MemoryBlock* block);
  void give_back(const MemoryBlock& block) noexcept;
  // A device may still write to it: its memory is not used again, and not released.
  void abandon(const MemoryBlock& block) noexcept {
    bytes_in_use_ -= block.bytes;
    --classes_[class_of(block.bytes)].held;
  }

  // What take() takes of the bound for so many bytes, and whether so much is not in use.
  static uint64_t block_bytes(uint64_t bytes) {
    return bytes == 0 ? 0 : kSmallestBytes << class_of(bytes);
  }
  bool has_room(uint64_t bytes) const {
    return bytes_max_ == 0 || bytes <= bytes_max_ - std::min(bytes_max_, bytes_in_use_);
  }
  uint64_t bytes_in_use() const { return bytes_in_use_; }
  uint64_t bytes_held() const { return bytes_held_; }
  // Blocks that had to be made.
  uint64_t growth_count() const { return growth_count_; }

 private:
  static constexpr uint32_t kClasses = 47 - kSmallestBits;

  // Blocks of one size.
  struct Class {
    std::vector<std::byte*> unused;  // with room for all
    size_t held = 0;
  };

  static uint32_t class_of(uint64_t bytes);
  void release_unused();
  Status grow(uint64_t block_bytes, Class* blocks);

  const Source source_;
  const uint64_t bytes_max_;
  std::array<Class, kClasses> classes_;
  uint64_t bytes_in_use_ = 0;
  uint64_t bytes_held_ = 0;
  uint64_t growth_count_ = 0;
};

class PinnedPool : public BlockPool {
 public:
  // `devices` outlives this. 0: no bound.
  PinnedPool(Devices& devices, uint64_t bytes_max);
};

// Pools of the memory of each device, which has a bound of its own.
class ScratchPool {
 public:
  // `devices` outlives this. 0: there is no scratch memory.
  ScratchPool(Devices& devices, uint64_t bytes_max_each)
      : devices_(devices), bytes_max_(bytes_max_each) {}

  bool any() const { return bytes_max_ > 0; }
  Status take(uint32_t device, uint64_t bytes, MemoryBlock* block);
  void give_back(uint32_t device, const MemoryBlock& block) noexcept {
    pools_.find(device)->second->give_back(block);
  }
  void abandon(uint32_t device, const MemoryBlock& block) noexcept {
    pools_.find(device)->second->abandon(block);
  }
  uint64_t bytes_in_use() const;

 private:
  Devices& devices_;
  const uint64_t bytes_max_;
  std::map<uint32_t, std::unique_ptr<BlockPool>> pools_;
};

}  // namespace parallax

#endif  // PARALLAX_DEVICE_BLOCK_POOL_H_
