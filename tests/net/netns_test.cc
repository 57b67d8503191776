// SPDX-License-Identifier: Apache-2.0
// Two hosts in two network namespaces joined by a veth pair: training is right, the kernel's
// counters confirm the library's, and a cut link is seen by everyone within the lease. Needs root
// and iproute2; elsewhere the tests skip themselves and say why.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "net/rank_process.h"
#include "net/two_hosts.h"
#include "support/environment_variable.h"

namespace parallax::net {
namespace {

using std::chrono::milliseconds;

constexpr const char* kDevice = TwoHosts::kDevice;
constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";
constexpr milliseconds kLinkPatience{60000};
// Ethernet, IP and TCP with its timestamps.
constexpr double kHeaderBytes = 14 + 20 + 32;
constexpr double kHeaderBytesSix = 14 + 40 + 32;
constexpr double kCountsDiffer = 0.02;  // of the library's and the kernel's

class Netns : public ::testing::Test {
 protected:
  void SetUp() override {
    hosts_ = std::make_unique<TwoHosts>();
    if (!hosts_->why_not().empty()) GTEST_SKIP() << hosts_->why_not();
  }
  // `transport` "" is the default.
  RankJobOptions options(std::vector<std::string> arguments, const std::string& transport) const {
    arguments.insert(arguments.end(), {"--net-device", kDevice});
    if (!transport.empty()) arguments.insert(arguments.end(), {"--transport", transport});
    return {.host_of = {0, 0, 1, 1},
            .arguments = std::move(arguments),
            .net_namespaces = hosts_->names()};
  }

  void expect_trains_and_counts(const std::string& transport,
                                const std::vector<const char*>& plans);
  void expect_cut_is_seen(const std::string& transport, const char* device = kDevice);

