// SPDX-License-Identifier: Apache-2.0
// HMAC, digest, compare and random bytes: see the header. OpenSSL is used here and in
// transport/tcp alone.
#include "base/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"

namespace parallax {

namespace {
constexpr size_t kRandomBytesMax = 256;  // getentropy gives no more

Key key_of(std::string mac) {
  Key key;
  std::copy(mac.begin(), mac.end(), key.bytes.begin());
  wipe(&mac);
  return key;
}

}  // namespace

Key::~Key() { OPENSSL_cleanse(bytes.data(), bytes.size()); }

std::string hmac(std::string_view key, std::string_view first, std::string_view second) {
  std::string joined;
  std::string_view text = first;
  if (!second.empty()) {
    joined.reserve(first.size() + second.size());
    joined.append(first).append(second);
    text = joined;
  }
  std::string mac(kMacBytes, '\0');
  unsigned int bytes = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(mac.data()), &bytes);
  PARALLAX_CHECK(made != nullptr && bytes == kMacBytes);
  return mac;
}

std::string sha256(std::string_view bytes) {
  std::string digest(kDigestBytes, '\0');
  unsigned int count = 0;
  const int made =
      EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 &count, EVP_sha256(), nullptr);
  PARALLAX_CHECK(made == 1 && count == kDigestBytes);
  return digest;
}

Key derive_key(std::string_view from, std::string_view label, std::string_view context) {
  std::string text(label);
  text.push_back('\0');
  return key_of(hmac(from, text, context));
}

Key hkdf_extract(std::string_view salt, std::string_view input) {
  return key_of(hmac(salt, input));
}

Key hkdf_expand(const Key& key, std::string_view info) {
  return key_of(hmac(key.view(), info, std::string_view("\1", 1)));
}

bool same_bytes(std::string_view one, std::string_view other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

std::string random_bytes(size_t count) {
  PARALLAX_CHECK(count > 0 && count <= kRandomBytesMax);
  std::string bytes(count, '\0');
  PARALLAX_CHECK(::getentropy(bytes.data(), bytes.size()) == 0);
  return bytes;
}

void wipe(std::string* secret) {
  OPENSSL_cleanse(secret->data(), secret->size());
  secret->clear();
}

}  // namespace parallax
