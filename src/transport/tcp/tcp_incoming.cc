// SPDX-License-Identifier: Apache-2.0
// Receiving, and finding frames. See tcp_incoming.h.
#include "transport/tcp/tcp_incoming.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace parallax {

static_assert(TcpIncoming::kBufferBytes >= 2 * kTcpFrameBytesMax);

TcpIncoming::TcpIncoming(const TcpSuite& suite, const Key& secret, size_t body_bytes_max)
    : opener_(suite, secret),
      body_bytes_max_(std::min(body_bytes_max, kTcpBodyBytesMax)),
      tag_bytes_(suite.tag_bytes()),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

// At most one frame is left over, so there is always room for the rest of it.
void TcpIncoming::make_room() {
  if (first_ == last_) first_ = last_ = 0;
  if (first_ == 0 || kBufferBytes - last_ >= kTcpFrameBytesMax) return;
  std::memmove(buffer_.get(), buffer_.get() + first_, last_ - first_);
  last_ -= first_;
  first_ = 0;
}

std::span<const std::byte> TcpIncoming::head(size_t* rest_bytes) const {
  const size_t there = last_ - first_;
  const std::byte* const frame = buffer_.get() + first_;
  TcpFrameHeader header;
  if (tag_bytes_ > 0 || there < kTcpHeaderBytes + kMessageHeadBytes ||
      !decode_tcp_header(frame, body_bytes_max_, &header)) {
    return {};
  }
  const bool long_enough = kTcpHeaderBytes + header.body_bytes >= there + kPlacedBytesMin;
  if (rest_bytes_ > 0 ? rest_left_ == 0 : !long_enough) return {};
  *rest_bytes = header.body_bytes - kMessageHeadBytes;
  return {frame + kTcpHeaderBytes, kMessageHeadBytes};
}

// What has come of the rest goes there too.
void TcpIncoming::begin_placing(std::byte* place) {
  size_t all = 0;
  const std::byte* const rest = head(&all).data() + kMessageHeadBytes;
  const auto came = static_cast<size_t>(buffer_.get() + last_ - rest);
  std::memcpy(place, rest, came);
  last_ -= came;
  rest_bytes_ = all;
  rest_left_ = all - came;
  spoiled_ = false;
}

// The rest of the message whose place this is, and what follows it. Of one whose place was taken
// back the bytes are read over each other, behind the last ones.
ssize_t TcpIncoming::receive_rest(int socket, std::byte* place) {
  if (spoiled_) return ::recv(socket, buffer_.get() + last_, rest_left_, MSG_DONTWAIT);
  iovec pieces[2] = {{place + rest_bytes_ - rest_left_, rest_left_},
                     {buffer_.get() + last_, kBufferBytes - last_}};
  msghdr message = {};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  return ::recvmsg(socket, &message, MSG_DONTWAIT);
}

TcpIncoming::Fill TcpIncoming::fill(int socket, TcpCounters& counters, std::byte* place,
                                    int* error) {
  make_room();
  if (place != nullptr && rest_bytes_ == 0) begin_placing(place);
  spoiled_ = spoiled_ || (rest_left_ > 0 && place == nullptr);
  for (;;) {
    const ssize_t bytes =
        rest_left_ > 0 ? receive_rest(socket, place)
                       : ::recv(socket, buffer_.get() + last_, kBufferBytes - last_, MSG_DONTWAIT);
    if (bytes > 0) {
      ++counters.receive_calls;
      const size_t of_rest = std::min(rest_left_, static_cast<size_t>(bytes));
      rest_left_ -= of_rest;
      last_ += static_cast<size_t>(bytes) - of_rest;
      return Fill::kBytes;
    }
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Fill::kNothing;
    *error = bytes == 0 ? 0 : errno;
    return Fill::kEnded;
  }
}

bool TcpIncoming::at_message() const {
  TcpFrameHeader header;
  if (last_ - first_ < kTcpHeaderBytes) return false;
  (void)decode_tcp_header(buffer_.get() + first_, body_bytes_max_, &header);
  return header.type == TcpFrameType::kMessage;
}

// Under a tag the header is believed as far as where the tag lies, and judged once that holds:
// before, and without tags for good, it may be anyone's on the way, and says nothing of the peer.
TcpIncoming::Next TcpIncoming::next(TcpFrame* found) {
  const size_t there = last_ - first_;
  if (there < kTcpHeaderBytes || rest_left_ > 0) return Next::kMore;
  std::byte* const frame = buffer_.get() + first_;
  TcpFrameHeader& header = found->header;
  const bool legal = decode_tcp_header(frame, body_bytes_max_, &header);
  if (!legal && tag_bytes_ == 0) return Next::kForged;
  if (header.body_bytes > kTcpBodyBytesMax) return Next::kForged;
  const size_t body_bytes = header.body_bytes - rest_bytes_;  // in the buffer
  const size_t frame_bytes = kTcpHeaderBytes + body_bytes + tag_bytes_;
  if (there < frame_bytes) return Next::kMore;
  if (!opener_.open({frame, frame_bytes})) return Next::kForged;
  if (!legal) return Next::kGarbage;
  first_ += frame_bytes;
  found->body = {frame + kTcpHeaderBytes, body_bytes};
  found->placed_bytes = std::exchange(rest_bytes_, 0);
  found->spoiled = std::exchange(spoiled_, false);
  return Next::kFrame;
}

}  // namespace parallax
