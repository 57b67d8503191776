// SPDX-License-Identifier: Apache-2.0
// FakeDevices: devices whose streams and copies move when the test says so. Memory of a device has
// addresses that nobody can read, so that whoever takes them for the host's crashes; read() and
// write() reach it. A copy reads and writes when it runs, not when it is ordered, and not before
// the stream that it follows has come to its mark. One thread.
#ifndef PARALLAX_TESTS_SUPPORT_FAKE_DEVICES_H_
#define PARALLAX_TESTS_SUPPORT_FAKE_DEVICES_H_

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/block_pool.h"
#include "device/device_share.h"
#include "device/devices.h"

namespace parallax::testkit {

// A stream of the caller's. Held, it does not come to marks.
struct FakeStream {
  bool held = false;
  bool capturing = false;
};

class FakeDevices : public Devices {
 public:
  explicit FakeDevices(uint32_t count = 2) : count_(count) {}
  ~FakeDevices() override {
    for (const auto& [first, block] : blocks_) munmap(const_cast<void*>(first), block.bytes);
    for (const std::byte* each : pinned_) delete[] each;
  }

  // ---- the test's side
  // Copies run as they are asked for, unless they are held.
  bool copies_held = false;
  bool hold_to_device = false;  // those to a device alone
  // What the next copy ordered, or the next that runs, ends with.
  Status refuse_next_copy, fail_next_copy;
  Status refuse_pinning;

  template <typename T>
  T* make(const std::vector<T>& values, uint32_t device = 0) {
    void* memory = nullptr;
    EXPECT_TRUE(allocate(device, std::max<size_t>(1, values.size() * sizeof(T)), &memory).ok());
    write(memory, values);
    return static_cast<T*>(memory);
  }
  template <typename T>
  void write(void* to, const std::vector<T>& values) {
    if (!values.empty()) std::memcpy(reach(to), values.data(), values.size() * sizeof(T));
  }
  template <typename T>
  std::vector<T> read(const T* from, size_t count) {
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), reach(from), count * sizeof(T));
    return values;
  }
  size_t marks() const { return marks_.size(); }
  size_t batches() const { return batches_.size(); }
  size_t pinned() const { return pinned_.size(); }

  // ---- Devices
  Status open(uint32_t device) override {
    if (device < count_) return {};
    return unsupported("device is " + std::to_string(device) + ", and there are " +
                       std::to_string(count_));
  }
  PlacedMemory place_of(const void* address) const override {
    const Block* block = block_of(address);
    if (block == nullptr) return {};
    return {MemoryPlace::kDevice, block->device};
  }
  Status mark(uint32_t device, void* stream, DeviceMark* mark) override {
    auto* of_caller = static_cast<FakeStream*>(stream);
    if (of_caller != nullptr && of_caller->capturing) return unsupported("it is being captured");
    marks_.emplace(numbers_ + 1, Mark{device, of_caller});
    *mark = ++numbers_;
    return {};
  }
  void release(DeviceMark mark) override { EXPECT_EQ(marks_.erase(mark), 1u); }
  // Where it throws, nothing has begun.
  Status copy(CopyDirection direction, DeviceMark mark, std::span<const DeviceCopy> copies,
              DeviceBatch* batch) override {
    *batch = 0;
    if (!refuse_next_copy.ok()) return std::exchange(refuse_next_copy, {});
    const bool to_device = direction == CopyDirection::kToDevice;
    batches_.emplace(numbers_ + 1, Batch{.stream = marks_.at(mark).stream,
                                         .copies = {copies.begin(), copies.end()},
                                         .to_device = to_device});
    *batch = ++numbers_;
    return {};
  }
  Status poll(DeviceBatch batch, bool* ended) override {
    const Batch& asked = batches_.at(batch);
    *ended = !copies_held && !(asked.to_device && hold_to_device) &&
             (asked.stream == nullptr || !asked.stream->held);
    if (!*ended) return {};
    const Status status = std::exchange(fail_next_copy, {});
    if (status.ok()) {
      for (const DeviceCopy& each : asked.copies) {
        std::memcpy(reach(each.to), reach(each.from), each.bytes);
      }
    }
    batches_.erase(batch);
    return status;
  }
  bool drain(int64_t) override { return batches_.empty() || !(copies_held || hold_to_device); }
  Status allocate_pinned(uint64_t bytes, std::byte** memory) override {
    if (!refuse_pinning.ok()) return refuse_pinning;
    auto made = std::make_unique<std::byte[]>(bytes);
    pinned_.insert(made.get());
    *memory = made.release();
    return {};
  }
  void release_pinned(std::byte* memory) noexcept override {
    EXPECT_EQ(pinned_.erase(memory), 1u);
    delete[] memory;
  }
  Status allocate(uint32_t device, uint64_t bytes, void** memory) override {
    void* const first = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (first == MAP_FAILED) return limit("mmap");
    blocks_[first] = {device, bytes, std::vector<std::byte>(bytes)};
    *memory = first;
    return {};
  }
  void release(uint32_t, void* memory) override {
    munmap(memory, blocks_.at(memory).bytes);
    blocks_.erase(memory);
  }
  DeviceReport report() const override {
    DeviceReport fake;
    fake.driver = "fake";
    return fake;
  }

 private:
  struct Block {
    uint32_t device = 0;
    uint64_t bytes = 0;
    std::vector<std::byte> content;
  };
  struct Mark {
    uint32_t device = 0;
    FakeStream* stream = nullptr;
  };
  struct Batch {
    FakeStream* stream = nullptr;
    std::vector<DeviceCopy> copies;
    bool to_device = false;
  };

  const Block* block_of(const void* address) const {
    auto at = blocks_.upper_bound(address);
    if (at == blocks_.begin()) return nullptr;
    --at;
    const auto* first = static_cast<const std::byte*>(at->first);
    return static_cast<const std::byte*>(address) < first + at->second.bytes ? &at->second
                                                                             : nullptr;
  }
  // Where the bytes are.
  std::byte* reach(const void* address) {
    auto* block = const_cast<Block*>(block_of(address));
    if (block == nullptr) return static_cast<std::byte*>(const_cast<void*>(address));
    const auto* first =
        static_cast<const std::byte*>(std::prev(blocks_.upper_bound(address))->first);
    return block->content.data() + (static_cast<const std::byte*>(address) - first);
  }

  const uint32_t count_;
  uint32_t numbers_ = 0;
  std::map<const void*, Block> blocks_;
  std::map<DeviceMark, Mark> marks_;
  std::map<DeviceBatch, Batch> batches_;
  std::set<std::byte*> pinned_;
};

// Devices of one rank, with their pinned memory.
struct FakeShare {
  explicit FakeShare(uint64_t pinned_max_bytes = 0) : pinned(devices, pinned_max_bytes) {}
  FakeDevices devices;
  PinnedPool pinned;
  OpenDevices opener() {
    return [this](DeviceShare* share) {
      *share = {&devices, &pinned};
      return Status();
    };
  }
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_FAKE_DEVICES_H_
