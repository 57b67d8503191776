// SPDX-License-Identifier: Apache-2.0
// Two hosts in two network namespaces joined by a veth pair: training is right, the kernel's
// counters confirm the library's, and a cut link is seen by everyone within the lease. Needs root
// and iproute2; elsewhere the tests skip themselves and say why.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "net/rank_process.h"
#include "support/environment_variable.h"

namespace parallax::net {
namespace {

using std::chrono::milliseconds;

constexpr const char* kDevice = "plx0";
constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";
constexpr milliseconds kLinkPatience{60000};
// Ethernet, IP and TCP with its timestamps.
constexpr double kHeaderBytes = 14 + 20 + 32;

// Runs a shell command; its output goes to *said.
bool run(const std::string& command, std::string* said) {
  said->clear();
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return false;
  std::array<char, 256> bytes;
  while (std::fgets(bytes.data(), bytes.size(), pipe) != nullptr) *said += bytes.data();
  const int status = pclose(pipe);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Of tests that were killed before they could remove theirs.
void remove_left_behind() {
  std::string said;
  run("ip netns list", &said);
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    int pid = 0, host = 0;
    if (std::sscanf(line.c_str(), "plx%dh%d", &pid, &host) != 2 || kill(pid, 0) == 0) continue;
    std::string ignored;
    run("ip netns del " + line.substr(0, line.find(' ')), &ignored);
  }
}

// Two namespaces, each with its end of one link under the same name, removed at the end.
class TwoHosts {
 public:
  TwoHosts() {
    remove_left_behind();
    for (int host = 0; host < 2; ++host) {
      names_.push_back("plx" + std::to_string(getpid()) + "h" + std::to_string(host));
    }
    const std::string& a = names_[0];
    const std::string& b = names_[1];
    std::vector<std::string> commands = {"ip netns add " + a, "ip netns add " + b,
                                         std::string("ip -n ") + a + " link add " + kDevice +
                                             " type veth peer name " + kDevice + " netns " + b};
    for (int host = 0; host < 2; ++host) {
      const std::string in = "ip -n " + names_[host] + " ";
      // IPv6 would talk on its own, into the counters.
      commands.push_back("ip netns exec " + names_[host] +
                         " sh -c 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true'");
      commands.push_back(in + "addr add 10.77.0." + std::to_string(host + 1) + "/24 dev " +
                         kDevice);
      commands.push_back(in + "link set lo up");
      commands.push_back(in + "link set " + kDevice + " up");
    }
    // The kernel takes up to a second to see that both ends are up.
    for (const std::string& name : names_) {
      commands.push_back("ip netns exec " + name +
                         " timeout 5 sh -c 'until grep -q up /sys/class/" + "net/" + kDevice +
                         "/operstate; do sleep 0.02; done'");
    }
    for (const std::string& command : commands) {
      std::string said;
      if (why_not_.empty() && !run(command, &said)) why_not_ = "'" + command + "': " + said;
    }
  }
  ~TwoHosts() {
    std::string said;
    for (const std::string& name : names_) run("ip netns del " + name, &said);
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  const std::string& why_not() const { return why_not_; }
  const std::vector<std::string>& names() const { return names_; }

  double counter(size_t host, const std::string& name) const {
    std::string said;
    EXPECT_TRUE(run(
        "ip netns exec " + names_[host] + " cat /sys/class/net/" + kDevice + "/statistics/" + name,
        &said))
        << said;
    return std::atof(said.c_str());
  }
  void cut() const {
    std::string said;
    EXPECT_TRUE(run("ip -n " + names_[0] + " link set " + kDevice + " down", &said)) << said;
  }

 private:
  std::vector<std::string> names_;
  std::string why_not_;
};

class Netns : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    hosts_ = std::make_unique<TwoHosts>();
    if (!hosts_->why_not().empty()) {
      GTEST_SKIP() << "no network namespaces here: " << hosts_->why_not();
    }
  }
  RankJobOptions options(std::vector<std::string> arguments,
                         const std::string& transport = "ucx") const {
    arguments.insert(arguments.end(), {"--net-device", kDevice});
    if (!transport.empty()) arguments.insert(arguments.end(), {"--transport", transport});
    return {.host_of = {0, 0, 1, 1},
            .arguments = std::move(arguments),
            .net_namespaces = hosts_->names()};
  }

