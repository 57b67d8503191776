// SPDX-License-Identifier: Apache-2.0
// What is known, and what is refused by name. See buffers.h.
#include "job/buffers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace parallax {

namespace {

std::string shown(uintptr_t address) {
  std::array<char, 24> text;
  std::snprintf(text.data(), text.size(), "0x%jx", static_cast<uintmax_t>(address));
  return text.data();
}

std::string shown(const ByteRange& range) {
  return std::to_string(range.bytes) + " bytes at " + shown(range.first);
}

ByteRange range_of(const BufferMemory& memory) { return memory.range(); }
ByteRange range_of(const ByteRange& range) { return range; }
template <typename Memory>
ByteRange range_of(const Memory& memory) {
  return memory.range;
}

// The range of a map that overlaps; of none, no bytes. Those of one map do not overlap one another.
template <typename Map>
ByteRange overlapped(const Map& map, const ByteRange& range) {
  // The last that begins before the range ends.
  auto at = map.lower_bound(range.first + range.bytes);
  if (at == map.begin()) return {};
  const ByteRange found = range_of((--at)->second);
  return found.overlaps(range) ? found : ByteRange();
}

// Walks the kernel's list of what is mapped, not the pages: MS_ASYNC writes nothing.
bool is_mapped(const ByteRange& range) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = range.first / page * page;
  const uint64_t bytes = range.first - first + range.bytes;
  return msync(reinterpret_cast<void*>(first), bytes, MS_ASYNC) == 0 || errno != ENOMEM;
}

Status wrong(const std::string& sentence) { return invalid(sentence).about_field("pointer"); }

Status check_borrower(const char* call, const char* then, const ByteRange& range,
                      const Buffers::Borrower& borrower) {
  const std::string who = borrower(range);
  if (who.empty()) return {};
  return bad_state(std::string(call) + ": " + who + " borrows of the " + shown(range) +
                   "; wait for it, " + then + " it then")
      .about_field("pointer");
}

}  // namespace

// ---- of the job

Status Buffers::allocate_on_device(uint64_t bytes, const parallax_buffer_options_t& options,
                                   const OpenDevices& devices, void** pointer) {
  if (bytes == 0) return invalid("buffer_alloc: bytes is 0").about_field("bytes");
  const bool node = options.numa_node != 0;
  if (node || options.huge_pages != 0) {
    return invalid(std::string("buffer_alloc: ") + (node ? "numa_node" : "huge_pages") +
                   " is of host memory, and memory is PARALLAX_MEMORY_CUDA; leave it zero")
        .about_field(node ? "numa_node" : "huge_pages");
  }
  DeviceShare share;
  const Status open = devices(&share);
  if (!open.ok()) {
    return open
        .prefixed("buffer_alloc: memory is PARALLAX_MEMORY_CUDA, and no device can be used: ")
        .about_field("memory");
  }
  // Before there is memory that could be lost.
  OnDevices kept;
  kept.emplace(0, DeviceMemory{{}, options.device, share.devices});
  const Status made = share.devices->allocate(options.device, bytes, pointer);
  if (!made.ok()) {
    const bool no_device = made.code() == PARALLAX_UNSUPPORTED;
    return made.prefixed("buffer_alloc: ").about_field(no_device ? "device" : "bytes");
  }
  OnDevices::node_type made_room = kept.extract(kept.begin());
  made_room.mapped().range = ByteRange::at(*pointer, bytes);
  made_room.key() = made_room.mapped().range.first;
  const MutexLock lock(mutex_);
  on_devices_.insert(std::move(made_room));
  return {};
}

bool Buffers::free_on_device(uintptr_t first) {
  DeviceMemory freed;
  {
    const MutexLock lock(mutex_);
    const auto found = on_devices_.find(first);
    if (found == on_devices_.end()) return false;
    freed = found->second;
    on_devices_.erase(found);
  }
  // Without the lock: it waits for what the device still does with it.
  freed.devices->release(freed.device, reinterpret_cast<void*>(first));
  return true;
}

std::function<void()> Buffers::give_up_devices() {
  OnDevices all;
  {
    const MutexLock lock(mutex_);
    all.swap(on_devices_);
  }
  return [all = std::move(all)] {
    for (const auto& [first, each] : all) {
      each.devices->release(each.device, reinterpret_cast<void*>(first));
    }
  };
}

Status Buffers::allocate(uint64_t bytes, const parallax_buffer_options_t& options,
                         const Places& places, void** pointer) {
  if (options.memory > PARALLAX_MEMORY_CUDA) {
    return invalid("buffer_alloc: memory is " + std::to_string(options.memory) +
                   "; it must be PARALLAX_MEMORY_HOST or PARALLAX_MEMORY_CUDA")
        .about_field("memory");
  }
  if (options.memory == PARALLAX_MEMORY_CUDA) {
    return allocate_on_device(bytes, options, places.devices, pointer);
  }
  BufferMemory memory;
  PARALLAX_RETURN_IF_ERROR(BufferMemory::make(bytes, options, places.binding, &memory));
  void* const base = memory.base();
  const SharedMemory shared = memory.shared();
  Allocated made;  // what may throw comes before others know of the memory
  made.emplace(memory.range().first, std::move(memory));
  if (neighbours_.share) neighbours_.share(shared);
  const MutexLock lock(mutex_);
  allocated_.merge(made);
  *pointer = base;
  return {};
}

