// SPDX-License-Identifier: Apache-2.0
// How ranks of transport tcp come to be connected: wire(), ports, families of addresses, and what a
// connection's sockets are told.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/real_time.h"
#include "unit/transport/tcp_middle.h"

namespace parallax {
namespace {

// Given a rank that does not answer, expect wire() to name it at the deadline; given one that does,
// expect both to be connected.
TEST(TcpTransport, wiring_names_who_is_missing) {
  TcpRanks made = make_tcp_ranks(2);
  const uint32_t one = 1, zero = 0;
  uint32_t missing = 9;
  const Status silent = made[0]->wire({&one, 1}, testkit::in_ms(50), &missing);
  EXPECT_EQ(silent.code(), PARALLAX_TIMEOUT) << silent.message();
  const std::string way = "at " + to_text(where(*made[1])) + " from 127.0.0.1 on lo";
  EXPECT_NE(silent.message().find(way), std::string::npos) << silent.message();
  EXPECT_EQ(missing, 1u);
  TcpRanks both = make_tcp_ranks(2);
  std::thread other([&] {
    uint32_t ignored = 0;
    const Status wired = both[1]->wire({&zero, 1}, testkit::in_ms(60000), &ignored);
    EXPECT_TRUE(wired.ok()) << wired.message();
  });
  const Status wired = both[0]->wire({&one, 1}, testkit::in_ms(60000), &missing);
  other.join();
  EXPECT_TRUE(wired.ok()) << wired.message();
}

// Given a rank that was held up until the deadline, and meanwhile welcomed, expect it to find that
// out, and to blame nobody.
TEST(TcpTransport, wiring_takes_what_is_there_at_the_deadline) {
  Ranks ranks(make_tcp_ranks(2));
  ranks.at[0]->reach(1);
  const int64_t give_up_ns = testkit::in_ms(60000);
  while (ranks.at[1]->stats().endpoints_opened == 0 && testkit::kClock.now_ns() < give_up_ns) {
    for (const size_t rank : {0, 1}) ranks.at[rank]->poll(ranks.heard[rank]);
  }
  EXPECT_EQ(ranks.at[0]->stats().endpoints_opened, 0u);
  const uint32_t one = 1;
  uint32_t missing = 0;
  const Status wired = ranks.at[0]->wire({&one, 1}, testkit::in_ms(-1), &missing);
  EXPECT_TRUE(wired.ok()) << wired.message();
}

// Given ranks that wire() leaves connected to all, expect no port, and messages as before; given
// one that knows a rank which it was not to be wired to, expect its port to stay, for that one.
TEST(TcpTransport, who_is_wired_to_all_has_no_port) {
  Ranks ranks(make_tcp_ranks(3));
  const std::vector<uint32_t> peers[] = {{1}, {0, 2}, {1}};
  std::vector<std::thread> wiring;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(has_port(*ranks.at[rank]));
    wiring.emplace_back([&, rank] {
      uint32_t missing = 0;
      const Status wired = ranks.at[rank]->wire(peers[rank], testkit::in_ms(60000), &missing);
      EXPECT_TRUE(wired.ok()) << wired.message();
    });
  }
  for (std::thread& each : wiring) each.join();
  EXPECT_TRUE(has_port(*ranks.at[0]));
  EXPECT_FALSE(has_port(*ranks.at[1]));
  EXPECT_TRUE(has_port(*ranks.at[2]));
  EXPECT_EQ(where(*ranks.at[1]).bytes, where(*ranks.at[0]).bytes) << "it is still told";
  for (uint32_t other : {0u, 2u}) ranks.greet(1, other);
  ranks.greet(2, 0);
}

// Given ranks that listen at addresses of IPv6, expect them to talk; given one of each family,
// expect both to say so at once, as either might lack the way to the other.
TEST(TcpTransport, ranks_listen_by_one_family) {
  if (!has_six()) GTEST_SKIP() << "this machine has no ::1";
  Ranks ranks(make_tcp_ranks(2, tcp_options_six()));
  ranks.greet(0, 1);
  EXPECT_EQ(to_text(where(*ranks.at[0])).substr(0, 6), "[::1]:");
  EXPECT_NE(ranks.at[0]->description().find("[::1]:"), std::string::npos);
  TcpOptions six = tcp_options_six();
  six.rank = 1;
  six.world = 2;
  const auto one = make_tcp(tcp_options(0, 2)), other = make_tcp(six);
  for (const Status& mixed :
       {one->connect(1, other->address()), other->connect(0, one->address())}) {
    EXPECT_EQ(mixed.code(), PARALLAX_MISMATCH);
    EXPECT_EQ(mixed.facts().field, "tcp_address");
    EXPECT_NE(mixed.message().find("rank 1 "), std::string::npos) << mixed.message();
    EXPECT_NE(mixed.message().find("IPv6"), std::string::npos) << mixed.message();
  }
}

// Given a peer whose kernel takes connections and who says nothing, expect a rank that sends to it
// to lose it once a lease is over.
TEST(TcpTransport, who_does_not_answer_is_given_up) {
  TcpOptions options = tcp_options(0, 1);
  options.lease_ns = 50 * kNanosecondsPerMillisecond;
  Ranks ranks(make_tcp_ranks(2, options));
  ranks.send(0, 1, 16);
  const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
  while (ranks.heard[0].losses[1] == 0 && std::chrono::steady_clock::now() < give_up) {
    ranks.at[0]->poll(ranks.heard[0]);
  }
  EXPECT_EQ(ranks.heard[0].losses[1], 1u);
  EXPECT_EQ(ranks.heard[0].loss_kinds[1], Loss::kBroken);
  EXPECT_NE(ranks.heard[0].reasons[1].find("it does not answer"), std::string::npos)
      << ranks.heard[0].reasons[1];
}

// Given one who listens in a rank's place and sends without end, expect whoever connects to hang
// up, and to try again.
TEST(TcpTransport, who_connects_takes_no_flood) {
  TcpRanks ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) ranks.push_back(make_tcp(tcp_options(rank, 2)));
  TcpEndpoint told;
  ASSERT_TRUE(decode_tcp_endpoint(ranks[1]->address(), &told).ok());
  UniqueFd listener;
  ASSERT_EQ(tcp_listen_at(make_address(std::string("\x7f\0\0\x01", 4), 0), &listener), 0);
  ASSERT_TRUE(tcp_name(listener, &told.listens).ok());
  ASSERT_TRUE(ranks[0]->connect(1, encode_tcp_endpoint(told)).ok());
  const std::byte message{1};
  const Segment segment{&message, 1};
  ASSERT_TRUE(ranks[0]->send(1, {&segment, 1}, 1).ok());
  // The beginning of a record that is longer than all that a handshake takes.
  const std::string flood = std::string("\x16\x03\x03\x40\x00", 5) + std::string(8000, 'x');
  conformance::Recorder heard;
  std::vector<UniqueFd> came;
  const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
  while (came.size() < 2 && heard.losses[1] == 0 && std::chrono::steady_clock::now() < give_up) {
    ranks[0]->poll(heard);
    UniqueFd socket;
    SocketAddress from;
    if (tcp_accept(listener, &socket, &from) != Accepted::kOne) continue;
    std::string rest = flood;
    EXPECT_TRUE(tcp_send(socket, &rest));
    came.push_back(std::move(socket));
  }
  EXPECT_EQ(came.size(), 2u) << "it goes on listening to the first";
}