  void expect_trains_and_counts(const std::string& transport,
                                const std::vector<const char*>& plans);
  void expect_cut_is_seen(const std::string& transport);

  std::unique_ptr<TwoHosts> hosts_;
};

// Given 2 x 2 ranks over the link, expect right values, equal bits under every plan, and kernel
// counters that agree with the library's, headers taken off, within 5%.
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
      const double payload = kernel_bytes[host] - kHeaderBytes * kernel_packets[host];
      std::printf(
          "report: netns %-6s host %zu: library %.0f bytes, kernel %.0f in %.0f packets, "
          "less headers %.0f (%+.2f%%)\n",
          plan, host, library_bytes[host], kernel_bytes[host], kernel_packets[host], payload,
          100 * (payload / library_bytes[host] - 1));
      EXPECT_NEAR(payload, library_bytes[host], 0.05 * library_bytes[host]);
    }
  }
}

TEST_F(Netns, trains_and_counts) { expect_trains_and_counts("ucx", {"hybrid", "ps", "ar"}); }

// The library's own transport, for each way to protect frames; what it adds to each message is
// within the same bound.
TEST_F(Netns, trains_and_counts_over_tcp) {
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", kSecret);
  for (const char* security : {"encrypt", "authenticate", "handshake"}) {
    const testkit::EnvironmentVariable way("PARALLAX_SECURITY", security);
    expect_trains_and_counts("tcp", {"hybrid"});
  }
}

// Given ranks on two machines without a secret, expect each to refuse to listen, with the remedy.
TEST_F(Netns, tcp_takes_a_secret) {
  RankJob job(options({"--steps", "2"}, "tcp"));
  job.start_all();
  ASSERT_TRUE(job.wait_exit(kLinkPatience)) << "still running";
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    const std::string said = job.rank(rank).line("status ").value_or("");
    EXPECT_TRUE(said.starts_with("INVALID: ")) << job.rank(rank).tail();
    EXPECT_NE(said.find("PARALLAX_SECRET_FILE"), std::string::npos) << said;
  }
}

// Given ranks on two machines of which one does not say "ucx", expect each to refuse, naming it,
// the word and the risk.
TEST_F(Netns, tcp_beyond_loopback_takes_a_word) {
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
    EXPECT_TRUE(said.starts_with("UNSUPPORTED: ")) << who;
    for (const char* word : {"rank 1 (host host0)", "PARALLAX_TRANSPORT=ucx", "run code"}) {
      EXPECT_NE(said.find(word), std::string::npos) << who;
    }
  }
}

// Given the link cut in mid-run, expect every rank of both sides to lose a rank of the other within
// the lease.
void Netns::expect_cut_is_seen(const std::string& transport) {
  RankJob job(options({"--steps", "100000", "--pace-ms", "5", "--lease-ms",
                       std::to_string(kLeaseMs), "--timeout-ms", "60000"},
                      transport));
  job.start_all();
  ASSERT_TRUE(
      job.wait_until([&job] { return job.rank(0).said("phase push step 20"); }, kLinkPatience));
  const int64_t cut_ms = monotonic_ms();
  hosts_->cut();
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

TEST_F(Netns, link_cut) { expect_cut_is_seen("ucx"); }
TEST_F(Netns, link_cut_over_tcp) {
  const testkit::EnvironmentVariable secret("PARALLAX_SECRET", kSecret);
  expect_cut_is_seen("tcp");
}

}  // namespace
}  // namespace parallax::net
