// SPDX-License-Identifier: Apache-2.0
// Frames of the tcp rendezvous, and the Channel that authenticates them once a handshake is done.
// Pure: bytes in, bytes out.
//
//   plain frame (handshake only)   u32 body bytes, u8 kind, body
//   sealed frame                   the same, then HMAC-SHA256(key of this direction,
//                                  u64 number of the frame, u32, u8, body)
//
// A sealed frame is accepted only as the next one of its direction and session: a repeat, a gap, a
// change, or a frame of the other direction or of another session breaks the channel. Nothing is
// encrypted. Lengths are capped before a byte is kept.
#ifndef PARALLAX_RENDEZVOUS_FRAME_H_
#define PARALLAX_RENDEZVOUS_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/crypto.h"

namespace parallax {

enum class FrameKind : uint8_t {
  // The handshake's: see handshake.h.
  kHello = 1,
  kChallenge = 2,
  kProof = 3,
  kWelcome = 4,
  kRefusal = 5,
  // Sealed; to rank 0 ("up"), from it ("down"):
  kKeepalive = 16,  // both
  kBring = 17,      // up: u64 round, then the blob
  kBlobs = 18,      // down, or from a parent to a child: a BlobPiece (roster_frames.h)
  kLeave = 19,      // up: a status, the reason
  kVerdict = 20,    // down: a status; why the rendezvous is over
  kAsk = 21,        // up: u64 round; asks for
  kAnswer = 22,     // down: the verdict, and as a text who is missing in that round
  kBye = 23,        // up: this rank no longer needs the rendezvous
  kListen = 24,     // up: u16 port at which its children reach this rank; 0: they cannot
  kParent = 25,     // down: a ParentAddress
  kComplete = 26,   // down: a CompleteRound
  kFetch = 27,      // up: a FetchRequest
};

inline constexpr size_t kFrameHeadBytes = 5;
inline constexpr size_t kHandshakeBodyBytesMax = 2048;
inline constexpr size_t kSealedBodyBytesMax = 64 * 1024;
inline constexpr size_t kSentenceBytesMax = 1024;

struct Frame {
  FrameKind kind{};
  std::string_view body;  // of the bytes given
};

enum class Took { kFrame, kMore, kBroken };

void put_frame(std::string* out, FrameKind kind, std::string_view body);
// Takes the first frame of `bytes`; *used is its length. kBroken: its body is longer than
// `body_bytes_max`.
Took take_frame(std::string_view bytes, size_t body_bytes_max, Frame* frame, size_t* used);

class Channel {
 public:
  Channel(const Key& send, const Key& receive) : send_(send), receive_(receive) {}

  void seal(FrameKind kind, std::string_view body, std::string* out);
  // As take_frame; kBroken for good if the frame is not the peer's next one.
  Took open(std::string_view bytes, Frame* frame, size_t* used);

 private:
  Key send_;
  Key receive_;
  uint64_t sent_count_ = 0;
  uint64_t received_count_ = 0;
  bool broken_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_FRAME_H_
