// SPDX-License-Identifier: Apache-2.0
// Sealing and handing over. See tcp_outgoing.h.
#include "transport/tcp/tcp_outgoing.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace parallax {

std::byte* TcpBuffers::take() {
  if (free_.empty()) {
    free_.reserve(all_.size() + 1);
    all_.push_back(std::make_unique_for_overwrite<std::byte[]>(kTcpFrameBytesMax));
    return all_.back().get();
  }
  std::byte* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

TcpOutgoing::~TcpOutgoing() {
  for (size_t i = 0; i < count_; ++i) {
    if (slot(i).buffer != nullptr) buffers_.give(slot(i).buffer);
  }
}

TcpOutgoing::Slot& TcpOutgoing::push(TcpFrameType type) {
  PARALLAX_CHECK(count_ < kSlots);
  Slot& added = slot(count_);
  ++count_;
  ++unsealed_;
  reset(added, type);
  return added;
}

void TcpOutgoing::reset(Slot& slot, TcpFrameType type) {
  slot.type = type;
  slot.piece_count = slot.piece_first = slot.segment_count = 0;
  slot.body_bytes = 0;
}

void TcpOutgoing::add_message(std::span<const Segment> segments, uint64_t cookie) {
  PARALLAX_CHECK(has_room() && segments.size() <= kSegmentsMax);
  Slot& added = push(TcpFrameType::kMessage);
  ++messages_;
  added.cookie = cookie;
  for (const Segment& segment : segments) {
    if (segment.bytes == 0) continue;
    added.segments[added.segment_count++] = segment;
    added.body_bytes += segment.bytes;
  }
  PARALLAX_CHECK(added.body_bytes <= kTcpBodyBytesMax);
  credit_left_ -= tcp_credits_of(added.body_bytes);
}

bool TcpOutgoing::regain(size_t credit_bytes) {
  if (credit_bytes > kTcpCreditBytes - credit_left_) return false;
  credit_left_ += credit_bytes;
  return true;
}

bool TcpOutgoing::owe(size_t credit_bytes) {
  credit_owed_ += credit_bytes;
  return credit_owed_ <= kTcpCreditBytes;
}

void TcpOutgoing::add_welcome() {
  PARALLAX_CHECK(unsealed_ == count_ && count_ < kSlots);
  first_ = (first_ + kSlots - 1) % kSlots;
  ++count_;
  ++unsealed_;
  reset(slot(0), TcpFrameType::kWelcome);
}

void TcpOutgoing::seal(Slot& slot, TcpSealer& sealer) {
  const TcpFrameHeader header{static_cast<uint32_t>(slot.body_bytes), slot.type,
                              static_cast<uint32_t>(std::exchange(credit_owed_, 0))};
  const std::span<const Segment> segments(slot.segments.data(), slot.segment_count);
  if (sealer.suite().security == TcpSecurity::kEncrypt) {
    slot.buffer = buffers_.take();
    std::byte* const body = slot.buffer + kTcpHeaderBytes;
    sealer.seal(header, segments, slot.buffer, body, body + slot.body_bytes);
    slot.pieces[0] = {slot.buffer, kTcpHeaderBytes + slot.body_bytes + kTcpTagBytes};
    slot.piece_count = 1;
    return;
  }
  sealer.seal(header, segments, slot.header.data(), nullptr, slot.tag.data());
  slot.pieces[slot.piece_count++] = {slot.header.data(), kTcpHeaderBytes};
  for (const Segment& segment : segments) {
    slot.pieces[slot.piece_count++] = {const_cast<void*>(segment.data), segment.bytes};
  }
  const size_t tag_bytes = sealer.suite().tag_bytes();
  if (tag_bytes > 0) slot.pieces[slot.piece_count++] = {slot.tag.data(), tag_bytes};
}

size_t TcpOutgoing::gather(std::array<iovec, kGatherMax>* pieces, size_t* bytes) {
  size_t gathered = 0;
  *bytes = 0;
  for (size_t i = 0; i < count_; ++i) {
    const Slot& each = slot(i);
    if (gathered + each.piece_count - each.piece_first > kGatherMax) break;
    for (uint32_t piece = each.piece_first; piece < each.piece_count; ++piece) {
      (*pieces)[gathered++] = each.pieces[piece];
      *bytes += each.pieces[piece].iov_len;
    }
  }
  return gathered;
}

// What is owed goes with what is sealed here; where nothing is, and nothing waits, by itself: so
// no more than one frame for credits is ever among those that wait.
int TcpOutgoing::flush(int socket, TcpSealer& sealer, Done& done) {
  int failure = hand_over(socket, sealer, done);
  if (failure == 0 && count_ == 0 && owes_much()) {
    push(TcpFrameType::kCredit);
    ++counters_.credits_sent;
    failure = hand_over(socket, sealer, done);
  }
  if (failure == 0 && blocked_) keep_rest();
  return failure;
}

// Cost: one system call for all frames that wait, up to kGatherMax pieces.
int TcpOutgoing::hand_over(int socket, TcpSealer& sealer, Done& done) {
  for (; unsealed_ > 0; --unsealed_) seal(slot(count_ - unsealed_), sealer);
  while (count_ > 0 && !blocked_) {
    std::array<iovec, kGatherMax> pieces;
    size_t bytes = 0;
    msghdr message = {};
    message.msg_iov = pieces.data();
    message.msg_iovlen = gather(&pieces, &bytes);
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    ++counters_.send_calls;
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return errno;
    const size_t taken = sent < 0 ? 0 : static_cast<size_t>(sent);
    take_off(taken, done);
    blocked_ = taken < bytes;
  }
  return 0;
}

void TcpOutgoing::keep_rest() {
  for (size_t i = 0; i < count_; ++i) {
    Slot& each = slot(i);
    if (each.buffer != nullptr || each.segment_count == 0) continue;
    each.buffer = buffers_.take();
    size_t bytes = 0;
    for (uint32_t piece = each.piece_first; piece < each.piece_count; ++piece) {
      std::memcpy(each.buffer + bytes, each.pieces[piece].iov_base, each.pieces[piece].iov_len);
      bytes += each.pieces[piece].iov_len;
    }
    each.pieces[each.piece_first] = {each.buffer, bytes};
    each.piece_count = each.piece_first + 1;
  }
}

void TcpOutgoing::take_off(size_t bytes, Done& done) {
  while (count_ > 0) {
    Slot& front = slot(0);
    while (front.piece_first < front.piece_count) {
      iovec& piece = front.pieces[front.piece_first];
      if (bytes < piece.iov_len) {
        piece.iov_base = static_cast<std::byte*>(piece.iov_base) + bytes;
        piece.iov_len -= bytes;
        return;
      }
      bytes -= piece.iov_len;
      ++front.piece_first;
    }
    if (front.piece_count == 0) return;
    ++counters_.frames_sent;
    pop(done);
  }
}

void TcpOutgoing::pop(Done& done) {
  Slot& front = slot(0);
  if (front.buffer != nullptr) {
    buffers_.give(front.buffer);
    front.buffer = nullptr;
  }
  if (front.type == TcpFrameType::kMessage) {
    --messages_;
    done.on_taken(front.cookie);
  }
  first_ = (first_ + 1) % kSlots;
  --count_;
}

void TcpOutgoing::drop(Done& done) {
  while (count_ > 0) pop(done);
  unsealed_ = 0;
}

}  // namespace parallax
