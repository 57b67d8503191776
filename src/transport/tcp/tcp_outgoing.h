// SPDX-License-Identifier: Apache-2.0
// TcpOutgoing: the frames on their way to one peer: those that the kernel has not taken yet, in
// order, at most kSendsInFlightMax messages, and the credits of both directions (kTcpCreditBytes):
// those left for messages to the peer, and those owed to it. A message is sealed once there is a
// connection, and
// sent by one gathering system call: encrypted into a buffer that stays in cache, else from where
// the caller's bytes lie. What the kernel does not take of these waits in a buffer too, so that
// they are read no more. Owned by the transport's owner; nothing blocks, and a send allocates
// nothing once the buffers are there.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_OUTGOING_H_
#define PARALLAX_TRANSPORT_TCP_TCP_OUTGOING_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/tcp/tcp_frames.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/transport.h"

namespace parallax {

// Buffers of a frame each. The one given back last is taken first: it is still in cache.
class TcpBuffers {
 public:
  std::byte* take();
  void give(std::byte* buffer) { free_.push_back(buffer); }  // has room since take()

 private:
  std::vector<std::unique_ptr<std::byte[]>> all_;
  std::vector<std::byte*> free_;
};

// What transports count of system calls, for reports and tests.
struct TcpCounters {
  uint64_t frames_sent = 0;
  uint64_t frames_received = 0;
  uint64_t credits_sent = 0;  // of the frames sent, those for credits alone
  uint64_t send_calls = 0;
  uint64_t receive_calls = 0;  // those that brought bytes
  uint64_t looks = 0;          // epoll was asked
};

class TcpOutgoing {
 public:
  // The kernel has taken the message, or it was dropped: its segments are read no more.
  class Done {
   public:
    virtual void on_taken(uint64_t cookie) = 0;

   protected:
    ~Done() = default;
  };

  TcpOutgoing(TcpBuffers& buffers, TcpCounters& counters)
      : buffers_(buffers), counters_(counters) {}
  ~TcpOutgoing();
  TcpOutgoing(const TcpOutgoing&) = delete;
  TcpOutgoing& operator=(const TcpOutgoing&) = delete;

  bool has_room() const { return messages_ < kSendsInFlightMax && !lacks_credit(); }
  // For the largest message.
  bool lacks_credit() const { return credit_left_ < tcp_credits_of(kTcpBodyBytesMax); }
  // What the peer gives back. False: more than it was sent.
  [[nodiscard]] bool regain(size_t credit_bytes);
  // A message of the peer's was taken. False: the peer had no credit for it.
  [[nodiscard]] bool owe(size_t credit_bytes);
  // So much that it is not left to what goes there next: flush() sends it.
  bool owes_much() const { return credit_owed_ >= kTcpCreditBytes / 4; }
  bool empty() const { return count_ == 0; }
  // The kernel took less than it was given: flush() again once the socket is writable.
  bool blocked() const { return blocked_; }
  void unblock() { blocked_ = false; }

  // While has_room().
  void add_message(std::span<const Segment> segments, uint64_t cookie);
  // Once; ahead of all messages, none of which is sealed yet.
  void add_welcome();
  // Once, and nothing after it.
  void add_goodbye() { push(TcpFrameType::kGoodbye); }
  // Seals what is not, and hands over what the kernel takes; of what it does not take nothing is
  // the caller's any more. errno's number, or 0.
  int flush(int socket, TcpSealer& sealer, Done& done);
  // Everything completes, and nothing is left.
  void drop(Done& done);

 private:
  static constexpr size_t kSlots = kSendsInFlightMax + 3;  // one of each kind of control frame
  static constexpr size_t kPiecesMax = kSegmentsMax + 2;   // header and tag
  static constexpr size_t kGatherMax = 64;

  struct Slot {
    TcpFrameType type = TcpFrameType::kMessage;
    uint64_t cookie = 0;
    uint32_t segment_count = 0;
    uint32_t piece_count = 0;  // 0: not sealed yet
    uint32_t piece_first = 0;
    size_t body_bytes = 0;
    std::byte* buffer = nullptr;  // of buffers_: what is left to send lies there
    std::array<Segment, kSegmentsMax> segments = {};
    std::array<iovec, kPiecesMax> pieces = {};
    std::array<std::byte, kTcpHeaderBytes> header = {};
    std::array<std::byte, kTcpTagBytes> tag = {};
  };

  Slot& slot(size_t i) { return slots_[(first_ + i) % kSlots]; }
  Slot& push(TcpFrameType type);
  static void reset(Slot& slot, TcpFrameType type);
  void seal(Slot& slot, TcpSealer& sealer);
  int hand_over(int socket, TcpSealer& sealer, Done& done);
  void keep_rest();
  size_t gather(std::array<iovec, kGatherMax>* pieces, size_t* bytes);
  void take_off(size_t bytes, Done& done);
  void pop(Done& done);

  TcpBuffers& buffers_;
  TcpCounters& counters_;
  std::array<Slot, kSlots> slots_ = {};
  size_t first_ = 0;
  size_t count_ = 0;
  size_t unsealed_ = 0;  // the last of them
  uint32_t messages_ = 0;
  size_t credit_left_ = kTcpCreditBytes;
  size_t credit_owed_ = 0;
  bool blocked_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_OUTGOING_H_