// Given a range whose first port is taken, expect the next, where that is free; and without another
// a refusal.
TEST(TcpTransport, ports_are_of_the_range) {
  constexpr int kAttempts = 50;  // until the next one is free, which another process may have
  bool found = false;
  for (int attempt = 0; attempt < kAttempts && !found; ++attempt) {
    TcpOptions options = tcp_options(0, 2);
    const auto any = make_tcp(options);
    const uint16_t taken = port_of(where(*any));
    options.ports = {taken, taken};
    std::unique_ptr<TcpTransport> refused, next;
    const Status status = TcpTransport::create(options, &refused);
    EXPECT_EQ(status.code(), PARALLAX_IO);
    EXPECT_EQ(status.facts().field, "tcp_ports");
    if (taken == UINT16_MAX) continue;
    options.ports.last = taken + 1;
    found = TcpTransport::create(options, &next).ok();
    if (found) {
      EXPECT_EQ(port_of(where(*next)), taken + 1);
    }
  }
  EXPECT_TRUE(found) << "a port that is taken is not passed over";
}

// What each connection of this process answers to one option.
std::vector<int> of_connections(int level, int option) {
  std::vector<int> answers;
  for (const int socket : tcp_connections()) {
    int answer = 0;
    socklen_t bytes = sizeof answer;
    EXPECT_EQ(::getsockopt(socket, level, option, &answer, &bytes), 0);
    answers.push_back(answer);
  }
  return answers;
}

// Given a connection, expect the kernel to give it up a little before a lease is over, and to send
// small messages at once.
TEST(TcpTransport, the_kernel_is_less_patient_than_leases_and_waits_for_no_more_bytes) {
  TcpOptions options = tcp_options(0, 1);
  options.lease_ns = 87654 * kNanosecondsPerMillisecond;
  Ranks ranks(make_tcp_ranks(2, options));
  ranks.greet(0, 1);
  EXPECT_EQ(of_connections(IPPROTO_TCP, TCP_USER_TIMEOUT), std::vector(2, 87654 - 87654 / 8))
      << "both ends";
  const std::vector<int> at_once = of_connections(IPPROTO_TCP, TCP_NODELAY);
  ASSERT_EQ(at_once.size(), 2u);
  for (const int answer : at_once) EXPECT_NE(answer, 0) << "TCP_NODELAY";
}

}  // namespace
}  // namespace parallax
