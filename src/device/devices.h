// SPDX-License-Identifier: Apache-2.0
// Devices: what the layers above see of a machine's accelerators: whose memory an address is, how
// far a stream of the caller's has come, and copies between a device's memory and the host's that
// follow it. No type of a device's own library shows here; libparallax_cuda.so implements it, and
// the tests do.
//
// A stream is the caller's, a `void*` as its library has it; null is the device's default stream.
// mark() notes the point that it has come to; copies that follow a mark begin when all that was put
// on the stream before is done. Copies run on queues of the implementation's own: those of one
// stream and direction in the order in which they were given, and a stream that is late holds up
// nobody else's. Nothing here waits for one: whoever began a batch asks poll(), and the `wake` of
// DeviceOptions says when it is worth to ask.
//
// Threads: one owner at a time, but for open, allocate, release and memory that is pinned, which
// any thread may. mark() concerns a stream as the calling thread names it. What opens, allocates or
// releases may block, and holds up no call of another thread meanwhile; so does drain(), and the
// end, which is to come on a thread that may wait. Nothing else blocks.
#ifndef PARALLAX_DEVICE_DEVICES_H_
#define PARALLAX_DEVICE_DEVICES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/number.h"
#include "base/status.h"
#include "device/communicator.h"
#include "device/table_queue.h"

namespace parallax {

// Where an address lies.
enum class MemoryPlace : uint8_t {
  kHost,    // of the process, or no device knows it
  kDevice,  // of a device
  kShared,  // of both: the driver moves it (managed memory)
  kUnknown  // the driver does not say
};

struct PlacedMemory {
  MemoryPlace place = MemoryPlace::kHost;
  uint32_t device = 0;
};

// Copies that end together. 0: none.
using DeviceBatch = uint32_t;

struct DeviceCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
};

enum class CopyDirection : uint8_t { kToHost, kToDevice };

// Numbers on a device that become those of another dtype there: f32, f16, bf16.
struct DeviceConversion {
  const std::byte* from = nullptr;
  uint32_t from_dtype = 0;
  std::byte* to = nullptr;
  uint32_t to_dtype = 0;
  uint64_t count = 0;
};

// Rows on a device.
struct RowsThere {
  const std::byte* ids = nullptr;
  const std::byte* values = nullptr;
  uint32_t count = 0;  // 1 or more
};

// Rows of a slice on a device, or of several as if they were one, to be coalesced there: those of
// one id are summed in float, in the order in which they occur. Ids of -1 are padding.
struct RowsToCoalesce {
  std::span<const RowsThere> slices;
  uint32_t id_bytes = 8;  // 4 or 8
  uint32_t count = 0;     // of all
  uint64_t table_rows = 0;
  uint32_t dtype = 0;  // F32, F16, BF16, F64
  uint32_t elements = 1;
  std::byte* scratch = nullptr;  // memory of the device, of coalesce_bytes()
  std::byte* counts = nullptr;   // pinned: CoalescedCounts
};

// What comes of them. What is `bad` or beyond `rows` says nothing.
struct CoalescedCounts {
  static constexpr uint32_t kNoneBad = UINT32_MAX;

