// SPDX-License-Identifier: Apache-2.0
// TcpTransport over a byte stream that comes as a byte stream may: torn anywhere, late, ended
// anywhere. The conformance suite with the calls of the socket disturbed by a seed; connections cut
// at every byte.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "unit/transport/conformance.h"
#include "unit/transport/socket_faults.h"
#include "unit/transport/tcp_middle.h"

namespace parallax {
namespace {

class TornWorld final : public conformance::PlainWorld {
 public:
  using PlainWorld::PlainWorld;

 private:
  const SocketFaults faults_{20261126};
};

std::unique_ptr<conformance::World> torn_world(uint32_t world, TcpSecurity security) {
  TcpOptions options = tcp_options(0, 1);
  options.security = security;
  options.frames_per_key = 5;
  TcpRanks ranks = make_tcp_ranks(world, options);
  std::vector<std::unique_ptr<Transport>> transports(std::make_move_iterator(ranks.begin()),
                                                     std::make_move_iterator(ranks.end()));
  return std::make_unique<TornWorld>(std::move(transports));
}

std::unique_ptr<conformance::World> make_torn(uint32_t world) {
  return torn_world(world, TcpSecurity::kEncrypt);
}
std::unique_ptr<conformance::World> make_torn_authenticated(uint32_t world) {
  return torn_world(world, TcpSecurity::kAuthenticate);
}
std::unique_ptr<conformance::World> make_torn_plain(uint32_t world) {
  return torn_world(world, TcpSecurity::kHandshake);
}

CONFORM(tcp_torn, make_torn)
CONFORM(tcp_torn_authenticated, make_torn_authenticated)
CONFORM(tcp_torn_plain, make_torn_plain)

// Given a disturbed flow of messages in both directions, expect each kind of fault to have come in
// it: else the suite above has shown nothing.
TEST(TcpTorn, faults_come) {
  const SocketFaults::Counts before = SocketFaults::counts();
  const auto disturbed = [&] {
    const SocketFaults faults(7);
    Ranks ranks(make_tcp_ranks(2));
    for (int i = 0; i < 50; ++i) {
      ranks.send(0, 1, 20000);
      ranks.send(1, 0, 20000);
      ASSERT_TRUE(
          ranks.until([&] { return ranks.at[0]->writable(1) && ranks.at[1]->writable(0); }));
    }
    ASSERT_TRUE(ranks.until(
        [&] { return ranks.heard[0].received[1] == 50 && ranks.heard[1].received[0] == 50; }));
  };
  ASSERT_NO_FATAL_FAILURE(disturbed());
  const SocketFaults::Counts after = SocketFaults::counts();
  EXPECT_GT(after.short_sends, before.short_sends);
  EXPECT_GT(after.short_receives, before.short_receives);
  EXPECT_GT(after.refused, before.refused);
  EXPECT_GT(after.interrupted, before.interrupted);
}

// Given a connection that is cut behind every byte of three messages, expect those that are whole,
// nothing of the next, and a loss that tells the cut from a goodbye.
TEST(TcpTorn, an_end_at_every_byte) {
  constexpr size_t kBodyBytes[] = {1, 0, 30};
  size_t frames_end[3];
  size_t stream_bytes = 0;
  for (size_t i = 0; i < 3; ++i) {
    frames_end[i] = stream_bytes += kTcpHeaderBytes + kBodyBytes[i] + kTcpTagBytes;
  }
  for (size_t cut = 0; cut <= stream_bytes; ++cut) {
    Watched watched;
    size_t passed = 0;
    watched.middle->there = [&](std::string* in) {
      in->resize(std::min(in->size(), cut - passed));
      passed += in->size();
    };
    for (const size_t bytes : kBodyBytes) watched.ranks.send(0, 1, bytes);
    ASSERT_TRUE(watched.until([&] { return passed == cut; }));
    watched.middle->cut();
    conformance::Recorder& heard = watched.ranks.heard[1];
    ASSERT_TRUE(watched.until([&] { return heard.losses[0] == 1; })) << cut;
    uint64_t whole = 1;  // Watched's own
    for (const size_t end : frames_end) whole += end <= cut ? 1 : 0;
    EXPECT_EQ(heard.received[0], whole) << cut;
    EXPECT_EQ(heard.loss_kinds[0], Loss::kBroken) << cut;
    EXPECT_NE(heard.reasons[0].find("closed without a goodbye"), std::string::npos)
        << cut << ": " << heard.reasons[0];
  }
}

}  // namespace
}  // namespace parallax
