// SPDX-License-Identifier: Apache-2.0
// Fuzz: what another rank brings to a rendezvous. Whatever is taken must be written back as it was.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/endpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::span<const std::byte> blob = std::as_bytes(std::span(data, bytes));
  parallax::Endpoint endpoint;
  if (!parallax::decode_endpoint(blob, &endpoint).ok()) return 0;
  const std::string again = parallax::encode_endpoint(endpoint);
  if (again != std::string(reinterpret_cast<const char*>(data), bytes)) std::abort();
  return 0;
}