  // The least position, counted over all slices, of an id that is neither padding nor a row.
  uint32_t bad = kNoneBad;
  uint32_t rows = 0;  // distinct
};
// Where in the scratch memory: first the counts, then ids in ascending order, as wide as they were,
// and sums in float; of several slices their ids and values, one slice's behind the other's; and
// what kernels work in.
struct CoalescePlaces {
  uint64_t ids_at = 0, sums_at = 0, given_ids_at = 0, given_values_at = 0, work_at = 0;
};
inline CoalescePlaces coalesce_places(const RowsToCoalesce& rows) {
  constexpr uint64_t kAlignment = 256;
  const auto aligned = [](uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  CoalescePlaces places;
  places.ids_at = aligned(sizeof(CoalescedCounts));
  places.sums_at = places.ids_at + aligned(uint64_t{rows.count} * rows.id_bytes);
  const uint64_t elements = uint64_t{rows.count} * rows.elements;
  places.work_at = places.sums_at + aligned(elements * sizeof(float));
  if (rows.slices.size() == 1) return places;
  places.given_ids_at = places.work_at;
  places.given_values_at = places.given_ids_at + aligned(uint64_t{rows.count} * rows.id_bytes);
  places.work_at = places.given_values_at + aligned(elements * bytes_of_dtype(rows.dtype));
  return places;
}

struct DeviceInfo {
  uint32_t number = 0;
  std::string name;
  std::string pci_bus_id;  // "0000:3b:00.0"
};

// What was found, for reports.
struct DeviceReport {
  std::string driver;       // "CUDA driver 13.0"
  std::string collectives;  // "NCCL 2.28.9"; empty: none, and collectives_why
  std::string collectives_why;
  std::vector<DeviceInfo> devices;
};

struct DeviceOptions {
  // Called from any thread, also of the driver's, after copies have ended. Does not block.
  std::function<void()> wake;
  // What a call of a communicator's that does not return gets before that is aborted under it.
  int64_t abort_after_ns = 0;
};

class Devices {
 public:
  virtual ~Devices() = default;

  // UNSUPPORTED: there is no such device, with those there are. The first time it takes a while.
  virtual Status open(uint32_t device) = 0;
  // Of a device that is open, or of the host; what it cannot tell it does not guess.
  virtual PlacedMemory place_of(const void* address) const = 0;

  // Of a device that is open. UNSUPPORTED: the stream is being captured into a graph, or belongs to
  // a context that is not the device's primary one; IO: the device's own error.
  virtual Status mark(uint32_t device, void* stream, DeviceMark* mark) = 0;
  virtual void release(DeviceMark mark) = 0;

  // Begins copies that follow the mark; of no copies it ends once the stream has come to the mark.
  // Host memory is pinned. IO, and what it throws: none is under way; *batch is 0.
  virtual Status copy(CopyDirection direction, DeviceMark mark, std::span<const DeviceCopy> copies,
                      DeviceBatch* batch) = 0;
  // Makes a stream of a device that is open wait for the end of a batch, which may be on another
  // device; 0: only asks whether it could. UNSUPPORTED: as mark(); IO.
  virtual Status follow(DeviceBatch batch, uint32_t device, void* stream) {
    static_cast<void>(batch), static_cast<void>(device), static_cast<void>(stream);
    return unsupported("no stream can be made to wait");
  }
  // Whether it has ended, well or not; one that has is gone. IO: it ended with the device's error.
  virtual Status poll(DeviceBatch batch, bool* ended) = 0;

  // Loads the kernels of a device, which is opened; it takes a while the first time. UNSUPPORTED:
  // there are none for it; IO.
  virtual Status prepare_kernels(uint32_t device) {
    static_cast<void>(device);
    return unsupported("there are no kernels");
  }
  // Scratch memory for coalescing rows on a device that is open. UNSUPPORTED: it has no kernels.
  virtual Status coalesce_bytes(uint32_t device, const RowsToCoalesce& rows, uint64_t* bytes) {
    static_cast<void>(rows), static_cast<void>(bytes);
    return prepare_kernels(device);
  }
  // Coalesces rows of the mark's device behind it, and copies their counts to the host; as copy().
  // Once the batch has ended, as many rows as the counts tell may be copied.
  virtual Status coalesce(DeviceMark mark, std::span<const RowsToCoalesce> all,
                          DeviceBatch* batch) {
    static_cast<void>(mark), static_cast<void>(all);
    *batch = 0;
    return unsupported("there are no kernels");
  }

  // Converts on the mark's device, whose kernels are loaded, behind the mark; as copy(), in whose
  // order it runs.
  virtual Status convert(CopyDirection direction, DeviceMark mark,
                         std::span<const DeviceConversion> each, DeviceBatch* batch) {
    static_cast<void>(direction), static_cast<void>(mark), static_cast<void>(each);
    *batch = 0;
    return unsupported("there are no kernels");
  }

  // Waits until all batches have ended, for at most timeout_ns; false: they have not.
  virtual bool drain(int64_t timeout_ns) = 0;

  // Host memory that a device reads and writes by itself. LIMIT.
  virtual Status allocate_pinned(uint64_t bytes, std::byte** memory) = 0;
  // It is given back soon: that may have to wait for the device, which the caller does not.
  virtual void release_pinned(std::byte* memory) noexcept = 0;
  // Memory of a device that is open, for what the library does there; whatever is in it. LIMIT, IO.
  virtual Status allocate_scratch(uint32_t device, uint64_t bytes, std::byte** memory) {
    static_cast<void>(bytes), static_cast<void>(memory);
    return unsupported("device " + std::to_string(device) + " has no scratch memory");
  }
  // As release_pinned().
  virtual void release_scratch(uint32_t device, std::byte* memory) noexcept {
    static_cast<void>(device), static_cast<void>(memory);
  }
  // Memory of a device, zeros. UNSUPPORTED, LIMIT, IO.
  virtual Status allocate(uint32_t device, uint64_t bytes, void** memory) = 0;
  virtual void release(uint32_t device, void* memory) = 0;
  // The same, of memory that ranks can register together (Communicator::register_windows).
  // UNSUPPORTED: the library of collectives has none.
  virtual Status allocate_symmetric(uint32_t device, uint64_t bytes, void** memory) {
    static_cast<void>(bytes), static_cast<void>(memory);
    return unsupported("device " + std::to_string(device) + " has no memory that ranks share");
  }
  virtual void release_symmetric(uint32_t device, void* memory) { release(device, memory); }

  virtual DeviceReport report() const = 0;

  // ---- reductions among the devices of several ranks
  virtual CollectiveSupport collectives() const { return {}; }
  // By one rank, for all. Takes a while. UNSUPPORTED, IO.
  virtual Status make_id(CommunicatorId* id) {
    static_cast<void>(id);
    return unsupported("there is no communicator");
  }
  // Begins to form one, which does not outlive this. OK and null: the device is opened meanwhile,
  // and `wake` says when to call again. UNSUPPORTED, IO.
  virtual Status form(const CommunicatorOptions& options,
                      std::unique_ptr<Communicator>* communicator) {
    static_cast<void>(options);
    communicator->reset();
    return unsupported("there is no communicator");
  }

  // ---- tables in a device's memory
  // On the device of that place, counted on over those that there are; the queue does not outlive
  // this. The first one of a device loads its kernels, which takes a while. UNSUPPORTED, LIMIT, IO.
  virtual Status form_table(uint32_t place, std::unique_ptr<TableQueue>* queue) {
    static_cast<void>(place);
    queue->reset();
    return unsupported("there are no tables on devices");
  }
};

}  // namespace parallax

#endif  // PARALLAX_DEVICE_DEVICES_H_
