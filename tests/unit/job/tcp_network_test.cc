// SPDX-License-Identifier: Apache-2.0
// What options and settings make of transport tcp: no secret, no port that others reach.
#include "job/tcp_network.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/interface.h"
#include "base/unique_fd.h"
#include "support/environment_variable.h"
#include "support/heard_lines.h"
#include "transport/tcp/tcp_congestion.h"
#include "unit/transport/tcp_world.h"

namespace parallax {
namespace {

// A rank of two by `options`, with the settings that the environment has.
Status open_network(const parallax_options_t& options, const std::string& device,
                    std::unique_ptr<NetworkTransport>* network) {
  Settings settings;
  PARALLAX_RETURN_IF_ERROR(settings.load({.environment = process_environment()}));
  return make_tcp_network({.options = &options,
                           .settings = &settings,
                           .device = device,
                           .world = 2,
                           .job = 1,
                           .epoch = 1,
                           .lease_ns = 1000000000},
                          network);
}

TEST(TcpNetwork, PortsAreARange) {
  TcpPorts ports;
  ASSERT_TRUE(parse_tcp_ports("31000-31999", &ports).ok());
  EXPECT_EQ(ports.first, 31000);
  EXPECT_EQ(ports.last, 31999);
  ASSERT_TRUE(parse_tcp_ports("5-5", &ports).ok());
  ASSERT_TRUE(parse_tcp_ports("", &ports).ok());
  EXPECT_EQ(ports.first, 0);
  for (const char* wrong : {"31000", "31000-", "-5", "9-8", "0-5", "1-65536", "1-2-3", "1 - 2"}) {
    const Status refused = parse_tcp_ports(wrong, &ports);
    EXPECT_EQ(refused.code(), PARALLAX_INVALID) << wrong;
    EXPECT_EQ(refused.facts().field, "tcp_ports");
  }
}

TEST(TcpNetwork, RailsAreInterfaces) {
  std::vector<std::string> devices;
  ASSERT_TRUE(parse_tcp_rails("eth1,eth2", &devices).ok());
  EXPECT_EQ(devices, (std::vector<std::string>{"eth1", "eth2"}));
  ASSERT_TRUE(parse_tcp_rails("a,a,a,a,a,a,a", &devices).ok());
  EXPECT_EQ(devices.size(), kRailsMax - 1);
  ASSERT_TRUE(parse_tcp_rails("", &devices).ok());
  EXPECT_TRUE(devices.empty());
  for (const char* wrong : {",", "eth1,", ",eth1", "eth1,,eth2", "a,a,a,a,a,a,a,a"}) {
    const Status refused = parse_tcp_rails(wrong, &devices);
    EXPECT_EQ(refused.code(), PARALLAX_INVALID) << wrong;
    EXPECT_EQ(refused.facts().field, "tcp_rails");
  }
}

// Given a further rail, expect a listener more, which the description names; and one at an
// interface that is not there to be refused.
TEST(TcpNetwork, RailsListen) {
  parallax_options_t options = {};
  options.size = sizeof options;
  std::unique_ptr<NetworkTransport> network;
  {
    const testkit::EnvironmentVariable rails("PARALLAX_TCP_RAILS", "lo");
    ASSERT_TRUE(open_network(options, "lo", &network).ok());
    const std::string said = network->description();
    const size_t more = said.find(", more rails: 127.0.0.1:");
    EXPECT_NE(more, std::string::npos) << said;
    EXPECT_NE(said.find(" on lo", more), std::string::npos) << said;
  }
  const testkit::EnvironmentVariable rails("PARALLAX_TCP_RAILS", "lo,nowhere0");
  const Status refused = open_network(options, "lo", &network);
  EXPECT_EQ(refused.code(), PARALLAX_INVALID);
  EXPECT_NE(refused.message().find("nowhere0"), std::string::npos) << refused.message();
}

TEST(TcpNetwork, BeyondLoopbackItTakesASecret) {
  SocketAddress reached;
  ASSERT_TRUE(choose_address("", &reached).ok());
  if (is_loopback(reached)) GTEST_SKIP() << "this machine has no other interface than loopback";
  std::unique_ptr<NetworkTransport> network;
  const Status open = open_network({}, "", &network);
  EXPECT_EQ(open.code(), PARALLAX_INVALID);
  EXPECT_NE(open.message().find("PARALLAX_SECRET_FILE"), std::string::npos) << open.message();
  EXPECT_NE(open.message().find("\"rdma\""), std::string::npos) << open.message();
  EXPECT_TRUE(open_network({}, "lo", &network).ok());
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", "0123456789abcdef");
  const Status closed = open_network({}, "", &network);
  EXPECT_TRUE(closed.ok()) << closed.message();
}

// Given ports and a way to protect frames in the environment, expect both to be taken.
// Given frames that nothing protects, expect one warning, which names the setting, for however many
// transports; given any others, none.
TEST(TcpNetwork, WhatIsUnprotectedIsWarnedOfOnce) {
  parallax_options_t options = {};
  options.size = sizeof options;
  std::unique_ptr<NetworkTransport> network;
  testkit::HeardLines heard;
  for (const char* security : {"encrypt", "authenticate", "handshake", "handshake"}) {
    const testkit::EnvironmentVariable setting("PARALLAX_SECURITY", security);
    const Status opened = open_network(options, "lo", &network);
    ASSERT_TRUE(opened.ok()) << opened.message();
    const bool protects = std::string_view(security) != "handshake";
    ASSERT_EQ(heard.lines().size(), protects ? 0u : 1u) << security;
  }
  const std::string& line = heard.lines().front();
  EXPECT_NE(line.find("neither encrypted nor authenticated"), std::string::npos) << line;
  EXPECT_NE(line.find("environment PARALLAX_SECURITY"), std::string::npos) << line;
}

TEST(TcpNetwork, SettingsAreTaken) {
  const testkit::EnvironmentVariable ports("PARALLAX_TCP_PORTS", "42000-42999");
  const testkit::EnvironmentVariable security("PARALLAX_SECURITY", "authenticate");
  std::unique_ptr<NetworkTransport> network;
  const Status made = open_network({}, "lo", &network);
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_TRUE(network->description().starts_with("127.0.0.1:42")) << network->description();
  EXPECT_TRUE(network->description().ends_with("security authenticate"));
}

using TwoRanks = std::array<std::unique_ptr<NetworkTransport>, 2>;

// Two ranks by the settings that the environment has, connected to each other.
void open_two(TwoRanks* ranks) {
  parallax_options_t options = {};
  for (uint32_t& rank = options.rank; rank < ranks->size(); ++rank) {
    ASSERT_TRUE(open_network(options, "lo", &(*ranks)[rank]).ok());
  }
  ASSERT_TRUE((*ranks)[0]->connect(1, (*ranks)[1]->address()).ok());
  ASSERT_TRUE((*ranks)[1]->connect(0, (*ranks)[0]->address()).ok());
  const int64_t deadline_ns = SteadyClock().now_ns() + 60'000 * kNanosecondsPerMillisecond;
  const auto wire = [&](uint32_t rank) {
    const uint32_t other = 1 - rank;
    uint32_t missing = 0;
    const Status wired = (*ranks)[rank]->wire({&other, 1}, deadline_ns, &missing);
    EXPECT_TRUE(wired.ok()) << wired.message();
  };
  std::thread other(wire, 1);
  wire(0);
  other.join();
}

// The sockets of this process that look into their device's queue for so long.
int busy_sockets(int microseconds) {
  int found = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int has = 0;
    socklen_t bytes = sizeof has;
    if (getsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &has, &bytes) == 0 && has == microseconds) ++found;
  }
  return found;
}

