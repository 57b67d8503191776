// SPDX-License-Identifier: Apache-2.0
// HostLegs: the copies of reductions that go in two legs with the host between: shares of sums from
// a device to pinned memory, and back. Each direction has a stream of its own, so that copies run
// beside what NCCL does; the communicator's stream and theirs are ordered by events. Copies of
// memory that the communicator's stream goes on to use for other things, zeros that ranks give, run
// on that one.
//
// Its owner's alone, with the device's context current; nothing waits.
#ifndef PARALLAX_CUDA_HOST_LEGS_H_
#define PARALLAX_CUDA_HOST_LEGS_H_

#include <functional>
#include <span>

#include "cuda/driver_api.h"
#include "cuda/nccl_call.h"
#include "device/communicator.h"

namespace parallax {

class HostLegs {
 public:
  HostLegs(const DriverApi& driver, const ShareHolders& holders)
      : driver_(driver), holders_(holders) {}

  const ShareHolders& holders() const { return holders_; }
  CUresult open();
  // Nothing is under way any more.
  void close();

  // Whether the communicator's stream goes on to use a reduction's buffers.
  using Shared = std::function<bool(const DeviceReduction& reduction)>;
  // Enqueues what brings shares to the host, behind what `stream` has. *behind: the stream whose
  // end is the end of all that.
  CUresult to_host(std::span<const DeviceReduction> together, CUstream stream, const Shared& shared,
                   CUstream* behind);
  // And back: `stream` goes on behind it.
  CUresult from_host(std::span<const DeviceReduction> together, CUstream stream,
                     const Shared& shared);
  // `stream` goes on behind all that is under way.
  CUresult join(CUstream stream);
  // The function of the driver that answered last.
  const char* last_call() const { return last_call_; }

 private:
  // A stream of copies, and the event by which another one follows it or it another one.
  struct Lane {
    CUstream stream = nullptr;
    CUevent turn = nullptr;
  };

  CUresult open(Lane* lane);
  CUresult follow(CUstream stream, CUstream first, CUevent turn);
  CUresult copy(const DeviceReduction& reduction, CUstream stream);

  const DriverApi& driver_;
  const ShareHolders holders_;
  Lane down_, up_;
  const char* last_call_ = "";
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_HOST_LEGS_H_
