// SPDX-License-Identifier: Apache-2.0
// PinnedPool: host memory that devices copy to and from by themselves, in blocks of powers of two.
// To pin memory takes milliseconds, so blocks that come back are kept, and the pool grows to what
// was in use at once; beyond its bound it first gives up blocks that nobody uses, then refuses.
//
// Engine's owner only. take() may block where the pool has to grow; nothing waits for a device.
#ifndef PARALLAX_DEVICE_PINNED_POOL_H_
#define PARALLAX_DEVICE_PINNED_POOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "device/devices.h"

namespace parallax {

struct PinnedBlock {
  std::byte* memory = nullptr;  // null: none
  uint64_t bytes = 0;
};

class PinnedPool {
 public:
  // `devices` outlives this; bytes_max: in all. 0: no bound.
  PinnedPool(Devices& devices, uint64_t bytes_max) : devices_(devices), bytes_max_(bytes_max) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // At least so many bytes, 1 or more. LIMIT: beyond the bound, or the machine has no more.
  Status take(uint64_t bytes, PinnedBlock* block);
  void give_back(const PinnedBlock& block) noexcept;
  // A device may still write to it: its memory is not used again, and not released.
  void abandon(const PinnedBlock& block) noexcept {
    bytes_in_use_ -= block.bytes;
    --classes_[class_of(block.bytes)].held;
  }

  uint64_t bytes_in_use() const { return bytes_in_use_; }
  uint64_t bytes_held() const { return bytes_held_; }
  // Blocks that had to be pinned.
  uint64_t growth_count() const { return growth_count_; }

 private:
  static constexpr uint32_t kSmallestBits = 16;
  static constexpr uint32_t kClasses = 47 - kSmallestBits;

  // Blocks of one size.
  struct Class {
    std::vector<std::byte*> unused;  // with room for all
    size_t held = 0;
  };

  static uint32_t class_of(uint64_t bytes);
  void release_unused();
  Status grow(uint64_t block_bytes, Class* blocks);

  Devices& devices_;
  const uint64_t bytes_max_;
  std::array<Class, kClasses> classes_;
  uint64_t bytes_in_use_ = 0;
  uint64_t bytes_held_ = 0;
  uint64_t growth_count_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_DEVICE_PINNED_POOL_H_
