// SPDX-License-Identifier: Apache-2.0
// Bytes in, frames out, and back: see the header.
#include "rendezvous/frame_stream.h"

#include "base/tcp_socket.h"

namespace parallax {

bool FrameStream::receive(size_t bytes_max) { return tcp_receive(socket, bytes_max, &in); }

bool FrameStream::send() { return tcp_send(socket, &out); }

Took FrameStream::take(Frame* frame) {
  size_t used = 0;
  const Took took = channel->open(std::string_view(in).substr(taken_bytes), frame, &used);
  if (took == Took::kFrame) taken_bytes += used;
  return took;
}

void FrameStream::drop_taken() {
  in.erase(0, taken_bytes);
  taken_bytes = 0;
}

pollfd FrameStream::waits() const {
  return {socket.get(), static_cast<short>(out.empty() ? POLLIN : POLLIN | POLLOUT), 0};
}

void FrameStream::close() { *this = FrameStream(); }

}  // namespace parallax
