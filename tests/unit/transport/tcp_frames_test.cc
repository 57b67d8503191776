// SPDX-License-Identifier: Apache-2.0
// Frames and the bytes of endpoints and identities: the vectors of docs/transports.md, which
// tests/launch opens with another implementation; and everything that must not open.
#include "transport/tcp/tcp_frames.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace parallax {
namespace {

Key counting_key() {
  Key key;
  for (size_t i = 0; i < kKeyBytes; ++i) key.bytes[i] = static_cast<unsigned char>(i);
  return key;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

using Bytes = std::vector<std::byte>;

std::string hex(const Bytes& bytes) {
  return hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::vector<Segment> pieces_of(std::string_view body, size_t piece_bytes) {
  std::vector<Segment> pieces;
  for (size_t at = 0; at < body.size(); at += piece_bytes) {
    pieces.push_back({body.data() + at, std::min(piece_bytes, body.size() - at)});
  }
  return pieces;
}

Bytes sealed(TcpSealer& sealer, TcpFrameType type, std::string_view body, size_t piece_bytes = 64) {
  const size_t tag_bytes = sealer.suite().tag_bytes();
  Bytes frame(kTcpHeaderBytes + body.size() + tag_bytes);
  std::byte tag[kTcpTagBytes];
  if (!body.empty()) std::memcpy(frame.data() + kTcpHeaderBytes, body.data(), body.size());
  sealer.seal({static_cast<uint32_t>(body.size()), type}, pieces_of(body, piece_bytes),
              frame.data(), frame.data() + kTcpHeaderBytes, tag);
  std::memcpy(frame.data() + kTcpHeaderBytes + body.size(), tag, tag_bytes);
  return frame;
}

struct Vector {
  TcpCipher cipher;
  TcpSecurity security;
  const char* message;
  const char* goodbye;
};

constexpr Vector kVectors[] = {
    {TcpCipher::kAes128Gcm, TcpSecurity::kEncrypt,
     "05000000010000008d5860dd06497ba29b7bf6cba56c5190269c65c309",
     "0000000003000000f8476f9fe739af0a6106c231cdc604ad"},
    {TcpCipher::kAes128Gcm, TcpSecurity::kAuthenticate,
     "050000000100000068656c6c6feeb5a464488143f4bbb8e045e841b515",
     "0000000003000000f8476f9fe739af0a6106c231cdc604ad"},
    {TcpCipher::kChaCha20Poly1305, TcpSecurity::kEncrypt,
     "0500000001000000061991a6ab68bebc3b21dddbe4a224d31e6a1f6475",
     "0000000003000000bb2811543793307c2f924a5601f36e0f"},
    {TcpCipher::kChaCha20Poly1305, TcpSecurity::kAuthenticate,
     "050000000100000068656c6c6f46823ec9c68e304df7dcaa6d7d1e81e2",
     "0000000003000000bb2811543793307c2f924a5601f36e0f"},
};

TcpSuite suite_of(const Vector& vector) {
  return {.security = vector.security, .cipher = vector.cipher};
}

TEST(TcpFrames, are_those_of_the_documentation) {
  for (const Vector& vector : kVectors) {
    TcpSealer sealer(suite_of(vector), counting_key());
    EXPECT_EQ(hex(sealed(sealer, TcpFrameType::kMessage, "hello", 2)), vector.message);
    EXPECT_EQ(hex(sealed(sealer, TcpFrameType::kGoodbye, "")), vector.goodbye);
  }
  TcpSealer rekeyed({.frames_per_key = 2}, counting_key());
  sealed(rekeyed, TcpFrameType::kMessage, "hello");
  sealed(rekeyed, TcpFrameType::kMessage, "hello");
  EXPECT_EQ(hex(sealed(rekeyed, TcpFrameType::kMessage, "hello")),
            "0500000001000000e53148c0330cf4eda41d2a4c7586ccb92ee74c4205");
  TcpSealer gives_back({}, counting_key());
  Bytes credit(kTcpHeaderBytes + kTcpTagBytes);
  gives_back.seal({0, TcpFrameType::kCredit, kTcpCreditBytes / 4 + 8}, {}, credit.data(), nullptr,
                  credit.data() + kTcpHeaderBytes);
  EXPECT_EQ(hex(credit), "00000000040800086bccf8655582db0f38c6c8fe05f60d41");
}

// Given any one bit flipped, a frame again, one left out, or one of another key, expect none to
// open.
TEST(TcpFrames, open_once_in_their_order_and_unaltered) {
  for (const Vector& vector : kVectors) {
    const TcpSuite suite = suite_of(vector);
    TcpSealer sealer(suite, counting_key());
    const Bytes first = sealed(sealer, TcpFrameType::kMessage, "hello");
    const Bytes second = sealed(sealer, TcpFrameType::kMessage, "world");
    for (size_t bit = 0; bit < 8 * first.size(); ++bit) {
      Bytes bent = first;
      bent[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      EXPECT_FALSE(TcpOpener(suite, counting_key()).open(bent)) << "bit " << bit;
    }
    TcpOpener opener(suite, counting_key());
    Bytes copy = first;
    ASSERT_TRUE(opener.open(copy));
    EXPECT_EQ(std::memcmp(copy.data() + kTcpHeaderBytes, "hello", 5), 0);
    copy = first;
    EXPECT_FALSE(opener.open(copy)) << "again";
    copy = second;
    EXPECT_FALSE(TcpOpener(suite, counting_key()).open(copy)) << "the first was left out";
    Key other = counting_key();
    other.bytes[0] ^= 1;
    copy = first;
    EXPECT_FALSE(TcpOpener(suite, other).open(copy)) << "of another direction";
  }
}

// Given keys that change every third frame, and bodies of every awkward size in pieces of any,
// expect all to open.
TEST(TcpFrames, go_on_under_the_next_keys) {
  for (const Vector& vector : kVectors) {
    TcpSuite suite = suite_of(vector);
    suite.frames_per_key = 3;
    TcpSealer sealer(suite, counting_key());
    TcpOpener opener(suite, counting_key());
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17},
                               size_t{4097}, kTcpBodyBytesMax}) {
      const std::string body(bytes, 'x');
      for (const size_t piece : {size_t{7}, size_t{4096}}) {
        Bytes frame = sealed(sealer, TcpFrameType::kMessage, body, piece);
        ASSERT_TRUE(opener.open(frame)) << bytes << " bytes in pieces of " << piece;
        EXPECT_EQ(hex(Bytes(frame.begin() + kTcpHeaderBytes,
                            frame.begin() + static_cast<ptrdiff_t>(kTcpHeaderBytes + bytes))),
                  hex(body));
      }
    }
  }
}

TEST(TcpWire, headers_are_checked) {
  std::byte bytes[kTcpHeaderBytes];
  TcpFrameHeader read;
  encode_tcp_header({1000, TcpFrameType::kMessage}, bytes);
  EXPECT_TRUE(decode_tcp_header(bytes, 1000, &read));
  EXPECT_EQ(read.body_bytes, 1000u);
  EXPECT_FALSE(decode_tcp_header(bytes, 999, &read)) << "longer than any message";
  encode_tcp_header({UINT32_MAX, TcpFrameType::kMessage}, bytes);
  EXPECT_FALSE(decode_tcp_header(bytes, kTcpBodyBytesMax, &read));
  for (const auto type : {TcpFrameType::kWelcome, TcpFrameType::kGoodbye, TcpFrameType::kCredit}) {
    encode_tcp_header({0, type}, bytes);
    EXPECT_TRUE(decode_tcp_header(bytes, 1000, &read));
    encode_tcp_header({1, type}, bytes);
    EXPECT_FALSE(decode_tcp_header(bytes, 1000, &read));
  }
  for (const uint8_t none : {0, 5, 255}) {
    encode_tcp_header({0, TcpFrameType::kMessage}, bytes);
    bytes[4] = std::byte{none};
    EXPECT_FALSE(decode_tcp_header(bytes, 1000, &read)) << "type " << int{none};
  }
  for (const uint32_t credit : {0u, 1u, 0x123456u, uint32_t{kTcpCreditBytesMax}}) {
    encode_tcp_header({7, TcpFrameType::kMessage, credit}, bytes);
    EXPECT_TRUE(decode_tcp_header(bytes, 1000, &read));
    EXPECT_EQ(read.body_bytes, 7u);
    EXPECT_EQ(read.credit_bytes, credit);
  }
}

TEST(TcpWire, endpoints_are_read_as_written_and_no_others) {
  TcpEndpoint endpoint{.listens = make_address(std::string("\x0a\0\0\x01", 4), 31000),
                       .security = TcpSecurity::kAuthenticate,
                       .aes = true,
                       .salt = counting_key()};
  const std::string bytes = encode_tcp_endpoint(endpoint);
  TcpEndpoint read;
  ASSERT_TRUE(decode_tcp_endpoint(bytes, &read).ok());
  EXPECT_EQ(to_text(read.listens), "10.0.0.1:31000");
  EXPECT_EQ(read.security, TcpSecurity::kAuthenticate);
  EXPECT_TRUE(read.aes);
  EXPECT_EQ(read.salt.view(), endpoint.salt.view());
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_EQ(decode_tcp_endpoint(bytes.substr(0, cut), &read).code(), PARALLAX_INVALID) << cut;
  }
  EXPECT_FALSE(decode_tcp_endpoint(bytes + "x", &read).ok());
  for (const auto& [at, value] : {std::pair<size_t, char>{0, 2}, {1, 3}, {2, 2}, {3, 5}}) {
    std::string wrong = bytes;
    wrong[at] = value;
    EXPECT_FALSE(decode_tcp_endpoint(wrong, &read).ok()) << "byte " << at;
  }
}

