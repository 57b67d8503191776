// SPDX-License-Identifier: Apache-2.0
// RemoteWrites: what a transport can do beside messages where its network writes into a peer's
// memory by itself (RDMA): a rank tells a peer, by a message, where a piece is to go; the peer
// sends the piece, which is written there, and the message that says so comes after it. Most
// transports have none, and whoever uses it goes on with messages where it answers no.
//
// Memory. An area that is known may be registered, whole, at the first share() of a part of it, and
// stays so, within a bound: beyond it those go that were not used for longest, and of what is
// shared none goes. So steps that use the same memory again register nothing.
//
// The owner of the transport calls everything here, from outside of its poll() too; registering and
// its end may take the kernel milliseconds, nothing else here blocks.
#ifndef PARALLAX_TRANSPORT_REMOTE_WRITES_H_
#define PARALLAX_TRANSPORT_REMOTE_WRITES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/byte_range.h"
#include "base/status.h"

namespace parallax {

struct Segment;

inline constexpr size_t kPlaceKeyBytesMax = 256;

// A part of this rank's memory that a peer may write to, as that peer has to be told.
struct SharedPart {
  uint32_t area = 0;  // for unshare(); a number that no other area of this rank has, ever
  std::span<const std::byte> key = {};  // valid until the next call
};

// What goes where: `bytes` from here to `address` of the peer, in the area with that key.
struct PlacedPiece {
  const std::byte* data = nullptr;  // borrowed until the send completes
  size_t bytes = 0;
  uint64_t address = 0;
  uint32_t area = 0;
  std::span<const std::byte> key = {};  // read during the call
};

class RemoteWrites {
 public:
  // Of one send to this peer; 0: pieces cannot be placed there.
  virtual size_t piece_bytes_max(uint32_t to) = 0;
  // As Transport::send, with a piece of at most that many bytes: the message is delivered after the
  // piece is whole at the peer, and in order with all others.
  virtual Status send(uint32_t to, std::span<const Segment> segments, const PlacedPiece& piece,
                      uint64_t cookie) = 0;

  // Memory that stays where it is until forget_area() says otherwise; areas do not overlap. False:
  // it is not wanted.
  virtual bool know(const ByteRange& area) = 0;
  // No byte of the area is written by a peer any more, and none is sent. Not while it is shared,
  // unless withdraw() was called.
  virtual void forget_area(const ByteRange& area) = 0;

  // It is of a known area that is registered, or can be without ending another's registration.
  virtual bool has_room(const ByteRange& part) const = 0;
  // False: it is of no known area, or there is no room to register that.
  virtual bool share(const ByteRange& part, SharedPart* shared) = 0;
  virtual void unshare(uint32_t area) = 0;

  // For good: when it returns no peer can write to this rank's memory, and no piece is under way:
  // peers to which one was are lost. Then nothing is shared, and nothing sent, any more.
  virtual void withdraw() = 0;

  // For the report: one JSON object.
  virtual std::string json() const = 0;

 protected:
  ~RemoteWrites() = default;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_REMOTE_WRITES_H_
