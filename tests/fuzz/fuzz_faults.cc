// SPDX-License-Identifier: Apache-2.0
// Fuzz: fault rules as users write them. A refusal has a sentence and changes nothing.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "transport/faulty/fault_rules.h"

namespace {
constexpr uint32_t kWorld = 5;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  parallax::FaultyOptions options;
  options.seed = 42;
  const parallax::Status status = parallax::parse_faults(
      std::string_view(reinterpret_cast<const char*>(data), bytes), kWorld, &options);
  if (status.ok()) {
    for (const parallax::FaultRule& rule : options.rules) {
      if (rule.peer != parallax::kAnyPeer && rule.peer >= kWorld) std::abort();
    }
    return 0;
  }
  if (status.message().empty() || options.seed != 42 || !options.rules.empty()) std::abort();
  return 0;
}
