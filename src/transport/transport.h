// SPDX-License-Identifier: Apache-2.0
// Transport: the only I/O below the engine. It carries whole messages of at most
// message_bytes_max() bytes, reliably and in order per peer, until that peer is lost; nothing above
// it retransmits. It knows ranks and bytes, never variables or steps.
//
// Threads: one owner at a time calls everything here; wait_fd()'s descriptor may be polled by any
// thread. Nothing here blocks.
//
// Every accepted send completes exactly once, by Receiver::on_sent: also when the peer is lost, and
// then only after no byte of it will be read again. Loss of a peer is reported exactly once, after
// which send() to it is refused by writable() == false and no message from it is delivered.
#ifndef PARALLAX_TRANSPORT_TRANSPORT_H_
#define PARALLAX_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/boards.h"
#include "transport/peer_memory.h"
#include "transport/remote_writes.h"

namespace parallax {

// One piece of a gather list. Borrowed until the send completes.
struct Segment {
  const void* data = nullptr;
  size_t bytes = 0;
};

// Of a message that is longer: the beginning by which a receiver knows where the rest goes.
inline constexpr size_t kMessageHeadBytes = 48;
inline constexpr size_t kSegmentsMax = 8;          // pieces in one gather list
inline constexpr size_t kMessageBytesMin = 4096;   // every transport carries at least this much
inline constexpr uint32_t kSendsInFlightMax = 16;  // credits: messages in flight to one peer

// What a transport knows of a peer that it lost.
enum class Loss : uint8_t {
  kBroken,   // the connection ended: its process died, or ended for a reason of its own
  kDead,     // its process has ended, or breaks the protocol: after all it had to say
  kOwnLack,  // this rank cannot connect, for want of a port, a descriptor or memory: not its fault
};

class Receiver {
 public:
  // One whole message, contiguous, valid during the call only: sum it where it lies, or copy it.
  // May call send() on the transport. The bytes are a peer's: check before use. Unaligned.
  virtual void on_message(uint32_t from, std::span<const std::byte> message) = 0;
  // Of a message only the head has been read, kMessageHeadBytes. Null, use now: it comes by
  // on_message(), once it is whole. Else the rest is received there, in whatever pieces, and then
  // on_placed() is called, or the sender is lost. Asked again before each piece is written, and
  // before nothing else: the answer stays the same, or becomes null for good, as where a job has
  // failed; then no more is written there, and the message is dropped. May not call send().
  virtual std::byte* place(uint32_t /*from*/, std::span<const std::byte> /*head*/,
                           size_t /*rest_bytes*/) {
    return nullptr;
  }
  // A message whose rest lies where place() said. Else as on_message().
  virtual void on_placed(uint32_t /*from*/, std::span<const std::byte> /*head*/,
                         size_t /*rest_bytes*/) {}
  // The send with this cookie no longer needs its segments; it says nothing about room for the
  // next. May call send() on the transport.
  virtual void on_sent(uint64_t cookie) = 0;
  // `why` is one clause, such as "connection reset" or "process 4711 exited".
  virtual void on_lost(uint32_t rank, Loss loss, std::string_view why) = 0;

 protected:
  ~Receiver() = default;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // "inproc", "shm", "ucx", "sim": for reports and errors.
  virtual std::string_view name() const = 0;

  // Largest message, all segments together.
  virtual size_t message_bytes_max() const = 0;

  // True while a credit to this peer is free; false also for a lost or forgotten peer, and for the
  // own rank. Where it was false for want of room, regained room is news: wait_fd() becomes
  // readable, or arm() says false, and the next poll() returns true.
  virtual bool writable(uint32_t to) const = 0;

  // Sends one message; only while writable(to). `cookie` comes back through on_sent, possibly from
  // within this call's next poll, never from within this call. An error means the peer is lost (it
  // will be reported by on_lost) and completes nothing. Connects on first use.
  virtual Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) = 0;

  // True: send() to this peer has read the segments when it returns, so they need not stay until
  // the send completes.
  virtual bool copies_sends(uint32_t /*to*/) const { return false; }

  // Writing into peers' memory; null: this transport cannot.
  virtual RemoteWrites* remote_writes() { return nullptr; }

  // Delivers what is there, without blocking: messages, completions, losses. A bounded batch.
  // Returns true if anything was delivered or moved.
  virtual bool poll(Receiver& receiver) = 0;

  // Readable (level-triggered) once there is something to poll after arm() returned true;
  // -1 if this transport is never waited for (the simulator).
  virtual int wait_fd() const = 0;

  // Prepares for blocking on wait_fd(). False: something is there already, poll again.
  virtual bool arm() = 0;

  // Drops everything to and from a peer that membership has declared lost or that said goodbye; its
  // sends complete (in a later poll) and on_lost is not called for it any more.
  virtual void forget(uint32_t rank) = 0;

  // Buffers that ranks of this transport can read where they lie. Null: it has no such way, or none
  // of its ranks has. What is mapped of a rank goes with its loss, or as it is forgotten.
  virtual PeerMemory* peer_memory() { return nullptr; }

  // Memory that ranks of this transport read of each other. Null: as above.
  virtual Boards* boards() { return nullptr; }
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TRANSPORT_H_
