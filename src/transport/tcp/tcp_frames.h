// SPDX-License-Identifier: Apache-2.0
// Frames of one direction of a connection, protected by an AEAD of OpenSSL's: TcpSealer makes them,
// TcpOpener takes them apart. The nonce is the number of the frame in its direction, which does not
// travel: a frame that is repeated, left out, moved, cut, or of the other direction does not open.
// Keys follow from the secret of the direction, and change by count:
//
//   secret 0 from TLS's exporter; key, iv of n = HKDF-Expand(secret n, "libparallax tcp 1 key",
//   "... iv"); secret n+1 = HKDF-Expand(secret n, "libparallax tcp 1 next") nonce = iv XOR the
//   frame's number (big-endian, right-aligned), as in TLS 1.3 (RFC 8446, 5.3)
//
// One caller at a time each. Nothing blocks; a frame allocates nothing, but the first of a key.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_FRAMES_H_
#define PARALLAX_TRANSPORT_TCP_TCP_FRAMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/crypto.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/transport.h"

struct evp_cipher_ctx_st;
struct evp_cipher_st;

namespace parallax {

// The keys of one direction, frame by frame.
class TcpFrameKeys {
 public:
  TcpFrameKeys(const TcpSuite& suite, const Key& secret, bool seals);
  ~TcpFrameKeys();
  TcpFrameKeys(const TcpFrameKeys&) = delete;
  TcpFrameKeys& operator=(const TcpFrameKeys&) = delete;

  const TcpSuite& suite() const { return suite_; }
  // OpenSSL's context, ready for the next frame. Throws InternalError should OpenSSL fail.
  evp_cipher_ctx_st* next();

 private:
  static constexpr size_t kNonceBytes = 12;

  void take_key();

  const TcpSuite suite_;
  const bool seals_;
  Key secret_;
  std::array<unsigned char, kNonceBytes> iv_ = {};
  uint64_t number_ = 0;  // of the next frame
  evp_cipher_st* cipher_ = nullptr;
  evp_cipher_ctx_st* context_ = nullptr;
};

class TcpSealer {
 public:
  TcpSealer(const TcpSuite& suite, const Key& secret) : keys_(suite, secret, true) {}

  const TcpSuite& suite() const { return keys_.suite(); }
  // Writes the header, and the tag of the frame if it has one. Under kEncrypt `body` gets the
  // ciphertext, as many bytes as all segments have; else it is not touched, and the segments are
  // the body.
  void seal(const TcpFrameHeader& header, std::span<const Segment> segments, std::byte* header_out,
            std::byte* body, std::byte* tag);

 private:
  TcpFrameKeys keys_;
};

class TcpOpener {
 public:
  TcpOpener(const TcpSuite& suite, const Key& secret) : keys_(suite, secret, false) {}

  const TcpSuite& suite() const { return keys_.suite(); }
  // A whole frame of at least a header and a tag: header, body, tag. The body is decrypted in its
  // place. False: it is not the peer's next frame, and nothing of it is to be used.
  bool open(std::span<std::byte> frame);

 private:
  TcpFrameKeys keys_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_FRAMES_H_
