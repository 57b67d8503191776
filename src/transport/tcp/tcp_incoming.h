// SPDX-License-Identifier: Apache-2.0
// TcpIncoming: the byte stream of one peer, taken apart into frames. Bytes arrive in a buffer of
// its own, and a frame is verified, and decrypted, where it lies there; nothing of it is seen
// before its tag holds. Owned by the transport's owner; nothing blocks, nothing allocates after
// the first bytes.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_INCOMING_H_
#define PARALLAX_TRANSPORT_TCP_TCP_INCOMING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/tcp/tcp_frames.h"
#include "transport/tcp/tcp_outgoing.h"
#include "transport/tcp/tcp_wire.h"

namespace parallax {

class TcpIncoming {
 public:
  // One system call brings several frames of the largest size, which stay in cache until they were
  // summed.
  static constexpr size_t kBufferBytes = 256 << 10;

  enum class Fill : uint8_t { kBytes, kNothing, kEnded };
  enum class Next : uint8_t { kFrame, kMore, kGarbage, kForged };

  TcpIncoming(const TcpSuite& suite, const Key& secret, size_t body_bytes_max);

  // One recv. kEnded: *error is 0 at the end of the stream, else errno's number.
  Fill fill(int socket, TcpCounters& counters, int* error);
  // The next whole frame. Its body is valid until the next call of fill(). kForged: it was altered
  // on the way. kGarbage: it is the peer's, and no frame. There is none after either.
  Next next(TcpFrameHeader* header, std::span<const std::byte>* body);

 private:
  void make_room();

  TcpOpener opener_;
  const size_t body_bytes_max_;
  const size_t tag_bytes_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t first_ = 0;  // of the bytes that were not taken
  size_t last_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_INCOMING_H_
