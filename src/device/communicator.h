// SPDX-License-Identifier: Apache-2.0
// Communicator: this rank's part in reductions that the devices of several ranks do among
// themselves, in their memory. No type of the library behind it shows here.
//
// It forms by itself while advance() is called, then takes launches, one after the other, the same
// ones in the same order on every rank. Each begins on a stream of its own behind what the caller's
// streams held at the marks, and nothing here waits for it. What has failed stays so until abort(),
// after which all that was launched ends, with any result.
//
// One owner at a time. Only drain() and end() block, each for a bounded while.
#ifndef PARALLAX_DEVICE_COMMUNICATOR_H_
#define PARALLAX_DEVICE_COMMUNICATOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/byte_range.h"
#include "base/status.h"

namespace parallax {

// A point in the order of a stream. 0: none.
using DeviceMark = uint32_t;

// What the ranks of a communicator find each other by: made by one of them, told to all.
struct CommunicatorId {
  std::array<std::byte, 128> bytes = {};
};

// What a rank can do, compared by all.
// Which device it is, on its host: ranks of one host that say the same in either have the same one.
struct DeviceIdentity {
  std::string bus;   // empty: that says nothing to the library
  std::string uuid;  // of an instance, where a GPU is several; empty: it is not told
};

struct CollectiveSupport {
  bool there = false;
  uint32_t library_version = 0;  // 22809 is NCCL 2.28.9
  uint32_t driver_version = 0;   // 13000 is CUDA 13.0
  uint32_t devices = 0;
  std::string why;       // not there: what is missing
  bool windows = false;  // memory that all ranks register together (CommunicatorOptions)
  // One can be made out of another (CommunicatorOptions::out_of); else what is missing.
  bool splits = false;
  std::string why_no_splits;
  // Sums in an order of ours, of so many ranks at most; 0: none, and why.
  uint32_t ordered_ranks_max = 0;
  std::string why_not_ordered;
  // Of each device what it is to the library, which takes one rank of a communicator for each. No
  // device: that is not told.
  std::vector<DeviceIdentity> places = {};
};

// Who sums the gradients of devices, by the setting nccl.
enum class AmongDevices : uint8_t {
  kNever,  // the host
  kWorld,  // the devices of all ranks
  kHost,   // the devices of a host, and hosts by messages
};

class Communicator;

struct CommunicatorOptions {
  CommunicatorId id = {};
  uint32_t device = 0;
  uint32_t rank = 0;
  uint32_t ranks = 1;
  // Not empty: sums add a host's ranks, from +0 in the order of their numbers here, then hosts,
  // from +0; how many ranks each host has. Empty: in any order.
  std::vector<uint32_t> host_ranks = {};
  // Every rank registers the memory that sums in an order gather into, together with all others.
  bool windows = false;
  // Not null: made out of that one, on its device, by all of its ranks but these, ascending, who
  // keep their order; the id says nothing. Each has it idle() when it begins to form, and launches
  // nothing with it before this one is ready.
  Communicator* out_of = nullptr;
  std::vector<uint32_t> without = {};
  // Not 0: reductions go in two legs (DeviceLeg), and so many ranks, the first ones, have a share.
  uint32_t shares = 0;
  // The memory that the job knows of around an address, which stays what it is until forget(); of
  // no bytes: none. Null: nothing is known.
  std::function<ByteRange(const void* address)> memory_around = {};
};

// A reduction over more ranks than the communicator has, whose rest is not its business: first the
// sums of its own ranks come to host memory, each rank that has a share gets that, then what became
// of them goes from there to all.
enum class DeviceLeg : uint8_t { kAll, kToHost, kFromHost };

// The elements of one of so many shares: equal ones, and the last has what is left over.
struct ShareRange {
  uint64_t first = 0, count = 0;
};
inline ShareRange share_range(uint64_t elements, uint32_t shares, uint32_t share) {
  const uint64_t each = elements / shares;
  const uint64_t first = each * share;
  return {first, share + 1 == shares ? elements - first : each};
}

// One sum over all ranks, of numbers of `dtype`.
struct DeviceReduction {
  const std::byte* from = nullptr;  // null: this rank gives zeros, and wants no result
  bool zeros = false;               // likewise, but writes zeros to `from` and the sum to `to`
  std::byte* to = nullptr;          // may be `from`
  uint64_t count = 0;
  uint32_t dtype = 0;
  bool average = false;  // the sum is divided by the number of ranks
  DeviceMark after = 0;  // 0: at once
  DeviceLeg leg = DeviceLeg::kAll;
  // Of a leg to or from the host: pinned memory of this rank's share of the numbers; null: it has
  // none. Every reduction that is launched together goes the same leg.
  std::byte* staged = nullptr;
};

// Of memory that was made known to the library behind it, once for all launches that use it.
struct RegisteredMemory {
  uint64_t count = 0, bytes = 0;
  uint64_t refused = 0;  // ranges that the library did not take
  // Beside these, memory of the library's own that all ranks registered together, and of the
  // program's that they did.
  uint64_t windows = 0, window_bytes = 0;
  uint64_t program_windows = 0, program_window_bytes = 0;