TEST(TcpWire, endpoints_are_those_of_the_documentation) {
  const std::string salt = hex(counting_key().view());
  TcpEndpoint endpoint{.listens = make_address(std::string("\x0a\0\0\x01", 4), 31000),
                       .security = TcpSecurity::kAuthenticate,
                       .aes = true,
                       .salt = counting_key()};
  const std::string four = encode_tcp_endpoint(endpoint);
  EXPECT_EQ(hex(four), "01010104000a0000011879" + salt);
  endpoint.listens = make_address("\xfd" + std::string(14, '\0') + '\x01', 31000);
  const std::string six = encode_tcp_endpoint(endpoint);
  EXPECT_EQ(hex(six), "0101011000fd0000000000000000000000000000011879" + salt);
  TcpEndpoint read;
  ASSERT_TRUE(decode_tcp_endpoint(six, &read).ok());
  EXPECT_EQ(to_text(read.listens), "[fd00::1]:31000");
  EXPECT_EQ(hex(encode_tcp_rails({four, six})), "02022b00" + hex(four) + "3700" + hex(six));
}

TEST(TcpWire, keys_are_those_of_the_documentation) {
  const TcpIdentity identity{
      .job = 4711, .epoch = 7, .world = 4, .from = 1, .to = 2, .version = 200, .suite = {}};
  EXPECT_EQ(identity.text(),
            "libparallax tcp 1 from=1 to=2 world=4 epoch=7 job=4711 version=200 "
            "security=encrypt cipher=AES-128-GCM");
  uint32_t from = 0;
  ASSERT_TRUE(identity_from(identity.text(), &from));
  EXPECT_EQ(from, 1u);
  for (const char* other :
       {"", "libparallax tcp 1 from=", "libparallax tcp 1 from=x to=2",
        "libparallax tcp 1 from=99999999999 to=2", "libparallax tcp 2 from=1 t"}) {
    EXPECT_FALSE(identity_from(other, &from)) << other;
  }
  const Key job = tcp_job_key("correct horse battery staple", 4711);
  EXPECT_EQ(hex(job.view()), "fcf8385033650f8562f52e52118c97aaf2723f2e7c47ad867832307b41188eb7");
  EXPECT_EQ(hex(tcp_shared_key(job, counting_key(), identity.text()).view()),
            "e762c664258edef5993f87e4433adcaa2a8f2e6a8391d126d8b33ca9f331d4f2");
}

TEST(TcpWire, the_cipher_is_one_that_both_ends_have_in_hardware) {
  EXPECT_EQ(agreed_cipher(true, true), TcpCipher::kAes128Gcm);
  EXPECT_EQ(agreed_cipher(true, false), TcpCipher::kChaCha20Poly1305);
  EXPECT_EQ(agreed_cipher(false, true), TcpCipher::kChaCha20Poly1305);
}

}  // namespace
}  // namespace parallax
