// SPDX-License-Identifier: Apache-2.0
// Settings that change while a job is open, through the C ABI: the deadline of each call by itself,
// memory, and what the report says of them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace {

using parallax::Error;
using parallax::Job;
using parallax::Request;
using parallax::sized;
using parallax::testkit::on_ranks;

nlohmann::json setting_of(const Job& job, const std::string& name) {
  const auto report = nlohmann::json::parse(job.report(PARALLAX_REPORT_SETTINGS));
  for (const auto& each : report["settings"]) {
    if (each["name"] == name) return each;
  }
  return {};
}

// Given a deadline that is set before a wait, expect that wait to have it, and the next one the
// next: what waits longer in between completes.
TEST(SetSetting, TheDeadlineOfEachCallByItself) {
  on_ranks(2, [](uint32_t rank, Job& job) {
    job.commit();
    Job part = job.split({1, 0});
    uint32_t go = 0;
    if (rank == 1) job.broadcast(&go, sizeof go, 0).wait();
    Request barrier = job.barrier();
    if (rank == 0) {
      // Through a part: settings are the whole job's.
      part.set("timeout_ms", "20");
      parallax_request_t* const raw = barrier.get();
      EXPECT_EQ(parallax_wait(&raw, 1, PARALLAX_WAIT_DEFAULT), PARALLAX_TIMEOUT);
      EXPECT_NE(std::string(parallax_last_error()).find("after 20 ms"), std::string::npos)
          << parallax_last_error();
      job.set("timeout_ms", "100000");
      EXPECT_EQ(setting_of(job, "timeout_ms")["value"], "100000");
      EXPECT_EQ(setting_of(job, "timeout_ms")["where"], "parallax_set");
      EXPECT_EQ(setting_of(part, "timeout_ms")["source"], "code");
      job.broadcast(&go, sizeof go, 0).wait();
    }
    barrier.wait();
    part.close();
    job.close();
  });
}

// Given a split that one rank alone calls, expect it to end by the deadline that was set for it.
TEST(SetSetting, TheDeadlineOfASplit) {
  on_ranks(2, [](uint32_t rank, Job& job) {
    if (rank == 1) return;
    job.set("timeout_ms", "20");
    const uint32_t both[] = {0, 1};
    parallax_job_t* part = nullptr;
    const parallax_status_t status = parallax_split(job.get(), both, 2, &part);
    // Or the other one closed first.
    EXPECT_TRUE(status == PARALLAX_TIMEOUT || status == PARALLAX_PEER_LOST)
        << parallax_last_error();
    if (status == PARALLAX_TIMEOUT) {
      EXPECT_NE(std::string(parallax_last_error()).find("after 20 ms"), std::string::npos)
          << parallax_last_error();
    }
    job.set("timeout_ms", "100000");
  });
}

// Given a limit on memory that is set after open, expect the next commit to keep it, of a part too.
TEST(SetSetting, TheMemoryOfTheNextCommit) {
  Job job(sized<parallax_options_t>());
  auto variable = sized<parallax_variable_t>();
  variable.name = "v";
  variable.rows = 1 << 18;
  variable.row_elements = 1;
  variable.rule = PARALLAX_RULE_SGD;
  job.register_variable(variable);
  job.commit();
  const parallax_job_info_t info = job.query(true);
  EXPECT_GT(info.bytes_reserved, uint64_t{1} << 20);
  EXPECT_GT(info.bytes_touched, 0u);
  EXPECT_LE(info.bytes_touched, info.bytes_reserved);
  EXPECT_EQ(job.query().bytes_touched, 0u) << "nobody asked";
  Job part = job.split({0});
  EXPECT_NE(part.query().epoch, info.epoch);
  EXPECT_EQ(part.query().bytes_reserved, 0u);
  job.set("memory_max_bytes", std::to_string(info.bytes_reserved * 3 / 2).c_str());
  part.register_variable(variable);
  EXPECT_EQ(parallax_commit(part.get()), PARALLAX_LIMIT);
  EXPECT_NE(std::string(parallax_last_error()).find("memory_max_bytes"), std::string::npos)
      << parallax_last_error();
}

// Given an error of a part with the job's own failure, expect settings to change all the same, and
// a refusal to be told as data.
TEST(SetSetting, InAJobThatFailed) {
  Job job(sized<parallax_options_t>());
  job.commit();
  job.abort("on purpose");
  job.set("timeout_ms", "1000");
  try {
    job.set("lease_ms", "1000");
    ADD_FAILURE() << "leases are fixed";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), PARALLAX_UNSUPPORTED);
    EXPECT_STREQ(error.info().field, "lease_ms");
  }
}

// Given threads that set, ask and wait at once, expect each to be served.
TEST(SetSetting, OfManyThreads) {
  constexpr int kRounds = 30;
  Job job(sized<parallax_options_t>());
  job.commit();
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&job, i] {
      for (int round = 0; round < kRounds; ++round) {
        job.set("timeout_ms", std::to_string(60000 + 2 * round + i).c_str());
        job.set("memory_max_bytes", "1G");
        EXPECT_EQ(setting_of(job, "memory_max_bytes")["value"], std::to_string(1 << 30));
      }
    });
  }
  for (int round = 0; round < kRounds; ++round) job.barrier().wait();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
