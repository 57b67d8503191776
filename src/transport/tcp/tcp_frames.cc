// SPDX-License-Identifier: Apache-2.0
// AEAD by OpenSSL. See tcp_frames.h.
#include "transport/tcp/tcp_frames.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/check.h"

namespace parallax {

namespace {

unsigned char* octets(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* octets(const void* bytes) { return static_cast<const unsigned char*>(bytes); }

// Bytes that are authenticated and stay in clear. At most kTcpBodyBytesMax, so an int holds them.
bool add_clear(evp_cipher_ctx_st* context, const void* bytes, size_t count) {
  int ignored = 0;
  return EVP_CipherUpdate(context, nullptr, &ignored, octets(bytes), static_cast<int>(count)) == 1;
}

}  // namespace

TcpFrameKeys::TcpFrameKeys(const TcpSuite& suite, const Key& secret, bool seals)
    : suite_(suite), seals_(seals), secret_(secret) {
  if (suite_.security == TcpSecurity::kHandshake) return;
  cipher_ = EVP_CIPHER_fetch(nullptr, tcp_cipher_name(suite_.cipher), nullptr);
  context_ = EVP_CIPHER_CTX_new();
  PARALLAX_CHECK(cipher_ != nullptr && context_ != nullptr);
}

TcpFrameKeys::~TcpFrameKeys() {
  EVP_CIPHER_CTX_free(context_);  // wipes the key
  EVP_CIPHER_free(cipher_);
}

void TcpFrameKeys::take_key() {
  const Key key = hkdf_expand(secret_, "libparallax tcp 1 key");
  const Key iv = hkdf_expand(secret_, "libparallax tcp 1 iv");
  std::copy_n(iv.bytes.begin(), iv_.size(), iv_.begin());
  secret_ = hkdf_expand(secret_, "libparallax tcp 1 next");
  PARALLAX_CHECK(EVP_CipherInit_ex2(context_, cipher_, key.bytes.data(), iv_.data(), seals_ ? 1 : 0,
                                    nullptr) == 1);
}

evp_cipher_ctx_st* TcpFrameKeys::next() {
  if (number_ % suite_.frames_per_key == 0) take_key();
  std::array<unsigned char, kNonceBytes> nonce = iv_;
  for (size_t i = 0; i < sizeof number_; ++i) {
    nonce[kNonceBytes - 1 - i] ^= static_cast<unsigned char>(number_ >> 8 * i);
  }
  ++number_;
  PARALLAX_CHECK(EVP_CipherInit_ex2(context_, nullptr, nullptr, nonce.data(), -1, nullptr) == 1);
  return context_;
}

void TcpSealer::seal(const TcpFrameHeader& header, std::span<const Segment> segments,
                     std::byte* header_out, std::byte* body, std::byte* tag) {
  encode_tcp_header(header, header_out);
  const TcpSecurity security = suite().security;
  if (security == TcpSecurity::kHandshake) return;
  evp_cipher_ctx_st* const context = keys_.next();
  bool good = add_clear(context, header_out, kTcpHeaderBytes);
  for (const Segment& segment : segments) {
    if (segment.bytes == 0) continue;
    if (security == TcpSecurity::kAuthenticate) {
      good = good && add_clear(context, segment.data, segment.bytes);
      continue;
    }
    int made = 0;
    good = good && EVP_CipherUpdate(context, octets(body), &made, octets(segment.data),
                                    static_cast<int>(segment.bytes)) == 1;
    body += made;
  }
  unsigned char nothing[kTcpTagBytes];
  int left = 0;
  good = good && EVP_CipherFinal_ex(context, nothing, &left) == 1 && left == 0 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTcpTagBytes, tag) == 1;
  PARALLAX_CHECK(good);
}

bool TcpOpener::open(std::span<std::byte> frame) {
  const TcpSecurity security = suite().security;
  if (security == TcpSecurity::kHandshake) return true;
  PARALLAX_CHECK(frame.size() >= kTcpHeaderBytes + kTcpTagBytes);
  evp_cipher_ctx_st* const context = keys_.next();
  const size_t body_bytes = frame.size() - kTcpHeaderBytes - kTcpTagBytes;
  std::byte* const body = frame.data() + kTcpHeaderBytes;
  bool good =
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTcpTagBytes, body + body_bytes) == 1;
  if (security == TcpSecurity::kAuthenticate) {
    good = good && add_clear(context, frame.data(), kTcpHeaderBytes + body_bytes);
  } else {
    good = good && add_clear(context, frame.data(), kTcpHeaderBytes);
    int made = 0;
    if (body_bytes > 0) {
      good = good && EVP_CipherUpdate(context, octets(body), &made, octets(body),
                                      static_cast<int>(body_bytes)) == 1;
    }
  }
  unsigned char nothing[kTcpTagBytes];
  int left = 0;
  return good && EVP_CipherFinal_ex(context, nothing, &left) == 1;
}

}  // namespace parallax