  RegisteredMemory& operator+=(const RegisteredMemory& other) {
    count += other.count;
    bytes += other.bytes;
    refused += other.refused;
    windows += other.windows;
    window_bytes += other.window_bytes;
    program_windows += other.program_windows;
    program_window_bytes += other.program_window_bytes;
    return *this;
  }
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // Moves on what can be moved. IO, PEER_LOST: it has failed, by its own or another rank's error.
  virtual Status advance() = 0;
  // It takes a launch now.
  virtual bool ready() const = 0;
  // Begins reductions that go together, as one. Only while it is ready. IO: it has failed.
  virtual Status launch(std::span<const DeviceReduction> together) = 0;
  // Those begun, and of these the first so many that have ended; as of the last advance().
  virtual uint64_t launched() const = 0;
  virtual uint64_t ended() const = 0;
  // It takes a launch, and all that it was given has ended.
  bool idle() const { return ready() && launched() == ended(); }
  // Those begun that are on a stream as a whole, and one of them, for a stream of the caller's on
  // that device, which Devices::follow() has found fit, to wait for its end. IO.
  virtual uint64_t placed() const { return 0; }
  virtual Status follow(uint64_t launch, uint32_t device, void* stream) {
    static_cast<void>(launch), static_cast<void>(device), static_cast<void>(stream);
    return unsupported("no stream can be made to wait for a launch");
  }
  // Registers memory of this rank's together with all others, as many ranges of the same sizes on
  // each, at the same place in the order of launches. Only while it is idle(); it is not ready()
  // until that is over. From then on a launch has what it uses there at the same offsets on every
  // rank. IO.
  virtual Status register_windows(std::span<const ByteRange> windows) {
    static_cast<void>(windows);
    return unsupported("memory of programs cannot be registered together");
  }
  // Somebody is about to sleep: `wake` is called when the launch that ends next has ended.
  virtual void arm() {}
  // It forms, or settles a launch, and nobody is woken when that is done.
  virtual bool to_be_asked() const = 0;
  // The library was told of some of it and has it, or is being told. What it has refused of it is
  // forgotten, since other memory may come there.
  virtual bool knows(const ByteRange& memory) {
    static_cast<void>(memory);
    return false;
  }
  // The memory is about to go, and no launch that is yet to begin uses it. *over is false while the
  // library may use it still, what was launched before has to end, or the library is busy: ask
  // again. It is not ready() from then on until the library has let go of it. IO: the library did
  // not let go of some of it, which has to stay until this one ends, and is not asked again.
  virtual Status forget(const ByteRange& memory, bool* over) {
    static_cast<void>(memory);
    *over = true;
    return {};
  }
  virtual RegisteredMemory registered() const { return {}; }
  // Begins to give up all that was launched, and what this is being made out of; from then on it is
  // never ready, and advance() is OK. quiet() goes on with it, and `wake` tells when to ask.
  virtual void abort() = 0;
  // After abort(): nothing of it reads or writes memory of the caller's any more.
  virtual bool quiet() = 0;
  // The same, waited for at most timeout_ns.
  virtual bool drain(int64_t timeout_ns) = 0;
  // To be called before it goes: in good order where nothing is under way, else given up. False:
  // the library or the device does not come back from it, which therefore stays for good.
  virtual bool end() { return true; }
};

}  // namespace parallax

#endif  // PARALLAX_DEVICE_COMMUNICATOR_H_