  std::unique_ptr<TwoHosts> hosts_;
  double header_bytes_ = kHeaderBytes;
};

// Given 2 x 2 ranks over the link, expect right values, equal bits under every plan, and kernel
// counters that agree with the library's, headers taken off.
void Netns::expect_trains_and_counts(const std::string& transport,
                                     const std::vector<const char*>& plans) {
  std::string checksum;
  for (const char* plan : plans) {
    double kernel_bytes[2], kernel_packets[2];
    for (size_t host = 0; host < 2; ++host) {
      kernel_bytes[host] = -hosts_->counter(host, "tx_bytes");
      kernel_packets[host] = -hosts_->counter(host, "tx_packets");
    }
    RankJob job(options({"--plan", plan, "--deterministic", "1", "--scale", "64", "--steps", "12"},
                        transport));
    job.start_all();
    ASSERT_TRUE(job.wait_exit(kLinkPatience)) << "still running";
    double library_bytes[2] = {};
    for (uint32_t rank = 0; rank < job.world(); ++rank) {
      ASSERT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
      const std::string own = job.rank(rank).line("checksum ").value_or("");
      if (checksum.empty()) checksum = own;
      EXPECT_EQ(own, checksum) << plan;
      const auto stats = nlohmann::json::parse(job.rank(rank).line("stats ").value_or("{}"));
      library_bytes[rank / 2] += stats.at("wire").at("sent_bytes").get<double>();
    }
    for (size_t host = 0; host < 2; ++host) {
      kernel_bytes[host] += hosts_->counter(host, "tx_bytes");
      kernel_packets[host] += hosts_->counter(host, "tx_packets");
      const double payload = kernel_bytes[host] - header_bytes_ * kernel_packets[host];
      std::printf(
          "report: netns %-6s host %zu: library %.0f bytes, kernel %.0f in %.0f packets, "
          "less headers %.0f (%+.2f%%)\n",
          plan, host, library_bytes[host], kernel_bytes[host], kernel_packets[host], payload,
          100 * (payload / library_bytes[host] - 1));
      EXPECT_NEAR(payload, library_bytes[host], kCountsDiffer * library_bytes[host]);
    }
  }
}

// Where nothing is said of the transport: the library's own, encrypted.
TEST_F(Netns, trains_and_counts) {
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", kSecret);
  expect_trains_and_counts("", {"hybrid", "ps", "ar"});
}

// Given hosts that have addresses of IPv6 alone, expect the same.
TEST_F(Netns, trains_and_counts_over_ipv6) {
  hosts_->speak_six();
  if (!hosts_->why_not().empty()) GTEST_SKIP() << hosts_->why_not();
  header_bytes_ = kHeaderBytesSix;
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", kSecret);
  expect_trains_and_counts("", {"hybrid"});
}

// Given a host with two addresses, the second of which its ranks are told to take, expect the other
// host to be connected to and from that one alone.
TEST_F(Netns, connects_from_the_address_of_its_setting) {
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", kSecret);
  hosts_->on_host(0, std::string("ip addr add 10.77.0.9/24 dev ") + kDevice);
  RankJob job(options({"--steps", "200", "--pace-ms", "5"}, ""));
  {
    const testkit::EnvironmentVariable address("PARALLAX_TCP_ADDRESS", "10.77.0.9");
    for (uint32_t rank : {0, 1}) job.start(rank);
  }
  for (uint32_t rank : {2, 3}) job.start(rank);
  ASSERT_TRUE(job.wait_until([&] { return job.rank(0).said("phase push step 20"); }, kLinkPatience))
      << job.rank(0).tail();
  std::string connections;
  ASSERT_TRUE(run_command("ip netns exec " + hosts_->names()[1] + " ss -Htn state established",
                          &connections))
      << connections;
  EXPECT_NE(connections.find(" 10.77.0.9:"), std::string::npos) << connections;
  EXPECT_EQ(connections.find(" 10.77.0.1:"), std::string::npos) << connections;
  ASSERT_TRUE(job.wait_exit(kLinkPatience)) << "still running";
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    EXPECT_EQ(job.rank(rank).exit(), 0) << job.rank(rank).tail();
  }
}

// What each way to protect frames adds to a message is within the same bound.
TEST_F(Netns, trains_and_counts_in_clear) {
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", kSecret);
  for (const char* security : {"authenticate", "handshake"}) {
    const testkit::EnvironmentVariable way("PARALLAX_SECURITY", security);
    expect_trains_and_counts("tcp", {"hybrid"});
  }
}

TEST_F(Netns, trains_and_counts_over_ucx) { expect_trains_and_counts("ucx", {"hybrid"}); }

// Given ranks on two machines without a secret, expect each to refuse to listen, with the remedy.
TEST_F(Netns, tcp_takes_a_secret) {
  RankJob job(options({"--steps", "2"}, ""));
  job.start_all();
  ASSERT_TRUE(job.wait_exit(kLinkPatience)) << "still running";
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    const std::string said = job.rank(rank).line("status ").value_or("");
    EXPECT_TRUE(said.starts_with("INVALID: ")) << job.rank(rank).tail();
    EXPECT_NE(said.find("PARALLAX_SECRET_FILE"), std::string::npos) << said;
  }
}

// Given ranks of which one does not say "ucx" like the others, expect each to refuse, naming it and
// the setting; no rank speaks UCX over tcp unasked.
TEST_F(Netns, ucx_is_taken_where_every_rank_says_so) {
  RankJob job(options({"--steps", "2"}, ""));
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    std::vector<std::string> more;
    if (rank != 1) more = {"--transport", "ucx"};
    job.start(rank, more);
  }
  ASSERT_TRUE(job.wait_exit(kLinkPatience)) << "still running";
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    const std::string said = job.rank(rank).line("status ").value_or("");
    const std::string who = "rank " + std::to_string(rank) + ":\n" + job.rank(rank).tail();
    EXPECT_TRUE(said.starts_with("MISMATCH: ")) << who;
    for (const char* word : {"rank 1 (host host0) takes \"tcp\"", "PARALLAX_TRANSPORT alike"}) {
      EXPECT_NE(said.find(word), std::string::npos) << who;
    }
  }
}

