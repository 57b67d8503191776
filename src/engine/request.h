// SPDX-License-Identifier: Apache-2.0
// Request: one call of the caller that completes later, exactly once. Pooled by the engine, so that
// a step allocates none. The engine's owner alone touches it until done() is true; from then on it
// is the caller's, until released.
#ifndef PARALLAX_ENGINE_REQUEST_H_
#define PARALLAX_ENGINE_REQUEST_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/byte_range.h"
#include "base/status.h"
#include "group/results.h"
#include "server/pull_exchange.h"
#include "server/row_access.h"

namespace parallax {

enum class RequestKind : uint8_t {
  kCommit,
  kPull,
  kPush,
  kReduce,
  kStepEnd,
  kBarrier,
  kBroadcast,
  kCollective,
  kRows,      // read or write
  kEvaluate,  // a pull between steps
  kSplit,
  kClose
};

// Whether a stream can be made to wait for a request's results before they are there, as far as its
// waiter has asked (DeviceCalls::follow).
enum class Order : uint8_t { kNotAsked, kAsked, kThere };

// Of a push: its rows were told when it was called; they are held until its step ends; they stay in
// the caller's buffers until it is applied (HeldPushes).
enum class RowsGiven : uint8_t { kAtOnce, kHeld, kStay };

// The thread that waits for a request.
struct Waiter {
  std::atomic<bool> there{false};
  std::atomic<Order> order{Order::kNotAsked};  // set with the engine mutex
};

struct Request {
  RequestKind kind = RequestKind::kBarrier;
  uint64_t step = 0;
  Status status;  // final once done()
  bool started = false;
  uint32_t pending = 0;                       // jobs and sends that borrow the caller's buffers
  RowsGiven rows_given = RowsGiven::kAtOnce;  // push
  std::vector<PullSlice> slices;              // pull, push, reduce
  std::vector<RowSlice> parts;                // push, reduce: slices that go as parts
  std::vector<RowsResult> rows;               // reduce: by slice
  std::vector<uint8_t> slice_done;            // pull, reduce
  parallax_step_info_t info = {};             // step_end
  // read, write
  RowsCall rows_call;
  uint32_t slices_done = 0;  // evaluation, reduce: the first so many are
  // broadcast
  uint32_t root = 0;
  std::span<std::byte> buffer;
  ByteRange send, recv;  // collective
  // Slices on devices: DeviceCalls' number of the call, 0 where there is none, and the caller's
  // buffers, where `slices` has their copies.
  uint32_t staged = 0;
  std::vector<ByteRange> borrowed;
  uint32_t part = 0;  // split, completed: its number
  // The C ABI's: the job it belongs to, and who waits for it.
  void* owner = nullptr;
  uint32_t group = 0;  // of the job: JobGroups numbers them
  bool free = true;    // in the pool; guarded by the engine mutex
  Waiter waiter;

  // In one order with who waits (Progress::on_completed): either a waiter sees this, or is seen.
  bool done() const { return done_.load(std::memory_order_seq_cst); }
  // What its waiter is there for: the end, or what it asked for before.
  bool awaited() const {
    return done() || waiter.order.load(std::memory_order_seq_cst) == Order::kThere;
  }
  void complete(Status final_status) {
    status = std::move(final_status);
    done_.store(true, std::memory_order_seq_cst);
  }
  void reset(RequestKind new_kind, uint64_t new_step) {
    kind = new_kind;
    step = new_step;
    status = Status();
    started = false;
    pending = 0;
    rows_given = RowsGiven::kAtOnce;
    slices_done = 0;
    free = false;
    slices.clear();
    parts.clear();
    slice_done.clear();
    info = {};
    buffer = {};
    send = recv = {};
    staged = 0;
    borrowed.clear();
    waiter.order.store(Order::kNotAsked, std::memory_order_relaxed);
    done_.store(false, std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> done_{false};
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_REQUEST_H_
