// SPDX-License-Identifier: Apache-2.0
// What `parallax doctor` finds. A finding says what was looked at, how it stands and, unless it is
// well, the remedy. Checks of one machine: doctor_machine.cc; of RDMA devices: doctor_rdma.cc;
// among ranks: doctor_ranks.cc.
#ifndef PARALLAX_TOOL_DOCTOR_H_
#define PARALLAX_TOOL_DOCTOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/settings.h"
#include "tool/rank_identity.h"

namespace parallax::tool {

// For one connection to be made and answered.
inline constexpr int64_t kProbeTimeoutMs = 2000;

enum class Verdict { kOk, kWarn, kFail };
const char* verdict_name(Verdict verdict);  // "OK", "WARN", "FAIL"

struct Finding {
  std::string check;  // "memlock"
  Verdict verdict = Verdict::kOk;
  std::string text;
  std::string remedy;  // "" for OK
};

class Findings {
 public:
  void ok(const std::string& check, const std::string& text) {
    list_.push_back({check, Verdict::kOk, text, ""});
  }
  void warn(const std::string& check, const std::string& text, const std::string& remedy) {
    list_.push_back({check, Verdict::kWarn, text, remedy});
  }
  void fail(const std::string& check, const std::string& text, const std::string& remedy) {
    list_.push_back({check, Verdict::kFail, text, remedy});
  }
  const std::vector<Finding>& list() const { return list_; }
  bool any_fail() const {
    for (const Finding& each : list_) {
      if (each.verdict == Verdict::kFail) return true;
    }
    return false;
  }

 private:
  std::vector<Finding> list_;
};

struct RdmaFacts;

// Limits, shared memory, the UCX module, ports, interfaces, the clock, the log. Blocks for a
// second.
void check_machine(const Settings& settings, uint32_t world, const RdmaFacts& rdma,
                   Findings* findings);

// With the other ranks, which do the same: blocks up to timeout_ms.
void check_ranks(const RankIdentity& identity, uint32_t timeout_ms, const Settings& settings,
                 const RdmaFacts& rdma, Findings* findings);

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_DOCTOR_H_