// Given the link cut in mid-run, expect every rank of both sides to lose a rank of the other within
// the lease.
void Netns::expect_cut_is_seen(const std::string& transport, const char* device) {
  RankJob job(options({"--steps", "100000", "--pace-ms", "5", "--lease-ms",
                       std::to_string(kLeaseMs), "--timeout-ms", "60000"},
                      transport));
  job.start_all();
  ASSERT_TRUE(
      job.wait_until([&job] { return job.rank(0).said("phase push step 20"); }, kLinkPatience));
  const int64_t cut_ms = monotonic_ms();
  hosts_->cut(0, device);
  EXPECT_TRUE(job.wait_exit(milliseconds(kLeaseMs + 2 * kSlackMs))) << "still running";
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    const RankProcess& survivor = job.rank(rank);
    const std::string who = "rank " + std::to_string(rank) + ":\n" + survivor.tail();
    EXPECT_EQ(survivor.exit(), kExitPeerLost) << who;
    const std::string said = survivor.line("status ").value_or("");
    const std::string other_host = rank < 2 ? "(host host1) is lost" : "(host host0) is lost";
    EXPECT_TRUE(said.starts_with("PEER_LOST: rank ")) << who;
    EXPECT_NE(said.find(other_host), std::string::npos) << who;
    const int64_t took_ms = std::stoll(survivor.line("clock ").value_or("0")) - cut_ms;
    EXPECT_LE(took_ms, kLeaseMs + kSlackMs) << who;
    std::printf("report: netns link cut: rank %u PEER_LOST after %lld ms, lease %lld ms\n", rank,
                static_cast<long long>(took_ms), static_cast<long long>(kLeaseMs));
  }
}

TEST_F(Netns, link_cut) {
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", kSecret);
  expect_cut_is_seen("");
}
TEST_F(Netns, link_cut_over_ucx) { expect_cut_is_seen("ucx"); }

// Given two pairs of interfaces, expect as many bytes over each, and the values of one pair.
TEST_F(Netns, rails_share_what_is_sent) {
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", kSecret);
  hosts_->join_again();
  std::string checksum;
  for (const char* rails : {"", TwoHosts::kSecondDevice}) {
    const testkit::EnvironmentVariable setting("PARALLAX_TCP_RAILS", rails);
    double sent[2];
    constexpr std::array kDevices = {TwoHosts::kDevice, TwoHosts::kSecondDevice};
    for (size_t i = 0; i < 2; ++i) sent[i] = -hosts_->counter(0, "tx_bytes", kDevices[i]);
    RankJob job(options(
        {"--plan", "hybrid", "--deterministic", "1", "--scale", "64", "--steps", "12"}, ""));
    job.start_all();
    ASSERT_TRUE(job.wait_exit(kLinkPatience)) << "still running";
    for (uint32_t rank = 0; rank < job.world(); ++rank) {
      ASSERT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
      const std::string own = job.rank(rank).line("checksum ").value_or("");
      if (checksum.empty()) checksum = own;
      EXPECT_EQ(own, checksum) << rails;
    }
    for (size_t i = 0; i < 2; ++i) sent[i] += hosts_->counter(0, "tx_bytes", kDevices[i]);
    std::printf("report: netns rails '%s': %.0f and %.0f bytes\n", rails, sent[0], sent[1]);
    if (*rails == '\0') {
      EXPECT_LT(sent[1], 0.01 * sent[0]);
    } else {
      EXPECT_NEAR(sent[0], sent[1], 0.2 * sent[0]);
    }
  }
}

// Given one of two rails cut in mid-run, expect what a cut of all is: it is no slower way, but
// none.
TEST_F(Netns, a_rail_is_cut) {
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", kSecret);
  const testkit::EnvironmentVariable rails("PARALLAX_TCP_RAILS", TwoHosts::kSecondDevice);
  hosts_->join_again();
  expect_cut_is_seen("", TwoHosts::kSecondDevice);
}

}  // namespace
}  // namespace parallax::net
