// SPDX-License-Identifier: Apache-2.0
// Buffers: the memory that a job knows of beside its variables: what parallax_buffer_alloc made,
// which is the job's until it is freed or the job is gone, and what parallax_buffer_register names,
// which stays the caller's. Of the whole job: its parts share them.
//
// Host memory of buffer_alloc is made known to the host's ranks (Neighbours) before its pointer is
// given away, and taken back before it is unmapped.
//
// What a pending request borrows is asked when a buffer is to go (Borrower), so that no call of a
// step has to look anything up here.
//
// Memory of a device that a variable's place lies in stays until the job ends (BufferKeeper).
//
// Any thread. The lock is never held while the kernel maps or unmaps, nor while neighbours are told
// or a borrower is looked for.
#ifndef PARALLAX_JOB_BUFFERS_H_
#define PARALLAX_JOB_BUFFERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/binding.h"
#include "base/byte_range.h"
#include "base/device_buffer.h"
#include "base/mutex.h"
#include "base/status.h"
#include "device/device_share.h"
#include "job/buffer_memory.h"
#include "parallax/parallax.h"
#include "transport/peer_memory.h"

namespace parallax {

class Buffers : public BufferKeeper {
 public:
  // Lets go of the bytes wherever the job has them in use. STATE: a pending request borrows some,
  // and the sentence is its name; IO: a library did not let go, and why.
  using Borrower = std::function<Status(ByteRange bytes)>;

  // Where memory comes from: the host's nodes, and devices.
  struct Places {
    Binding& binding;
    OpenDevices devices;
  };

  // Who may map what is allocated. Null functions: nobody.
  struct Neighbours {
    std::function<void(const SharedMemory& memory)> share;
    std::function<void(const void* base)> unshare;
  };
  // Before anything is allocated.
  void share_with(Neighbours neighbours) { neighbours_ = std::move(neighbours); }

  // On OK *pointer is a buffer's first byte. As BufferMemory::make, or Devices::allocate.
  Status allocate(uint64_t bytes, const parallax_buffer_options_t& options, const Places& places,
                  void** pointer) PARALLAX_EXCLUDES(mutex_);
  // STATE: it is borrowed, and stays, as where the borrower says IO. INVALID: no buffer begins
  // there.
  Status free(void* pointer, const Borrower& borrower) PARALLAX_EXCLUDES(mutex_);

  // INVALID: null, empty, not mapped, or known already in part.
  Status add(void* pointer, uint64_t bytes) PARALLAX_EXCLUDES(mutex_);
  // As free.
  Status remove(void* pointer, const Borrower& borrower) PARALLAX_EXCLUDES(mutex_);

  // The whole buffer of a device's memory, or of what the program has registered, that an address
  // lies in; of no bytes: there is none.
  ByteRange around(const void* address) const PARALLAX_EXCLUDES(mutex_);

  // Keeps memory of a device until it goes: free() answers STATE, with the variable.
  bool keep(const ByteRange& bytes, const std::string& variable, DeviceBuffer* buffer) override
      PARALLAX_EXCLUDES(mutex_);
  void let_go(const ByteRange& bytes) override PARALLAX_EXCLUDES(mutex_);

  // The devices are about to go, and their memory with them: what gives it back, which waits for
  // them and needs nothing of this.
  std::function<void()> give_up_devices() PARALLAX_EXCLUDES(mutex_);

  // {"allocated", "allocated_bytes", "touched_bytes", "registered", "registered_bytes",
  //  "on_devices", "on_devices_bytes", and what the host's ranks share: "shared", "mapped",
  //  "mapped_bytes", "refused", "refused_by_others"}
  std::string json(const PeerMemoryCounts& neighbours = {}) const PARALLAX_EXCLUDES(mutex_);

 private:
  // By their first byte.
  using Allocated = std::map<uintptr_t, BufferMemory>;
  using Registered = std::map<uintptr_t, ByteRange>;
  struct DeviceMemory {
    DeviceBuffer buffer;
    Devices* devices = nullptr;
    uint32_t kept = 0;     // by variables
    std::string variable;  // the first of these

    void release() const;
  };
  using OnDevices = std::map<uintptr_t, DeviceMemory>;

  Status allocate_on_device(uint64_t bytes, const parallax_buffer_options_t& options,
                            const OpenDevices& devices, void** pointer) PARALLAX_EXCLUDES(mutex_);
  Status free_on_device(uintptr_t first, bool* found) PARALLAX_EXCLUDES(mutex_);
  Status check_kept(const DeviceMemory& memory) const PARALLAX_REQUIRES(mutex_);
  DeviceMemory* on_device_around(const ByteRange& bytes) PARALLAX_REQUIRES(mutex_);

  Status no_buffer(uintptr_t first) const PARALLAX_REQUIRES(mutex_);
  Status not_registered(uintptr_t first) const PARALLAX_REQUIRES(mutex_);

  Neighbours neighbours_;  // set before there are other threads
  mutable Mutex mutex_;
  Allocated allocated_ PARALLAX_GUARDED_BY(mutex_);
  OnDevices on_devices_ PARALLAX_GUARDED_BY(mutex_);
  Registered registered_ PARALLAX_GUARDED_BY(mutex_);
};

}  // namespace parallax

#endif  // PARALLAX_JOB_BUFFERS_H_
