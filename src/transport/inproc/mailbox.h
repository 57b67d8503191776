// SPDX-License-Identifier: Apache-2.0
// Mailbox: where one rank of this process receives. A queue per sender holds kSendsInFlightMax
// message buffers that are reused; a common queue keeps the order of arrival. Owned by the hub.
//
// Threads: the receiver's owner calls open, take, release, arm, close; the sender's owner calls
// queue, fill and post on its own queue; any thread calls wake and post_loss. mutex_ guards the
// queue and the bell; it is held for a few stores, never while a message is copied or delivered. No
// two mailboxes are locked at once. Nothing blocks otherwise.
//
// A slot's bytes belong to the sender until post(), then to the receiver until release(): the two
// counters of the queue carry that over.
#ifndef PARALLAX_TRANSPORT_INPROC_MAILBOX_H_
#define PARALLAX_TRANSPORT_INPROC_MAILBOX_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "transport/inproc/fifo.h"
#include "transport/transport.h"

namespace parallax {

inline constexpr size_t kInprocMessageBytesMax = 64 * 1024 + 512;  // 64 KiB and room for headers

// Messages start at odd addresses, so that UBSan finds in the unit suite whoever reads a view as if
// it were aligned (transport.h promises nothing).
inline constexpr size_t kInprocViewOffsetBytes = 1;

struct SenderQueue {
  struct Slot {
    std::unique_ptr<std::byte[]> buffer;
    size_t capacity_bytes = 0;
    size_t bytes = 0;
  };

  explicit SenderQueue(uint32_t sender) : from(sender) {}

  const uint32_t from;
  std::array<Slot, kSendsInFlightMax> slots;
  size_t slot_bytes = 0;              // sender's: the size that every slot grows to at its next use
  uint64_t posted = 0;                // sender's: messages posted
  std::atomic<uint64_t> released{0};  // receiver's: messages consumed
  std::atomic<bool> sender_waits{false};  // the sender sleeps until a slot is free

  bool has_room() const {
    return posted - released.load(std::memory_order_seq_cst) < kSendsInFlightMax;
  }
};

class Mailbox {
 public:
  struct Item {
    SenderQueue* queue = nullptr;  // null: rank `lost` has closed its transport
    uint32_t slot = 0;
    uint32_t lost = 0;
  };

  Mailbox() = default;
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  Status open(uint32_t world);
  void close();  // frees the bell; posts are refused from here on

  // The queue from `from`, made at first use.
  SenderQueue* queue(uint32_t from);

  // Copies the segments into the queue's next slot. Returns true if a buffer had to grow.
  static bool fill(SenderQueue* queue, std::span<const Segment> segments, size_t bytes);
  // Hands the filled slot over. False: the receiver has closed, nothing was posted.
  bool post(SenderQueue* queue);
  void post_loss(uint32_t rank);

  // Takes up to items.size() arrivals and ends an arm().
  size_t take(std::span<Item> items);
  // Gives a slot back. True: its sender sleeps for want of room and must be woken.
  static bool release(SenderQueue* queue);

  bool arm();  // false: there are arrivals
  void disarm();
  void wake();  // rings the bell if armed
  int bell() const { return bell_; }

 private:
  void ring_locked() PARALLAX_REQUIRES(mutex_);
  void disarm_locked() PARALLAX_REQUIRES(mutex_);

  Mutex mutex_;
  // Which queues there are; the queues themselves are their sender's and the receiver's.
  std::vector<std::unique_ptr<SenderQueue>> queues_ PARALLAX_GUARDED_BY(mutex_);
  Fifo<Item> arrivals_ PARALLAX_GUARDED_BY(mutex_);
  uint32_t world_ PARALLAX_GUARDED_BY(mutex_) = 0;
  bool closed_ PARALLAX_GUARDED_BY(mutex_) = false;
  bool armed_ PARALLAX_GUARDED_BY(mutex_) = false;
  bool rung_ PARALLAX_GUARDED_BY(mutex_) = false;  // the bell holds a count to be read
  // An eventfd. Written by the receiver's owner with mutex_, and so read by it without.
  int bell_ = -1;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_INPROC_MAILBOX_H_
