// SPDX-License-Identifier: Apache-2.0
// What options and settings make of transport tcp: no secret, no port that others reach.
#include "job/tcp_network.h"

#include <gtest/gtest.h>

#include <string>

#include "base/environment.h"
#include "base/interface.h"
#include "support/environment_variable.h"

namespace parallax {
namespace {

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

TEST(TcpNetwork, BeyondLoopbackItTakesASecret) {
  SocketAddress reached;
  ASSERT_TRUE(choose_address("", &reached).ok());
  if (is_loopback(reached)) GTEST_SKIP() << "this machine has no other interface than loopback";
  Settings settings;
  ASSERT_TRUE(settings.load({}).ok());
  parallax_options_t options = {};
  const TcpNetworkRequest request{.options = &options,
                                  .settings = &settings,
                                  .device = "",
                                  .world = 2,
                                  .job = 1,
                                  .epoch = 1,
                                  .lease_ns = 1000000000};
  std::unique_ptr<NetworkTransport> network;
  const Status open = make_tcp_network(request, &network);
  EXPECT_EQ(open.code(), PARALLAX_INVALID);
  EXPECT_NE(open.message().find("PARALLAX_SECRET_FILE"), std::string::npos) << open.message();
  EXPECT_NE(open.message().find("\"rdma\""), std::string::npos) << open.message();
  TcpNetworkRequest local = request;
  local.device = "lo";
  EXPECT_TRUE(make_tcp_network(local, &network).ok());
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", "0123456789abcdef");
  const Status closed = make_tcp_network(request, &network);
  EXPECT_TRUE(closed.ok()) << closed.message();
}

// Given ports and a way to protect frames in the environment, expect both to be taken.
TEST(TcpNetwork, SettingsAreTaken) {
  const testkit::EnvironmentVariable ports("PARALLAX_TCP_PORTS", "42000-42999");
  const testkit::EnvironmentVariable security("PARALLAX_SECURITY", "authenticate");
  Settings settings;
  ASSERT_TRUE(settings.load({.environment = process_environment()}).ok());
  parallax_options_t options = {};
  std::unique_ptr<NetworkTransport> network;
  const Status made = make_tcp_network({.options = &options,
                                        .settings = &settings,
                                        .device = "lo",
                                        .world = 2,
                                        .job = 1,
                                        .epoch = 1,
                                        .lease_ns = 1000000000},
                                       &network);
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_TRUE(network->description().starts_with("127.0.0.1:42")) << network->description();
  EXPECT_TRUE(network->description().ends_with("security authenticate"));
}

}  // namespace
}  // namespace parallax
