// SPDX-License-Identifier: Apache-2.0
// What networks and processes of two hosts do, over the library's own tcp: silence in one direction
// and in both, a cable pulled and put back, a path that swallows long packets, a process that is
// stopped, no port left. Nobody hangs: every rank ends within its lease, or goes on, and names a
// rank that it cannot reach. Needs root and iproute2; elsewhere the tests skip themselves.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "net/rank_process.h"
#include "net/two_hosts.h"
#include "support/environment_variable.h"

namespace parallax::net {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFaultPatience{60000};
constexpr int64_t kLongLeaseMs = 30000;

class NetnsFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    hosts_ = std::make_unique<TwoHosts>();
    if (!hosts_->why_not().empty()) GTEST_SKIP() << hosts_->why_not();
  }

  // Two ranks on each host, in the middle of training.
  std::unique_ptr<RankJob> start(const std::string& steps, int64_t lease_ms = kLeaseMs) {
    auto job = std::make_unique<RankJob>(RankJobOptions{
        .host_of = {0, 0, 1, 1},
        .arguments = {"--steps", steps, "--pace-ms", "5", "--lease-ms", std::to_string(lease_ms),
                      "--timeout-ms", "120000", "--net-device", TwoHosts::kDevice},
        .net_namespaces = hosts_->names()});
    job->start_all();
    EXPECT_TRUE(
        job->wait_until([&] { return job->rank(0).said("phase push step 20"); }, kFaultPatience))
        << job->rank(0).tail();
    return job;
  }

  // Every rank but `victim` lost somebody within the lease, since `from_ms`. `names`: a rank whose
  // name is in each sentence; empty: that of a rank of the other host.
  void expect_lost(RankJob& job, int64_t from_ms, const std::string& names = "",
                   uint32_t victim = ~0u) {
    EXPECT_TRUE(job.wait_until(
        [&] {
          for (uint32_t rank = 0; rank < job.world(); ++rank) {
            if (rank != victim && job.rank(rank).running()) return false;
          }
          return true;
        },
        milliseconds(kLeaseMs + 2 * kSlackMs)))
        << "still running";
    for (uint32_t rank = 0; rank < job.world(); ++rank) {
      if (rank == victim) continue;
      const RankProcess& survivor = job.rank(rank);
      const std::string who = "rank " + std::to_string(rank) + ":\n" + survivor.tail();
      EXPECT_EQ(survivor.exit(), kExitPeerLost) << who;
      const std::string said = survivor.line("status ").value_or("");
      EXPECT_TRUE(said.starts_with("PEER_LOST: rank ")) << who;
      const std::string other = rank < 2 ? "(host host1) is lost" : "(host host0) is lost";
      EXPECT_NE(said.find(names.empty() ? other : names), std::string::npos) << who;
      const int64_t took_ms = std::stoll(survivor.line("clock ").value_or("0")) - from_ms;
      EXPECT_LE(took_ms, kLeaseMs + kSlackMs) << who;
      std::printf("report: rank %u after %lld ms, lease %lld ms: %s\n", rank,
                  static_cast<long long>(took_ms), static_cast<long long>(kLeaseMs),
                  said.substr(0, 120).c_str());
    }
  }

  std::unique_ptr<TwoHosts> hosts_;
  const testkit::EnvironmentVariable secret_{"PARALLAX_SECRET", "0123456789abcdef0123456789abcdef"};
};

// What host 0 sends does not arrive, what it is sent does: so it is told that it is lost, or hears
// no more, since what others send is not acknowledged either.
TEST_F(NetnsFaults, silence_in_one_direction) {
  const auto job = start("100000");
  const int64_t from_ms = monotonic_ms();
  hosts_->silence(0);
  expect_lost(*job, from_ms, " is lost");
}

TEST_F(NetnsFaults, silence_in_both_directions) {
  const auto job = start("100000");
  const int64_t from_ms = monotonic_ms();
  hosts_->silence(0);
  hosts_->silence(1);
  expect_lost(*job, from_ms);
}

