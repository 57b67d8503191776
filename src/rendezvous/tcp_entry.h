// SPDX-License-Identifier: Apache-2.0
// TcpEntry: what either side needs to enter a tcp rendezvous, and how long each part of it may
// take. Pure.
#ifndef PARALLAX_RENDEZVOUS_TCP_ENTRY_H_
#define PARALLAX_RENDEZVOUS_TCP_ENTRY_H_

#include <chrono>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/crypto.h"
#include "rendezvous/handshake.h"
#include "rendezvous/rendezvous.h"

namespace parallax {

// The clock is injected, but a condition variable waits by real time: so the clock is read this
// often.
inline constexpr std::chrono::milliseconds kLookAtClock{5};
// How long ranks that were told the verdict have to hang up by themselves.
inline constexpr int64_t kGoodbyeNs = 500 * kNanosecondsPerMillisecond;
inline constexpr int64_t kIntroductionNs = 5000 * kNanosecondsPerMillisecond;

// The label under which a job's key is derived from the secret.
inline constexpr std::string_view kJobKey = "parallax rendezvous 1: key of a job";

struct TcpEntry {
  std::string where;  // "127.0.0.1:29500", for messages
  std::string job;
  bool secret = false;
  Key key;
};

// With a new nonce.
Introduction introduce(const RendezvousOptions& options, const TcpEntry& entry);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_TCP_ENTRY_H_
