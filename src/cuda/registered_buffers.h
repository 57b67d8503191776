// SPDX-License-Identifier: Apache-2.0
// RegisteredBuffers: memory that was registered with a communicator (ncclCommRegister, NCCL 2.19),
// once for all that it launches with it, so that NCCL may reach it without copies. Bounded. What
// NCCL refuses is remembered as long as the memory is there, and not offered again: reductions work
// without.
//
// To register memory and to take that back takes NCCL long, so that each comes in three parts: the
// owner notes what it is about, another thread calls NCCL (offer(), deregister()), and the owner
// takes what came of it (take(), settle()). All else is its owner's alone, with the device's
// context current.
#ifndef PARALLAX_CUDA_REGISTERED_BUFFERS_H_
#define PARALLAX_CUDA_REGISTERED_BUFFERS_H_

#include <cstddef>
#include <vector>

#include "base/byte_range.h"
#include "cuda/nccl_api.h"
#include "cuda/nccl_gate.h"
#include "device/communicator.h"

namespace parallax {

class RegisteredBuffers {
 public:
  static constexpr size_t kMost = 256;

  // Both outlive this.
  RegisteredBuffers(const NcclApi& nccl, NcclGate& gate) : nccl_(nccl), gate_(gate) {}

  // This NCCL registers memory.
  bool possible() const;
  // It was offered.
  bool knows(const void* address) const { return knows(ByteRange::at(address, 1)); }
  bool knows(const ByteRange& memory) const;
  // One more may be offered, beside so many that are.
  bool has_room(size_t offered) const { return known_.size() + offered < kMost; }
  struct Known {
    ByteRange memory;
    void* handle = nullptr;           // null: it was refused
    ncclResult_t kept = ncclSuccess;  // else NCCL did not let go of it, and said so
  };
  // Offers it, which it was not yet: any thread, while no other calls the communicator. What comes
  // of it is to be taken.
  Known offer(ncclComm_t communicator, const ByteRange& memory) const;
  void take(const Known& offered) {
    known_.reserve(kMost);
    known_.push_back(offered);
  }
  // What NCCL refused of it is known no more.
  void drop_refused(const ByteRange& memory);
  // And the rest of it, which no launch that is yet to begin uses, is to go, but for what NCCL has
  // not let go of before: it counts how often it was asked, fails or not, and says success to who
  // asks again, though it has the memory still. Only while nothing is leaving.
  void leave(const ByteRange& memory);
  // Something is, and that is not settled.
  bool leaving() const { return !leaving_.empty(); }
  // And a thread is at it, since the owner has said so.
  bool handed_over() const { return handed_over_; }
  void hand_over() { handed_over_ = true; }
  // Any thread, while no other calls the communicator.
  void deregister(ncclComm_t communicator);
  // What NCCL does not let go of stays known until the communicator ends, with its answer.
  void settle();
  // What NCCL answered of memory that it did not let go of, the first of it; success: of none.
  template <typename Of>
  ncclResult_t kept(const Of& is_of) const {
    for (const Known& each : known_) {
      if (each.kept != ncclSuccess && is_of(each.memory)) return each.kept;
    }
    return ncclSuccess;
  }
  // All of it that NCCL was not asked for yet, whatever it answers, which stays known here: any
  // thread, while no other calls the communicator, which ends then.
  void deregister_all(ncclComm_t communicator) const;
  // The communicator is given up, and what it knew with it.
  void drop_all() {
    known_.clear();
    leaving_.clear();
    handed_over_ = false;
  }

  RegisteredMemory counts() const;

 private:
  ncclResult_t deregister(ncclComm_t communicator, const Known& known) const;

  const NcclApi& nccl_;
  NcclGate& gate_;
  std::vector<Known> known_, leaving_;
  bool handed_over_ = false;  // leaving_ is a thread's
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_REGISTERED_BUFFERS_H_
