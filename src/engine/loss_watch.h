// SPDX-License-Identifier: Apache-2.0
// LossWatch: which ranks this one takes for lost: whose lease is over, whose connection broke, whom
// a peer's notice names. It keeps this rank's own leases by heartbeats. A rank that is gone is a
// loss, unless it may have left in good order (Goodbye).
//
// One for a job. Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_LOSS_WATCH_H_
#define PARALLAX_ENGINE_LOSS_WATCH_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "engine/first_failure.h"
#include "engine/goodbye.h"
#include "membership/membership.h"
#include "message/outbox.h"
#include "message/wire.h"
#include "transport/transport.h"

namespace parallax {

class LossWatch {
 public:
  struct Parts {
    uint32_t world;
    const Clock& clock;
    Membership& membership;
    Goodbye& goodbye;
    FirstFailure& failure;
    Transport& transport;
    Outbox& outbox;
  };

  // All parts outlive this.
  explicit LossWatch(const Parts& parts) : parts_(parts) {}

  // The transport has lost a rank. See Receiver.
  void on_lost(uint32_t rank, Loss loss, std::string_view why);
  // Of Layer::kMembership, from any rank. False: not a section of it.
  [[nodiscard]] bool on_section(const Section& section);
  // In every pass, after messages were read, since they renew leases and may name who is lost.
  // True: something was due.
  bool check(int64_t now_ns);

 private:
  void check_suspicions();
  void check_leases(int64_t now_ns);
  void send_heartbeats(int64_t now_ns);
  void on_peer_gone(uint32_t rank, const std::string& why);

  const Parts parts_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_LOSS_WATCH_H_
