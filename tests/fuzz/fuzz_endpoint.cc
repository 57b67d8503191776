// SPDX-License-Identifier: Apache-2.0
// Fuzz: what another rank brings to a rendezvous. Whatever is taken must be written back as it was.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "transport/endpoint.h"

namespace {
constexpr size_t kRankAt = 4;  // in addresses, behind the magic number
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::span<const std::byte> blob = std::as_bytes(std::span(data, bytes));
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  parallax::Endpoint endpoint;
  if (parallax::decode_endpoint(blob, &endpoint).ok()) {
    if (parallax::encode_endpoint(endpoint) != text) std::abort();
  }
  // They are taken for the rank that they name.
  parallax::Endpoint other;
  if (bytes >= kRankAt + sizeof other.rank) {
    std::memcpy(&other.rank, data + kRankAt, sizeof other.rank);
  }
  if (parallax::decode_addresses(blob, &other).ok()) {
    if (parallax::encode_addresses(other) != text) std::abort();
  }
  return 0;
}