// Given a cable that is put back within the lease, expect nobody to be lost and every value right.
TEST_F(NetnsFaults, a_cable_that_is_put_back) {
  const auto job = start("400", kLongLeaseMs);
  hosts_->cut(1);
  // Long enough that segments are sent again, and fail.
  job->wait_until([] { return false; }, milliseconds(700));
  for (uint32_t rank = 0; rank < job->world(); ++rank) {
    ASSERT_FALSE(job->rank(rank).said("phase push step 399")) << "over before the cable was pulled";
  }
  hosts_->mend(1);
  ASSERT_TRUE(job->wait_exit(kFaultPatience)) << "still running";
  for (uint32_t rank = 0; rank < job->world(); ++rank) {
    EXPECT_EQ(job->rank(rank).exit(), 0) << "rank " << rank << ":\n" << job->rank(rank).tail();
  }
}

// Given a path on which long packets of host 0 vanish from a step on, as where a tunnel lies in it
// and nobody is told of its narrowness, expect a loss within the lease, though short packets pass.
TEST_F(NetnsFaults, a_path_that_swallows_long_packets) {
  hosts_->stop_offload();
  const auto job = start("100000");
  const int64_t from_ms = monotonic_ms();
  hosts_->swallow_longer_than(200, 1);
  expect_lost(*job, from_ms, " is lost");
}

TEST_F(NetnsFaults, a_process_that_is_stopped) {
  const auto job = start("100000");
  const int64_t from_ms = monotonic_ms();
  job->rank(2).signal(SIGSTOP);
  expect_lost(*job, from_ms, "rank 2 (host host1) is lost", 2);
  job->rank(2).signal(SIGCONT);
  EXPECT_TRUE(job->wait_exit(kFaultPatience)) << "the continued rank hangs";
  EXPECT_GT(job->rank(2).exit().value_or(0), 10) << job->rank(2).tail();
  EXPECT_LT(job->rank(2).exit().value_or(128), 128) << job->rank(2).tail();
}

// Given a rank between two hosts that may open too few descriptors, expect open to fail on all, it
// to say what to raise, and nobody to hang.
TEST_F(NetnsFaults, no_descriptor_left) {
  const testkit::EnvironmentVariable device("PARALLAX_NET_DEVICE", TwoHosts::kDevice);
  RankJob job(
      {.host_of = {0, 1}, .arguments = {}, .net_namespaces = hosts_->names(), .program = "opener"});
  job.start(0);
  job.start(1, {"--descriptors", "8"});
  ASSERT_TRUE(job.wait_exit(kFaultPatience)) << "still running";
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(job.rank(rank).exit(), 3) << job.rank(rank).tail();
  }
  const std::string said = job.rank(1).tail();
  EXPECT_NE(said.find("LIMIT: "), std::string::npos) << said;
  EXPECT_NE(said.find("ulimit -n"), std::string::npos) << said;
  EXPECT_NE(job.rank(0).tail().find("rank 1"), std::string::npos) << job.rank(0).tail();
}

// Given a host with fewer ports than its ranks need, to listen or to connect, expect open to fail
// on every rank, one of that host to say what is missing and how to have more, and nobody to hang.
TEST_F(NetnsFaults, no_port_left) {
  struct Shortage {
    const char* range;
    const char* tcp_ports;  // to listen at; "": of that range
  };
  for (const Shortage& shortage : {Shortage{"40000 40001", ""}, {"40000 40000", "42000-42009"}}) {
    const testkit::EnvironmentVariable ports("PARALLAX_TCP_PORTS", shortage.tcp_ports);
    hosts_->on_host(0, std::string("sh -c 'echo ") + shortage.range + " > /proc/sys/" +
                           "net/ipv4/ip_local_port_range'");
    RankJob job({.host_of = {0, 0, 0, 1},
                 .arguments = {"--steps", "2", "--lease-ms", std::to_string(kLeaseMs),
                               "--net-device", TwoHosts::kDevice},
                 .net_namespaces = hosts_->names()});
    job.start_all();
    ASSERT_TRUE(job.wait_exit(kFaultPatience)) << "still running";
    bool told = false;
    for (uint32_t rank = 0; rank < job.world(); ++rank) {
      EXPECT_GT(job.rank(rank).exit().value_or(0), 10) << job.rank(rank).tail();
      EXPECT_LT(job.rank(rank).exit().value_or(128), 128) << job.rank(rank).tail();
      const std::string said = job.rank(rank).line("status ").value_or("");
      told |= rank < 3 && said.find("LIMIT: ") == 0 &&
              said.find("net.ipv4.ip_local_port_range") != std::string::npos;
      std::printf("report: rank %u: %s\n", rank, said.c_str());
    }
    EXPECT_TRUE(told) << shortage.range;
  }
}

}  // namespace
}  // namespace parallax::net
