// SPDX-License-Identifier: Apache-2.0
// What ranks need of cryptography: HMAC-SHA256, SHA-256 and a constant-time compare, all
// OpenSSL's, and random bytes of the kernel's. Keys are wiped when they go. Any thread; nothing
// blocks, but random bytes do until the machine has gathered entropy after its start.
#ifndef PARALLAX_BASE_CRYPTO_H_
#define PARALLAX_BASE_CRYPTO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace parallax {

inline constexpr size_t kKeyBytes = 32;
inline constexpr size_t kMacBytes = 32;
inline constexpr size_t kDigestBytes = 32;

struct Key {
  Key() = default;
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();

  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::array<unsigned char, kKeyBytes> bytes{};
};

// HMAC-SHA256 (RFC 2104) of the parts, one after the other. Throws InternalError should OpenSSL
// fail.
std::string hmac(std::string_view key, std::string_view first, std::string_view second = {});
inline std::string hmac(const Key& key, std::string_view first, std::string_view second = {}) {
  return hmac(key.view(), first, second);
}

// SHA-256. Throws InternalError should OpenSSL fail.
std::string sha256(std::string_view bytes);

// A key for one purpose, which `label` names, from another key or from a secret of any length.
Key derive_key(std::string_view from, std::string_view label, std::string_view context = {});

// HKDF (RFC 5869) over SHA-256. What is expanded is one block, 32 bytes, of which a caller may use
// the first ones alone.
Key hkdf_extract(std::string_view salt, std::string_view input);
Key hkdf_expand(const Key& key, std::string_view info);

// In constant time: how long it takes does not tell where they differ.
bool same_bytes(std::string_view one, std::string_view other);

// 1 to 256 bytes.
std::string random_bytes(size_t count);

// Overwrites a secret that is not needed any more.
void wipe(std::string* secret);

}  // namespace parallax

#endif  // PARALLAX_BASE_CRYPTO_H_
