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
  return memory.buffer.range;
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
  const Status said = borrower(range);
  if (said.ok()) return {};
  if (said.code() != PARALLAX_STATE) {
    const char* const again = said.code() == PARALLAX_TIMEOUT ? ", and may be tried again: " : ": ";
    return said
        .reworded(std::string(call) + ": the " + shown(range) + " stay" + again + said.message())
        .about_field("pointer");
  }
  return bad_state(std::string(call) + ": " + said.message() + " borrows of the " + shown(range) +
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
  DeviceMemory& memory = kept[0];
  memory.devices = share.devices;
  memory.buffer.device = options.device;
  Status made = unsupported("");
  if (options.symmetric != 0 && share.collectives) {
    made = share.devices->allocate_symmetric(options.device, bytes, pointer);
    memory.buffer.symmetric = made.ok();
  }
  // No library for it: ordinary memory serves, and says when there is no such device.
  if (made.code() == PARALLAX_UNSUPPORTED) {
    made = share.devices->allocate(options.device, bytes, pointer);
  }
  if (!made.ok()) {
    const bool no_device = made.code() == PARALLAX_UNSUPPORTED;
    return made.prefixed("buffer_alloc: ").about_field(no_device ? "device" : "bytes");
  }
  OnDevices::node_type made_room = kept.extract(kept.begin());
  made_room.mapped().buffer.range = ByteRange::at(*pointer, bytes);
  made_room.key() = made_room.mapped().buffer.range.first;
  const MutexLock lock(mutex_);
  on_devices_.insert(std::move(made_room));
  return {};
}

void Buffers::DeviceMemory::release() const {
  auto* const memory = reinterpret_cast<void*>(buffer.range.first);
  buffer.symmetric ? devices->release_symmetric(buffer.device, memory)
                   : devices->release(buffer.device, memory);
}

Status Buffers::check_kept(const DeviceMemory& memory) const {
  if (memory.kept == 0) return {};
  return bad_state("buffer_free: variable '" + memory.variable +
                   "' has its place (place_values, place_into) in the " +
                   shown(memory.buffer.range) +
                   ", which stay until the job is closed and go with it")
      .about_field("pointer");
}

// Another thread may have registered a variable there since the first look.
Status Buffers::free_on_device(uintptr_t first, bool* found) {
  DeviceMemory freed;
  {
    const MutexLock lock(mutex_);
    const auto at = on_devices_.find(first);
    *found = at != on_devices_.end();
    if (!*found) return {};
    PARALLAX_RETURN_IF_ERROR(check_kept(at->second));
    freed = std::move(at->second);
    on_devices_.erase(at);
  }
  // Without the lock: it waits for what the device still does with it.
  freed.release();
  return {};
}

Buffers::DeviceMemory* Buffers::on_device_around(const ByteRange& bytes) {
  const ByteRange found = overlapped(on_devices_, {bytes.first, 1});
  const bool all =
      found.bytes >= bytes.bytes && bytes.first - found.first <= found.bytes - bytes.bytes;
  return all ? &on_devices_.at(found.first) : nullptr;
}

bool Buffers::keep(const ByteRange& bytes, const std::string& variable, DeviceBuffer* buffer) {
  const MutexLock lock(mutex_);
  DeviceMemory* const memory = on_device_around(bytes);
  if (memory == nullptr) return false;
  if (memory->kept == 0) memory->variable = variable;
  ++memory->kept;
  *buffer = memory->buffer;
  return true;
}

void Buffers::let_go(const ByteRange& bytes) {
  const MutexLock lock(mutex_);
  DeviceMemory* const memory = on_device_around(bytes);
  if (memory != nullptr) --memory->kept;
}

std::function<void()> Buffers::give_up_devices() {
  OnDevices all;
  {
    const MutexLock lock(mutex_);
    all.swap(on_devices_);
  }
  return [all = std::move(all)] {
    for (const auto& [first, each] : all) each.release();
  };
}

Status Buffers::allocate(uint64_t bytes, const parallax_buffer_options_t& options,
                         const Places& places, void** pointer) {
  if (options.memory > PARALLAX_MEMORY_CUDA) {
    return invalid("buffer_alloc: memory is " + std::to_string(options.memory) +
                   "; it must be PARALLAX_MEMORY_HOST or PARALLAX_MEMORY_CUDA")
        .about_field("memory");
  }
  if (options.symmetric > 1 || (options.symmetric == 1 && options.memory == PARALLAX_MEMORY_HOST)) {
    return invalid("buffer_alloc: symmetric is " + std::to_string(options.symmetric) +
                   (options.symmetric > 1 ? "; it must be 0 or 1"
                                          : ", and memory is PARALLAX_MEMORY_HOST, of which there "
                                            "is none such; leave it zero"))
        .about_field("symmetric");
  }
  if (options.reserved != 0) {
    return unsupported("buffer_alloc: reserved is not 0; load a newer libparallax")
        .about_field("reserved");
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
    if (on_device != on_devices_.end()) {
      PARALLAX_RETURN_IF_ERROR(check_kept(on_device->second));
    }
    range = found != allocated_.end() ? found->second.range() : on_device->second.buffer.range;
  }
  PARALLAX_RETURN_IF_ERROR(check_borrower("buffer_free", "and free", range, borrower));
  bool on_device = false;
  const Status freed_there = free_on_device(first, &on_device);
  if (on_device) return freed_there;
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
  for (const auto& [first, memory] : on_devices_) on_devices += memory.buffer.range.bytes;
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
