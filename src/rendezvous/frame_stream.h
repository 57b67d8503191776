// SPDX-License-Identifier: Apache-2.0
// FrameStream: a connection of the tcp rendezvous as both of its ends have it: a socket, what has
// arrived and is not read yet, what is to be sent, and, once a handshake is done, the channel whose
// frames these bytes are. The handshake reads and writes `in` and `out` itself. Never blocks. One
// thread, or under its owner's lock.
#ifndef PARALLAX_RENDEZVOUS_FRAME_STREAM_H_
#define PARALLAX_RENDEZVOUS_FRAME_STREAM_H_

#include <poll.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "rendezvous/frame.h"

namespace parallax {

struct FrameStream {
  // Both return false when the connection is at its end or broken.
  bool receive(size_t bytes_max);
  bool send();

  // The next frame, whose body lies in `in` until drop_taken(). To be called once there is a
  // channel.
  Took take(Frame* frame);
  // Removes from `in` the frames that were taken.
  void drop_taken();
  void seal(FrameKind kind, std::string_view body) { channel->seal(kind, body, &out); }

  // What to wait for.
  pollfd waits() const;
  void close();

  UniqueFd socket;
  std::string in;
  std::string out;
  std::optional<Channel> channel;
  size_t taken_bytes = 0;  // of `in`
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_FRAME_STREAM_H_
