// SPDX-License-Identifier: Apache-2.0
// What two ranks agree on to talk over tcp: the header of a frame, how frames are protected, and
// what a rank tells the others of itself. docs/transports.md describes all of it byte by byte.
// Pure; any thread. What is decoded is a peer's: everything is checked before use.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_WIRE_H_
#define PARALLAX_TRANSPORT_TCP_TCP_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto.h"
#include "base/socket_address.h"
#include "base/status.h"

namespace parallax {

inline constexpr size_t kTcpHeaderBytes = 8;
inline constexpr size_t kTcpTagBytes = 16;
inline constexpr size_t kTcpBodyBytesMax = 64 << 10;
inline constexpr size_t kTcpFrameBytesMax = kTcpHeaderBytes + kTcpBodyBytesMax + kTcpTagBytes;

// Credits of one direction of a connection, in bytes of messages with their headers: so much may be
// under way that its receiver has not taken. What it takes it gives back in the header of whatever
// it sends next, or in a frame of its own once that is a quarter.
inline constexpr size_t kTcpCreditBytes = 2 << 20;
inline constexpr size_t kTcpCreditBytesMax = (1 << 24) - 1;  // that a header can give back

// How the frames of a job are protected: the setting `security`. Numbers are the wire's.
enum class TcpSecurity : uint8_t {
  kEncrypt = 0,       // read and altered by nobody
  kAuthenticate = 1,  // altered by nobody, in clear
  kHandshake = 2,     // in clear, unprotected; who connects is still authenticated
};

enum class TcpCipher : uint8_t {
  kAes128Gcm = 1,         // where both ends have AES in hardware
  kChaCha20Poly1305 = 2,  // elsewhere
};

// Frames of one connection. One key protects `frames_per_key` of them.
struct TcpSuite {
  TcpSecurity security = TcpSecurity::kEncrypt;
  TcpCipher cipher = TcpCipher::kAes128Gcm;
  uint64_t frames_per_key = uint64_t{1} << 20;

  size_t tag_bytes() const { return security == TcpSecurity::kHandshake ? 0 : kTcpTagBytes; }
};

enum class TcpFrameType : uint8_t {
  kMessage = 1,
  kWelcome = 2,  // the listening side's first frame: the connection stands
  kGoodbye = 3,  // the last one: what ends without it was cut
  kCredit = 4,   // nothing but what its header gives back
};

struct TcpFrameHeader {
  uint32_t body_bytes = 0;
  TcpFrameType type = TcpFrameType::kMessage;
  uint32_t credit_bytes = 0;  // of the other direction, that are given back: kTcpCreditBytesMax
};

// What a message takes of its direction's credits.
inline size_t tcp_credits_of(size_t body_bytes) { return kTcpHeaderBytes + body_bytes; }

void encode_tcp_header(const TcpFrameHeader& header, std::byte* out);
// False: no frame begins so; *header then holds what it says all the same. `body_bytes_max` bounds
// a message; the other types have no body.
bool decode_tcp_header(const std::byte* bytes, size_t body_bytes_max, TcpFrameHeader* header);

// "encrypt", "authenticate", "handshake"; "AES-128-GCM", "ChaCha20-Poly1305".
const char* tcp_security_name(TcpSecurity security);
const char* tcp_cipher_name(TcpCipher cipher);

// Whether this machine computes AES-GCM by instructions of its own.
bool has_aes_hardware();
TcpCipher agreed_cipher(bool aes_here, bool aes_there);

// What the other ranks need to reach a rank, and to be believed by it.
struct TcpEndpoint {
  SocketAddress listens;  // with its port
  TcpSecurity security = TcpSecurity::kEncrypt;
  bool aes = false;  // it has AES in hardware
  Key salt;          // random: part of the key of each connection that it accepts
};

std::string encode_tcp_endpoint(const TcpEndpoint& endpoint);
// INVALID.
Status decode_tcp_endpoint(std::string_view bytes, TcpEndpoint* endpoint);

// A rank with several rails says all their endpoints; one alone as it is.
std::string encode_tcp_rails(const std::vector<std::string>& endpoints);
// Of either; each still to be decoded. INVALID.
Status decode_tcp_rails(std::string_view bytes, std::vector<std::string>* endpoints);

// Who connects to whom, in which job; sent in clear, and bound into the key.
struct TcpIdentity {
  uint64_t job = 0;
  uint32_t epoch = 0;
  uint32_t world = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t version = 0;  // of the library
  TcpSuite suite;

  std::string text() const;
};

// Whom an identity names as the one that connects; false: none.
bool identity_from(std::string_view identity, uint32_t* from);

// The job's key, from the secret by which its ranks know each other. Without one, that the ranks
// of a job agree in it means nothing.
Key tcp_job_key(std::string_view secret, uint64_t job);

// The pre-shared key of a connection, from the job's key and the salt of the rank that listens.
Key tcp_shared_key(const Key& job_key, const Key& listener_salt, std::string_view identity);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_WIRE_H_
