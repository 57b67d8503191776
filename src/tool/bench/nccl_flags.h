// SPDX-License-Identifier: Apache-2.0
// Flags and words of nccl-tests that command lines bring along and that have, here, one true value
// or none: that value is taken, any other refused with the reason. One thread.
#ifndef PARALLAX_TOOL_BENCH_NCCL_FLAGS_H_
#define PARALLAX_TOOL_BENCH_NCCL_FLAGS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
}

namespace parallax::tool::bench {

struct FixedFlag;  // a row of their table

class FixedFlags {
 public:
  // `bench wire` fixes some that the operations choose by.
  enum class Bench : uint8_t { kOperations, kWire };
  explicit FixedFlags(Bench bench);
  // Must outlive the parsing by `app`.
  void add(CLI::App& app);
  // UNSUPPORTED names flag, value and why.
  Status check() const;

 private:
  std::vector<const FixedFlag*> flags_;
  std::vector<std::string> values_;  // by flag; "": not given
};

// UNSUPPORTED for a type (-d) or an operation (-o) that nccl-tests has and this library does not.
Status refuse_nccl_word(const std::string& flag, const std::string& word);

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_NCCL_FLAGS_H_
