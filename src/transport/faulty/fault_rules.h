// SPDX-License-Identifier: Apache-2.0
// Fault rules: what a FaultyTransport is to do wrong, to which peer, in messages about which
// variable, and when. Plain values, and their text form, which users write:
//
//   seed=7; delay:peer=3,percent=20,ms=50; silence:peer=1,way=in,at=100,for_ms=2000; close:at=200
//
// Rules are separated by ';', the parts of one by ','. Pure; docs/faults.md is the user's page.
#ifndef PARALLAX_TRANSPORT_FAULTY_FAULT_RULES_H_
#define PARALLAX_TRANSPORT_FAULTY_FAULT_RULES_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace parallax {

inline constexpr uint32_t kAnyPeer = UINT32_MAX;
inline constexpr uint32_t kAnyVariable = UINT32_MAX;

enum class InjectedFault : uint8_t {
  kDelay,    // a message is held back by up to amount_ns
  kSilence,  // messages are held back as long as the rule holds
  kStall,    // the thread that drives this rank sleeps once, for for_ns
  kClose,    // the connection of the message breaks, for good
};

enum class Way : uint8_t { kBoth, kOut, kIn };

struct FaultRule {
  InjectedFault fault = InjectedFault::kDelay;
  uint32_t peer = kAnyPeer;
  uint32_t variable = kAnyVariable;  // number of the variable that a message is about
  Way way = Way::kBoth;              // silence alone
  uint64_t at = 0;                   // from the at-th message that it concerns on; 0: at once
  int64_t after_ns = 0;              // and not before so long after open
  int64_t for_ns = kNever;           // for so long from then on
  uint32_t percent = 100;            // delay alone: of the messages
  int64_t amount_ns = 0;             // delay alone
};

struct FaultyOptions {
  uint64_t seed = 1;
  std::vector<FaultRule> rules;
  // Tells whether a message carries data of a variable, of which a transport knows nothing. Not in
  // the text of the rules: whoever makes the transport sets it. Null where no rule names a
  // variable.
  bool (*carries_data_of)(std::span<const std::byte> message, uint32_t variable) = nullptr;
};

// For a job of `world` ranks. INVALID names the rule and the part that is wrong, and says what may
// stand there.
Status parse_faults(std::string_view text, uint32_t world, FaultyOptions* options);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_FAULTY_FAULT_RULES_H_
