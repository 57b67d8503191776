// SPDX-License-Identifier: Apache-2.0
// Receiving, and finding frames. See tcp_incoming.h.
#include "transport/tcp/tcp_incoming.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

TcpIncoming::Fill TcpIncoming::fill(int socket, TcpCounters& counters, int* error) {
  make_room();
  for (;;) {
    const ssize_t bytes = ::recv(socket, buffer_.get() + last_, kBufferBytes - last_, MSG_DONTWAIT);
    if (bytes > 0) {
      ++counters.receive_calls;
      last_ += static_cast<size_t>(bytes);
      return Fill::kBytes;
    }
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Fill::kNothing;
    *error = bytes == 0 ? 0 : errno;
    return Fill::kEnded;
  }
}

// Under a tag the header is believed as far as where the tag lies, and judged once that holds:
// before, and without tags for good, it may be anyone's on the way, and says nothing of the peer.
TcpIncoming::Next TcpIncoming::next(TcpFrameHeader* header, std::span<const std::byte>* body) {
  const size_t there = last_ - first_;
  if (there < kTcpHeaderBytes) return Next::kMore;
  std::byte* const frame = buffer_.get() + first_;
  const bool legal = decode_tcp_header(frame, body_bytes_max_, header);
  if (!legal && tag_bytes_ == 0) return Next::kForged;
  if (header->body_bytes > kTcpBodyBytesMax) return Next::kForged;
  const size_t frame_bytes = kTcpHeaderBytes + header->body_bytes + tag_bytes_;
  if (there < frame_bytes) return Next::kMore;
  if (!opener_.open({frame, frame_bytes})) return Next::kForged;
  if (!legal) return Next::kGarbage;
  first_ += frame_bytes;
  *body = {frame + kTcpHeaderBytes, header->body_bytes};
  return Next::kFrame;
}

}  // namespace parallax
