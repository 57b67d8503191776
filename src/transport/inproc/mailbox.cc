// SPDX-License-Identifier: Apache-2.0
// Mailbox: see the header for owners and threads. Hot path: one lock and one copy to post, one lock
// per batch to take; no syscall unless the receiver sleeps, no malloc once the slots have grown.
#include "transport/inproc/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"

namespace parallax {

namespace {
constexpr size_t kSlotBytesMin = 256;
}  // namespace

Mailbox::~Mailbox() {
  if (bell_ >= 0) ::close(bell_);
}

Status Mailbox::open(uint32_t world) {
  const MutexLock lock(mutex_);
  PARALLAX_CHECK(bell_ < 0 && !closed_);
  bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell_ < 0) {
    return limit(std::string("no descriptor for a rank's eventfd: ") + std::strerror(errno) +
                 "; raise ulimit -n");
  }
  world_ = world;
  arrivals_.reserve(queues_.size() * kSendsInFlightMax + world);  // every rank may be lost once
  return {};
}

void Mailbox::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  armed_ = false;
  if (bell_ >= 0) ::close(bell_);
  bell_ = -1;
}

SenderQueue* Mailbox::queue(uint32_t from) {
  const MutexLock lock(mutex_);
  for (auto& queue : queues_) {
    if (queue->from == from) return queue.get();
  }
  queues_.push_back(std::make_unique<SenderQueue>(from));
  arrivals_.reserve(queues_.size() * kSendsInFlightMax + world_);
  return queues_.back().get();
}

bool Mailbox::fill(SenderQueue* queue, std::span<const Segment> segments, size_t bytes) {
  SenderQueue::Slot& slot = queue->slots[queue->posted % kSendsInFlightMax];
  // Slots follow the largest message seen on this queue, so that growth ends kSendsInFlightMax
  // messages after the largest one, whatever slot later large ones fall on.
  const size_t wanted = std::min(std::bit_ceil(bytes), kInprocMessageBytesMax);
  queue->slot_bytes = std::max({queue->slot_bytes, wanted, kSlotBytesMin});
  bool grew = false;
  if (slot.capacity_bytes < queue->slot_bytes) {
    slot.buffer =
        std::make_unique_for_overwrite<std::byte[]>(queue->slot_bytes + kInprocViewOffsetBytes);
    slot.capacity_bytes = queue->slot_bytes;
    grew = true;
  }
  std::byte* to = slot.buffer.get() + kInprocViewOffsetBytes;
  for (const Segment& segment : segments) {
    if (segment.bytes > 0) std::memcpy(to, segment.data, segment.bytes);
    to += segment.bytes;
  }
  slot.bytes = bytes;
  return grew;
}

bool Mailbox::post(SenderQueue* queue) {
  const MutexLock lock(mutex_);
  if (closed_) return false;
  const auto slot = static_cast<uint32_t>(queue->posted % kSendsInFlightMax);
  arrivals_.push({.queue = queue, .slot = slot, .lost = 0});
  ++queue->posted;
  ring_locked();
  return true;
}

void Mailbox::post_loss(uint32_t rank) {
  const MutexLock lock(mutex_);
  if (closed_) return;
  arrivals_.push({.queue = nullptr, .slot = 0, .lost = rank});
  ring_locked();
}

size_t Mailbox::take(std::span<Item> items) {
  const MutexLock lock(mutex_);
  disarm_locked();
  size_t count = 0;
  while (count < items.size() && !arrivals_.empty()) items[count++] = arrivals_.pop();
  return count;
}

bool Mailbox::release(SenderQueue* queue) {
  // Store, then look at the flag; the sender raises the flag, then looks at the counter. Both
  // sequentially consistent, so that at least one of the two sees the other.
  queue->released.fetch_add(1, std::memory_order_seq_cst);
  return queue->sender_waits.load(std::memory_order_seq_cst) &&
         queue->sender_waits.exchange(false, std::memory_order_seq_cst);
}

bool Mailbox::arm() {
  const MutexLock lock(mutex_);
  disarm_locked();
  if (!arrivals_.empty()) return false;
  armed_ = true;
  return true;
}

void Mailbox::disarm() {
  const MutexLock lock(mutex_);
  disarm_locked();
}

void Mailbox::wake() {
  const MutexLock lock(mutex_);
  ring_locked();
}

void Mailbox::ring_locked() {
  if (!armed_) return;
  armed_ = false;
  rung_ = true;
  const uint64_t one = 1;
  // Cannot fail: the counter is 0, as only an armed mailbox is rung and arm() empties it.
  [[maybe_unused]] const ssize_t written = ::write(bell_, &one, sizeof one);
}

void Mailbox::disarm_locked() {
  armed_ = false;
  if (!rung_) return;
  rung_ = false;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(bell_, &count, sizeof count);
}

}  // namespace parallax
