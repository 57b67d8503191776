// SPDX-License-Identifier: Apache-2.0
// Bytes of headers, endpoints and identities. See tcp_wire.h.
#include "transport/tcp/tcp_wire.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/codec.h"
#include "transport/module/network_transport.h"

namespace parallax {

namespace {

constexpr uint8_t kEndpointLayout = 1;
constexpr uint8_t kRailsLayout = 2;
constexpr size_t kTcpEndpointBytesMax = 64;
constexpr std::string_view kIdentityLead = "libparallax tcp 1 from=";
constexpr std::string_view kSharedKeyLead = "libparallax tcp 1 psk ";

}  // namespace

// Little-endian.
void encode_tcp_header(const TcpFrameHeader& header, std::byte* out) {
  for (size_t i = 0; i < 4; ++i) out[i] = static_cast<std::byte>(header.body_bytes >> 8 * i);
  out[4] = static_cast<std::byte>(header.type);
  for (size_t i = 0; i < 3; ++i) out[5 + i] = static_cast<std::byte>(header.credit_bytes >> 8 * i);
}

bool decode_tcp_header(const std::byte* bytes, size_t body_bytes_max, TcpFrameHeader* header) {
  const auto number = [bytes](size_t first, size_t count) {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= static_cast<uint32_t>(bytes[first + i]) << 8 * i;
    return value;
  };
  const auto type = static_cast<TcpFrameType>(bytes[4]);
  *header = {number(0, 4), type, number(5, 3)};
  switch (type) {
    case TcpFrameType::kMessage:
      return header->body_bytes <= body_bytes_max;
    case TcpFrameType::kWelcome:
    case TcpFrameType::kGoodbye:
    case TcpFrameType::kCredit:
      return header->body_bytes == 0;
  }
  return false;
}

const char* tcp_security_name(TcpSecurity security) {
  switch (security) {
    case TcpSecurity::kEncrypt:
      return "encrypt";
    case TcpSecurity::kAuthenticate:
      return "authenticate";
    case TcpSecurity::kHandshake:
      break;
  }
  return "handshake";
}

const char* tcp_cipher_name(TcpCipher cipher) {
  return cipher == TcpCipher::kAes128Gcm ? "AES-128-GCM" : "ChaCha20-Poly1305";
}

bool has_aes_hardware() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
  constexpr unsigned long kAesAndPmull = 1 << 3 | 1 << 4;  // HWCAP_AES, HWCAP_PMULL
  return (getauxval(AT_HWCAP) & kAesAndPmull) == kAesAndPmull;
#else
  return false;
#endif
}

TcpCipher agreed_cipher(bool aes_here, bool aes_there) {
  return aes_here && aes_there ? TcpCipher::kAes128Gcm : TcpCipher::kChaCha20Poly1305;
}

std::string encode_tcp_endpoint(const TcpEndpoint& endpoint) {
  std::string out;
  put_number(&out, kEndpointLayout);
  put_number(&out, static_cast<uint8_t>(endpoint.security));
  put_number(&out, static_cast<uint8_t>(endpoint.aes));
  put_text(&out, address_bytes(endpoint.listens), 16);
  put_number(&out, port_of(endpoint.listens));
  out.append(endpoint.salt.view());
  return out;
}

std::string encode_tcp_rails(const std::vector<std::string>& endpoints) {
  std::string out;
  put_number(&out, kRailsLayout);
  put_number(&out, static_cast<uint8_t>(endpoints.size()));
  for (const std::string& each : endpoints) put_text(&out, each, kTcpEndpointBytesMax);
  return out;
}

Status decode_tcp_rails(std::string_view bytes, std::vector<std::string>* endpoints) {
  endpoints->clear();
  ByteReader reader(bytes);
  uint8_t layout = 0, count = 0;
  if (reader.number(&layout) && layout != kRailsLayout) {
    endpoints->emplace_back(bytes);
    return {};
  }
  if (reader.number(&count) && count >= 1 && count <= kRailsMax) endpoints->resize(count);
  for (std::string& each : *endpoints) {
    if (!reader.text(&each, kTcpEndpointBytesMax)) break;
  }
  return !endpoints->empty() && reader.empty() && !endpoints->back().empty()
             ? Status()
             : invalid("its tcp addresses are unreadable");
}

Status decode_tcp_endpoint(std::string_view bytes, TcpEndpoint* endpoint) {
  ByteReader reader(bytes);
  uint8_t layout = 0, security = 0, aes = 0;
  if (!bytes.empty() && bytes[0] == kRailsLayout) {
    return Status(PARALLAX_MISMATCH,
                  "it has several rails by tcp_rails, this rank has one; give every rank as many")
        .about_field("tcp_rails");
  }
  uint16_t port = 0;
  std::string address;
  std::string_view salt;
  if (!reader.number(&layout) || layout != kEndpointLayout || !reader.number(&security) ||
      security > static_cast<uint8_t>(TcpSecurity::kHandshake) || !reader.number(&aes) || aes > 1 ||
      !reader.text(&address, 16) || (address.size() != 4 && address.size() != 16) ||
      !reader.number(&port) || port == 0 || !reader.raw(kKeyBytes, &salt) || !reader.empty()) {
    return invalid("its tcp address is unreadable");
  }
  endpoint->listens = make_address(address, port);
  endpoint->security = static_cast<TcpSecurity>(security);
  endpoint->aes = aes == 1;
  std::copy(salt.begin(), salt.end(), endpoint->salt.bytes.begin());
  return {};
}

std::string TcpIdentity::text() const {
  std::string said(kIdentityLead);
  const auto add = [&said](const char* name, uint64_t value) {
    said += name + std::to_string(value);
  };
  said += std::to_string(from);
  add(" to=", to);
  add(" world=", world);
  add(" epoch=", epoch);
  add(" job=", job);
  add(" version=", version);
  said += " security=";
  said += tcp_security_name(suite.security);
  said += " cipher=";
  said += tcp_cipher_name(suite.cipher);
  return said;
}

bool identity_from(std::string_view identity, uint32_t* from) {
  if (!identity.starts_with(kIdentityLead)) return false;
  identity.remove_prefix(kIdentityLead.size());
  const auto [end, failure] =
      std::from_chars(identity.data(), identity.data() + identity.size(), *from);
  return failure == std::errc() && end != identity.data() + identity.size() && *end == ' ';
}

Key tcp_job_key(std::string_view secret, uint64_t job) {
  std::string salt;
  put_number(&salt, job);
  return hkdf_expand(hkdf_extract(salt, secret), "libparallax tcp 1 job");
}

Key tcp_shared_key(const Key& job_key, const Key& listener_salt, std::string_view identity) {
  const Key extracted = hkdf_extract(listener_salt.view(), job_key.view());
  return hkdf_expand(extracted, std::string(kSharedKeyLead).append(identity));
}

}  // namespace parallax