// Given that the kernel is to poll, expect both ends of a connection to say so.
TEST(TcpNetwork, ConnectionsMayPoll) {
  constexpr int kMicroseconds = 37;
  const UniqueFd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (setsockopt(probe.get(), SOL_SOCKET, SO_BUSY_POLL, &kMicroseconds, sizeof kMicroseconds) !=
      0) {
    GTEST_SKIP() << "the kernel refuses SO_BUSY_POLL: " << std::strerror(errno);
  }
  const int before = busy_sockets(kMicroseconds);
  const testkit::EnvironmentVariable poll("PARALLAX_TCP_BUSY_POLL_US",
                                          std::to_string(kMicroseconds));
  TwoRanks ranks;
  ASSERT_NO_FATAL_FAILURE(open_two(&ranks));
  EXPECT_EQ(busy_sockets(kMicroseconds), before + 2);
}

// Given an algorithm of congestion control, expect both ends of a connection to have it; given
// none, one that suits ranks which are near, whatever the system's is. One that there is not is
// refused.
TEST(TcpNetwork, ConnectionsHaveTheCongestionControlThatIsAskedFor) {
  {
    const testkit::EnvironmentVariable named("PARALLAX_TCP_CONGESTION", "reno");
    TwoRanks ranks;
    ASSERT_NO_FATAL_FAILURE(open_two(&ranks));
    EXPECT_EQ(tcp_connections().size(), 2u);
    for (const int each : tcp_connections()) EXPECT_EQ(congestion_of(each), "reno");
  }
  {
    TwoRanks ranks;
    ASSERT_NO_FATAL_FAILURE(open_two(&ranks));
    EXPECT_EQ(tcp_connections().size(), 2u);
    for (const int each : tcp_connections()) {
      EXPECT_TRUE(suits_ranks(congestion_of(each), 0)) << congestion_of(each);
    }
  }
  const testkit::EnvironmentVariable wrong("PARALLAX_TCP_CONGESTION", "renoo");
  std::unique_ptr<NetworkTransport> network;
  const Status refused = open_network({}, "lo", &network);
  EXPECT_EQ(refused.code(), PARALLAX_INVALID);
  EXPECT_EQ(refused.facts().field, "tcp_congestion");
}

