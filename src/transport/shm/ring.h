// SPDX-License-Identifier: Apache-2.0
// A byte ring between one producer and one consumer in memory that two processes share: the
// messages of one rank to one peer of its host. Made and owned by the producer; the consumer
// attaches. RingProducer and RingConsumer are one process's view of an end each; every end has one
// owner at a time. Nothing blocks, allocates or makes a syscall.
//
// Design notes
//  - Positions count bytes since the beginning and never wrap; a position modulo data_bytes is an
//    offset into the ring. A record is a head {bytes, kind} and the message, contiguous, rounded up
//    to whole cache lines. The head is as long as it takes for the elements of a message's first
//    section to begin a cache line: what is copied or summed there is as aligned as its source
//    mostly is. What is left at the end of the ring and too short for a record is skipped by a pad
//    record.
//  - The other process is not trusted: each end keeps its own position in private memory, reads the
//    other's position and record heads once into a local, and checks them. A ring found corrupt
//    stays corrupt.
//  - No lost wake-up. The one who moves a position stores it, then loads the other's flag; the one
//    who goes to sleep stores its flag, then loads the position. All four are sequentially
//    consistent (a store-load fence on each side), so that at least one sees the other: either the
//    sleeper finds the news and stays awake, or the mover finds the flag and rings the bell. The
//    payload itself is carried by release/acquire on the position.
//  - The flag is taken by exchange, so that one sleep costs one bell (a write to an eventfd).
//  - The consumer's flag also says whether what is posted on a board ends its sleep (boards.h).
//    That may change from no to yes while it sleeps: by an exchange that leaves a flag alone which
//    was taken, since then the bell is on its way.
#ifndef PARALLAX_TRANSPORT_SHM_RING_H_
#define PARALLAX_TRANSPORT_SHM_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"

namespace parallax {

inline constexpr size_t kShmMessageBytesMax = 64 * 1024 + 512;  // 64 KiB and room for headers
inline constexpr size_t kRingRecordHeadBytes = 16;
inline constexpr size_t kRingGrain = 64;  // records begin at multiples of it: a cache line
inline constexpr size_t kRingRecordBytesMax =
    (kRingRecordHeadBytes + kShmMessageBytesMax + kRingGrain - 1) / kRingGrain * kRingGrain;
inline constexpr size_t kRingBytesMin = 256 * 1024;  // room for two largest records, wherever it is
inline constexpr size_t kRingBytesMax = size_t{1} << 30;
static_assert(2 * kRingRecordBytesMax <= kRingBytesMin && kRingBytesMin % kRingGrain == 0);

// What RingHeader::consumer_sleeps says of a consumer that is not awake: what ends its sleep, a
// message in this ring alone or a post, too.
inline constexpr uint32_t kUntilMessage = 1;
inline constexpr uint32_t kUntilPost = 2;

// The shared page before the data. One cache line per writer and pace.
struct RingHeader {
  // Producer writes.
  alignas(64) std::atomic<uint64_t> tail;            // published up to here
  alignas(64) std::atomic<uint32_t> producer_waits;  // it sleeps until there is room
  std::atomic<uint32_t> closed;                      // it has closed its transport
  std::atomic<uint32_t> retracted;                   // see PeerMemory::retract()
  alignas(64) std::atomic<uint64_t> producer_polls;  // its polls: stands still when stopped
  // Consumer writes.
  alignas(64) std::atomic<uint64_t> head;  // released up to here
  alignas(
      64) std::atomic<uint32_t> consumer_sleeps;  // it sleeps until there is a message; 0: awake
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
inline constexpr size_t kRingHeaderBytes = 4096;
static_assert(sizeof(RingHeader) <= kRingHeaderBytes);

class RingProducer {
 public:
  RingProducer() = default;
  RingProducer(RingHeader* shared, std::byte* data, size_t data_bytes);

  // Room for any message. One load of the consumer's line when the last look was not enough.
  bool has_room();
  // Only after has_room(). True: the consumer sleeps and its bell must be rung.
  bool write(std::span<const Segment> segments, size_t bytes);
  // True: the consumer sleeps, and its bell must be rung; of one sleep once. What it is to see was
  // stored before, in the order that is one for all.
  bool take_sleep();
  // The same, of a sleep that ends with a post.
  bool take_sleep_until_post();
  // Before sleeping. False: there is room already.
  bool sleep_until_room();

  bool corrupt() const { return corrupt_; }

 private:
  void refresh_head(std::memory_order order);
  bool room_seen() const;

  RingHeader* shared_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t data_bytes_ = 0;
  uint64_t tail_ = 0;
  uint64_t head_seen_ = 0;
  bool corrupt_ = false;
};

class RingConsumer {
 public:
  enum class Next { kEmpty, kMessage, kCorrupt };

  RingConsumer() = default;
  RingConsumer(RingHeader* shared, std::byte* data, size_t data_bytes);

  // The oldest message, where it lies, until release().
  Next next(std::span<const std::byte>* message);
  // True: the producer sleeps for room, there is enough now, and its bell must be rung.
  bool release();
  // Before sleeping. False: there is something to look at already.
  bool sleep_until_message(bool or_post);
  // In the midst of a sleep: a post ends it, too.
  void heed_posts();
  void stay_awake() { shared_->consumer_sleeps.store(0, std::memory_order_relaxed); }

  const char* corruption() const { return corruption_; }  // what next() found wrong

 private:
  Next corrupt(const char* what);

  RingHeader* shared_ = nullptr;
  const std::byte* data_ = nullptr;
  uint64_t data_bytes_ = 0;
  uint64_t head_ = 0;
  uint64_t tail_seen_ = 0;
  uint64_t record_bytes_ = 0;  // of the message handed out
  const char* corruption_ = nullptr;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SHM_RING_H_
