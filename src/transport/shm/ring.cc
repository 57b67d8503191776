// SPDX-License-Identifier: Apache-2.0
// Ring: see the header for owners, trust and memory order. Hot path per message: one copy, one
// sequentially consistent store and one load of a mostly unchanged line, at each end.
#include "transport/shm/ring.h"

#include <cstring>

#include "base/check.h"

namespace parallax {

namespace {

constexpr uint32_t kMessage = 0x4d534731;  // "MSG1"
constexpr uint32_t kPad = 0x50414431;      // "PAD1"

struct RecordHead {
  uint32_t bytes;
  uint32_t kind;
  uint64_t unused;
};
static_assert(sizeof(RecordHead) == kRingRecordHeadBytes);

constexpr uint64_t round_up(uint64_t bytes) {
  return (bytes + kRingGrain - 1) / kRingGrain * kRingGrain;
}

}  // namespace

RingProducer::RingProducer(RingHeader* shared, std::byte* data, size_t data_bytes)
    : shared_(shared), data_(data), data_bytes_(data_bytes) {}

void RingProducer::refresh_head(std::memory_order order) {
  // The consumer writes it: it may only move on, by whole records, up to what was published. Else
  // the room reckoned from it would let this end overwrite messages that are not read yet.
  const uint64_t head = shared_->head.load(order);
  if (head < head_seen_ || head > tail_ || head % kRingGrain != 0) {
    corrupt_ = true;
  } else {
    head_seen_ = head;
  }
}

bool RingProducer::room_seen() const {
  const uint64_t free_bytes = data_bytes_ - (tail_ - head_seen_);
  const uint64_t to_end = data_bytes_ - tail_ % data_bytes_;
  // A message lies in one piece, so what is left at the end may have to be skipped first.
  const uint64_t pad = to_end < kRingRecordBytesMax ? to_end : 0;
  return free_bytes >= pad + kRingRecordBytesMax;
}

bool RingProducer::has_room() {
  if (corrupt_) return false;
  if (room_seen()) return true;
  // The consumer's cache line is touched only when what was last seen of it is not enough.
  refresh_head(std::memory_order_acquire);
  return !corrupt_ && room_seen();
}

bool RingProducer::sleep_until_room() {
  // The flag before the look: see the design notes on wake-ups.
  shared_->producer_waits.store(1, std::memory_order_seq_cst);
  refresh_head(std::memory_order_seq_cst);
  return !corrupt_ && !room_seen();
}

bool RingProducer::write(std::span<const Segment> segments, size_t bytes) {
  PARALLAX_CHECK(bytes <= kShmMessageBytesMax);
  const uint64_t record_bytes = round_up(kRingRecordHeadBytes + bytes);
  const uint64_t to_end = data_bytes_ - tail_ % data_bytes_;
  if (to_end < record_bytes) {
    // Positions are multiples of the grain, so the head of a pad always fits.
    const RecordHead pad{
        .bytes = static_cast<uint32_t>(to_end - kRingRecordHeadBytes), .kind = kPad, .unused = 0};
    std::memcpy(data_ + tail_ % data_bytes_, &pad, sizeof pad);
    tail_ += to_end;
  }
  std::byte* to = data_ + tail_ % data_bytes_;
  const RecordHead head{.bytes = static_cast<uint32_t>(bytes), .kind = kMessage, .unused = 0};
  std::memcpy(to, &head, sizeof head);
  to += sizeof head;
  for (const Segment& segment : segments) {
    if (segment.bytes > 0) std::memcpy(to, segment.data, segment.bytes);
    to += segment.bytes;
  }
  tail_ += record_bytes;
  // A pad is published with the message behind it, never alone.
  shared_->tail.store(tail_, std::memory_order_seq_cst);
  return take_sleep();
}

bool RingProducer::take_sleep() {
  // A plain load first: the exchange, which takes the line from the consumer, only when it sleeps.
  return shared_->consumer_sleeps.load(std::memory_order_seq_cst) != 0 &&
         shared_->consumer_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
}

bool RingProducer::take_sleep_until_post() {
  return shared_->consumer_sleeps.load(std::memory_order_seq_cst) == kUntilPost &&
         shared_->consumer_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
}

RingConsumer::RingConsumer(RingHeader* shared, std::byte* data, size_t data_bytes)
    : shared_(shared), data_(data), data_bytes_(data_bytes) {}

RingConsumer::Next RingConsumer::corrupt(const char* what) {
  corruption_ = what;
  return Next::kCorrupt;
}

RingConsumer::Next RingConsumer::next(std::span<const std::byte>* message) {
  if (corruption_ != nullptr) return Next::kCorrupt;
  for (bool padded = false;; padded = true) {
    if (head_ == tail_seen_) {
      if (padded) return corrupt("a pad in its ring has no message after it");
      const uint64_t tail = shared_->tail.load(std::memory_order_acquire);
      if (tail == head_) return Next::kEmpty;
      // A peer's number, which bounds all reads below.
      if (tail < head_ || tail - head_ > data_bytes_ || tail % kRingGrain != 0) {
        return corrupt("its ring's position is out of range");
      }
      tail_seen_ = tail;
    }
    const std::byte* at = data_ + head_ % data_bytes_;
    // Read once into a local: the producer could change it between the check and the use.
    RecordHead record;
    std::memcpy(&record, at, sizeof record);
    const uint64_t record_bytes = round_up(kRingRecordHeadBytes + uint64_t{record.bytes});
    const uint64_t to_end = data_bytes_ - head_ % data_bytes_;
    if (record_bytes > tail_seen_ - head_ || record_bytes > to_end) {
      return corrupt("a message in its ring is longer than what was published");
    }
    if (record.kind == kPad) {
      if (record_bytes != to_end || padded) return corrupt("a pad in its ring is misplaced");
      head_ += record_bytes;  // released with the message after it
      continue;
    }
    if (record.kind != kMessage || record.bytes > kShmMessageBytesMax) {
      return corrupt("a record in its ring is of no known kind or too long");
    }
    record_bytes_ = record_bytes;
    *message = {at + kRingRecordHeadBytes, record.bytes};
    return Next::kMessage;
  }
}

bool RingConsumer::release() {
  head_ += record_bytes_;
  record_bytes_ = 0;
  // From here on the producer may overwrite the message.
  shared_->head.store(head_, std::memory_order_seq_cst);
  if (shared_->producer_waits.load(std::memory_order_seq_cst) == 0) return false;
  // Not for every message: only once any message fits, which an empty ring always allows.
  const uint64_t free_bytes = data_bytes_ - (tail_seen_ - head_);
  if (free_bytes < 2 * kRingRecordBytesMax) return false;
  return shared_->producer_waits.exchange(0, std::memory_order_seq_cst) != 0;
}

bool RingConsumer::sleep_until_message(bool or_post) {
  // The flag before the look, as in sleep_until_room().
  shared_->consumer_sleeps.store(or_post ? kUntilPost : kUntilMessage, std::memory_order_seq_cst);
  return corruption_ == nullptr && head_ == tail_seen_ &&
         shared_->tail.load(std::memory_order_seq_cst) == head_;
}

void RingConsumer::heed_posts() {
  uint32_t asleep = kUntilMessage;
  shared_->consumer_sleeps.compare_exchange_strong(asleep, kUntilPost, std::memory_order_seq_cst);
}

}  // namespace parallax