Status Buffers::no_buffer(uintptr_t first) const {
  ByteRange around = overlapped(allocated_, {first, 1});
  if (around.bytes == 0) around = overlapped(on_devices_, {first, 1});
  if (around.bytes > 0) {
    return wrong("buffer_free: pointer lies " + std::to_string(first - around.first) +
                 " bytes into a buffer of " + shown(around) + "; give where it begins");
  }
  if (overlapped(registered_, {first, 1}).bytes > 0) {
    return wrong(
        "buffer_free: pointer is memory of the caller that buffer_register named; end "
        "that by buffer_unregister, and free it as it was allocated");
  }
  return wrong(
      "buffer_free: no buffer of this job begins at pointer: it is another job's, was "
      "freed, or is not of buffer_alloc");
}

Status Buffers::free(void* pointer, const Borrower& borrower) {
  const auto first = reinterpret_cast<uintptr_t>(pointer);
  ByteRange range;
  {
    const MutexLock lock(mutex_);
    const auto found = allocated_.find(first);
    const auto on_device = on_devices_.find(first);
    if (found == allocated_.end() && on_device == on_devices_.end()) return no_buffer(first);
    range = found != allocated_.end() ? found->second.range() : on_device->second.range;
  }
  PARALLAX_RETURN_IF_ERROR(check_borrower("buffer_free", "and free", range, borrower));
  if (free_on_device(first)) return {};
  BufferMemory freed;  // unmapped without the lock
  {
    const MutexLock lock(mutex_);
    const auto found = allocated_.find(first);
    // Another thread freed it meanwhile.
    if (found == allocated_.end()) return no_buffer(first);
    freed = std::move(found->second);
    allocated_.erase(found);
  }
  if (neighbours_.unshare) neighbours_.unshare(pointer);
  return {};
}

// ---- of the caller

Status Buffers::add(void* pointer, uint64_t bytes) {
  if (pointer == nullptr) return wrong("buffer_register: pointer is null");
  if (bytes == 0) return invalid("buffer_register: bytes is 0").about_field("bytes");
  const ByteRange range = ByteRange::at(pointer, bytes);
  if (bytes > UINTPTR_MAX - range.first) {
    return invalid("buffer_register: " + shown(range) + " end past the last address")
        .about_field("bytes");
  }
  if (!is_mapped(range)) {
    return wrong("buffer_register: of the " + shown(range) + " some are not mapped");
  }
  const MutexLock lock(mutex_);
  const ByteRange ours = overlapped(allocated_, range);
  if (ours.bytes > 0) {
    return wrong("buffer_register: the " + shown(range) + " overlap the " + shown(ours) +
                 " of buffer_alloc, which need no registration");
  }
  const ByteRange before = overlapped(registered_, range);
  if (before.bytes > 0) {
    return wrong("buffer_register: the " + shown(range) + " overlap " + shown(before) +
                 ", which are registered; unregister those first");
  }
  registered_.emplace(range.first, range);
  return {};
}

Status Buffers::not_registered(uintptr_t first) const {
  const ByteRange around = overlapped(registered_, {first, 1});
  if (around.bytes > 0) {
    return wrong("buffer_unregister: pointer lies " + std::to_string(first - around.first) +
                 " bytes into " + shown(around) + ", which were registered as one; give where " +
                 "they begin");
  }
  if (overlapped(allocated_, {first, 1}).bytes > 0) {
    return wrong("buffer_unregister: pointer is of buffer_alloc, and was never registered; " +
                 std::string("buffer_free frees it"));
  }
  return wrong(
      "buffer_unregister: nothing is registered at pointer: it was unregistered, or never "
      "registered with this job");
}

Status Buffers::remove(void* pointer, const Borrower& borrower) {
  const auto first = reinterpret_cast<uintptr_t>(pointer);
  ByteRange range;
  {
    const MutexLock lock(mutex_);
    const auto found = registered_.find(first);
    if (found == registered_.end()) return not_registered(first);
    range = found->second;
  }
  PARALLAX_RETURN_IF_ERROR(check_borrower("buffer_unregister", "and unregister", range, borrower));
  const MutexLock lock(mutex_);
  return registered_.erase(first) > 0 ? Status() : not_registered(first);
}

ByteRange Buffers::around(const void* address) const {
  const ByteRange byte = ByteRange::at(address, 1);
  const MutexLock lock(mutex_);
  const ByteRange found = overlapped(on_devices_, byte);
  return found.bytes > 0 ? found : overlapped(registered_, byte);
}

// ---- the report

std::string Buffers::json(const PeerMemoryCounts& neighbours) const {
  uint64_t allocated = 0, touched = 0, registered = 0;
  const MutexLock lock(mutex_);
  for (const auto& [first, memory] : allocated_) {
    allocated += memory.range().bytes;
    touched += memory.touched_bytes();
  }
  for (const auto& [first, range] : registered_) registered += range.bytes;
  uint64_t on_devices = 0;
  for (const auto& [first, memory] : on_devices_) on_devices += memory.range.bytes;
  return nlohmann::json{
      {"allocated", allocated_.size()}, {"allocated_bytes", allocated},
      {"touched_bytes", touched},       {"registered", registered_.size()},
      {"registered_bytes", registered}, {"on_devices", on_devices_.size()},
      {"on_devices_bytes", on_devices}, {"shared", neighbours.shared},
      {"mapped", neighbours.mapped},    {"mapped_bytes", neighbours.mapped_bytes},
      {"refused", neighbours.refused},  {"refused_by_others", neighbours.refused_us}}
      .dump();
}

}  // namespace parallax
