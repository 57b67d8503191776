// SPDX-License-Identifier: Apache-2.0
// How a rank introduces itself: see the header.
#include "rendezvous/tcp_entry.h"

namespace parallax {

Introduction introduce(const RendezvousOptions& options, const TcpEntry& entry) {
  Introduction intro;
  intro.version =
      PARALLAX_VERSION_MAJOR * 10000 + PARALLAX_VERSION_MINOR * 100 + PARALLAX_VERSION_PATCH;
  intro.rank = options.rank;
  intro.host = options.host;
  intro.secret = entry.secret;
  intro.world = options.world;
  intro.lease_ms = options.lease_ms;
  intro.job = entry.job;
  intro.nonce = random_bytes(kNonceBytes);
  return intro;
}

}  // namespace parallax
