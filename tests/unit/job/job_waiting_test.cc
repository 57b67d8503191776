// SPDX-License-Identifier: Apache-2.0
// How the waiters of a whole job look: by what its ranks tell each other at open, and by settings.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/usable_cores.h"
#include "job/job.h"
#include "support/environment_variable.h"

namespace parallax {
namespace {

constexpr uint32_t kCoresMax = 8;  // of a machine for which a job of a rank more is small

// Opens a rank and gives what it reports of waiting.
nlohmann::json waiting_of(uint32_t rank, uint32_t world, const std::string& host) {
  parallax_options_t options = {};
  options.size = sizeof options;
  options.rank = rank;
  options.world = world;
  options.rendezvous = "inproc:job_waiting_test";
  options.host = host.c_str();
  std::unique_ptr<Job> job;
  const Status opened = Job::open(options, &job);
  EXPECT_TRUE(opened.ok()) << opened.message();
  if (job == nullptr) return {};
  const nlohmann::json waiting = nlohmann::json::parse(job->topology_report())["waiting"];
  EXPECT_TRUE(job->close().ok());
  EXPECT_TRUE(job->abandon());
  return waiting;
}

// Each of a host of its own, or all of one.
std::vector<nlohmann::json> waiting_of_all(uint32_t world, bool apart = true) {
  std::vector<nlohmann::json> all(world);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const std::string host = "host" + std::to_string(apart ? rank : 0);
    ranks.emplace_back([&all, rank, world, host] { all[rank] = waiting_of(rank, world, host); });
  }
  for (std::thread& rank : ranks) rank.join();
  return all;
}

// Given more ranks on this machine than cores, whichever hosts they say they are of, expect each to
// have found them, and to give its core away while it looks; what is set to hold instead.
TEST(JobWaiting, RanksThatOutnumberTheCoresYieldUnlessTold) {
  const uint32_t cores = core_count(usable_cores().mask);
  if (cores > kCoresMax) GTEST_SKIP() << cores << " cores are too many for this test";
  for (const nlohmann::json& found : waiting_of_all(cores + 1)) {
    EXPECT_EQ(found["ranks"], cores + 1);
    EXPECT_EQ(found["cores"], cores);
    EXPECT_EQ(found["spin_yield"], "on");
    EXPECT_EQ(found["spin_us"], 50);
    EXPECT_EQ(found["spin_us_max"], 50) << "what it waits for is the network's work";
  }
  const testkit::EnvironmentVariable yield("PARALLAX_SPIN_YIELD", "off");
  const testkit::EnvironmentVariable spin("PARALLAX_SPIN_US", "7");
  for (const nlohmann::json& found : waiting_of_all(cores + 1)) {
    EXPECT_EQ(found["spin_yield"], "off");
    EXPECT_EQ(found["spin_us"], 7);
    EXPECT_EQ(found["why"], "spin_yield is off");
  }
}

// Where no quota of control groups is short.
TEST(JobWaiting, RanksOfOneHostMayLookLonger) {
  for (const nlohmann::json& found : waiting_of_all(2, false)) {
    EXPECT_EQ(found["spin_us"], 50);
    EXPECT_EQ(found["spin_us_max"], found["cores_quota"].is_null() ? 1000 : 50);
  }
}

}  // namespace
}  // namespace parallax
