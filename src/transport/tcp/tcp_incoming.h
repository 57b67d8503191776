// SPDX-License-Identifier: Apache-2.0
// TcpIncoming: the byte stream of one peer, taken apart into frames. Bytes arrive in a buffer of
// its own, and a frame is verified, and decrypted, where it lies there; nothing of it is seen
// before its tag holds. The rest of a long message in clear, which has no tag, may be received
// where it goes instead (Receiver::place). Owned by the transport's owner; nothing blocks, nothing
// allocates after the first bytes.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_INCOMING_H_
#define PARALLAX_TRANSPORT_TCP_TCP_INCOMING_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/tcp/tcp_frames.h"
#include "transport/tcp/tcp_outgoing.h"
#include "transport/tcp/tcp_wire.h"

namespace parallax {

struct TcpFrame {
  TcpFrameHeader header;
  std::span<const std::byte> body;  // valid until the next fill(); of a placed message its head
  size_t placed_bytes = 0;          // of the body behind it, where they go
  bool spoiled = false;             // these are nowhere, as their place was taken back
};

class TcpIncoming {
 public:
  // One system call brings several frames of the largest size, which stay in cache until they were
  // summed.
  static constexpr size_t kBufferBytes = 256 << 10;
  // Of a message of which less is to come the rest is copied.
  static constexpr size_t kPlacedBytesMin = 8 << 10;

  enum class Fill : uint8_t { kBytes, kNothing, kEnded };
  enum class Next : uint8_t { kFrame, kMore, kGarbage, kForged };

  TcpIncoming(const TcpSuite& suite, const Key& secret, size_t body_bytes_max);

  // The head of the message that comes next, if its rest may be received where it goes, or was
  // begun to be; else nothing.
  std::span<const std::byte> head(size_t* rest_bytes) const;
  // One system call. `place`: for the rest of the message with this head; null: there is none.
  // kEnded: *error is 0 at the end of the stream, else errno's number.
  Fill fill(int socket, TcpCounters& counters, std::byte* place, int* error);
  // The next whole frame. kForged: it was altered on the way. kGarbage: it is the peer's, and no
  // frame. There is none after either.
  Next next(TcpFrame* frame);
  // What comes next is a message, as far as one can tell before its tag holds.
  bool at_message() const;

 private:
  void make_room();
  void begin_placing(std::byte* place);
  ssize_t receive_rest(int socket, std::byte* place);

  TcpOpener opener_;
  const size_t body_bytes_max_;
  const size_t tag_bytes_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t first_ = 0;  // of the bytes that were not taken
  size_t last_ = 0;
  // Of the frame at first_, of which header and head alone are in the buffer; 0: all frames are.
  size_t rest_bytes_ = 0;
  size_t rest_left_ = 0;  // still to come
  bool spoiled_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_INCOMING_H_