// Given an address, expect it to be taken if the machine, and the interface if one is named, has
// it, and else a sentence with those that there are.
TEST(TcpNetwork, AnAddressOfTheMachineIsTaken) {
  SocketAddress found;
  ASSERT_TRUE(find_address("127.0.0.1", "", &found).ok());
  EXPECT_EQ(to_text(found), "127.0.0.1:0");
  ASSERT_TRUE(find_address("127.0.0.1", "lo", &found).ok());
  TcpOptions options = tcp_options(0, 1);
  options.net_device = "";
  options.own_address = "127.0.0.1";
  const auto made = make_tcp(options);
  EXPECT_TRUE(made->description().starts_with("127.0.0.1:")) << made->description();
  for (const auto& [text, device] :
       std::vector<std::pair<std::string, std::string>>{{"192.0.2.7", ""},
                                                        {"192.0.2.7", "lo"},
                                                        {"2001:db8::7", ""},
                                                        {"10.0.0", ""},
                                                        {"lo", ""},
                                                        {std::string(1000, '1'), ""},
                                                        {"127.0.0.1\n", ""}}) {
    const Status refused = find_address(text, device, &found);
    EXPECT_EQ(refused.code(), PARALLAX_INVALID) << text;
  }
  EXPECT_NE(find_address("192.0.2.7", "lo", &found).message().find("127.0.0.1:0 on lo"),
            std::string::npos);
}

// Given one that the machine lacks in the environment, expect open to name the setting.
TEST(TcpNetwork, AnAddressOfNoInterfaceIsRefused) {
  const testkit::EnvironmentVariable address("PARALLAX_TCP_ADDRESS", "192.0.2.7");
  std::unique_ptr<NetworkTransport> network;
  const Status refused = open_network({}, "lo", &network);
  EXPECT_EQ(refused.code(), PARALLAX_INVALID);
  EXPECT_EQ(refused.facts().field, "tcp_address");
  EXPECT_TRUE(refused.message().starts_with("open: tcp_address '192.0.2.7' is no address"))
      << refused.message();
}

}  // namespace
}  // namespace parallax
