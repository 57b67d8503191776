// SPDX-License-Identifier: Apache-2.0
// Faults on purpose through the C ABI: what stays within the lease changes no result, what does not
// is the loss it would be in earnest.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"

namespace {

using parallax::Error;
using parallax::Job;
using parallax::sized;

constexpr uint32_t kWorld = 3;
constexpr int kSteps = 12;

struct Outcome {
  std::vector<float> values;  // of the variable, in the end
  std::string error;
  std::string topology;
};

// Ranks push 1, 2, 3 to every element, for kSteps steps.
Outcome train(uint32_t rank, const char* faults) {
  Outcome outcome;
  auto options = sized<parallax_options_t>();
  options.rank = rank;
  options.world = kWorld;
  options.rendezvous = "inproc:faults_test";
  options.lease_ms = 2000;
  options.timeout_ms = 60000;
  options.faults = faults;
  try {
    Job job(options);
    auto variable = sized<parallax_variable_t>();
    variable.name = "dense";
    variable.rows = 64;
    variable.row_elements = 16;
    variable.rule = PARALLAX_RULE_SGD;
    const uint32_t id = job.register_variable(variable);
    job.commit();
    outcome.values.resize(variable.rows * variable.row_elements);
    std::vector<float> gradient(outcome.values.size(), static_cast<float>(rank + 1));
    auto slice = sized<parallax_slice_t>();
    slice.variable = id;
    auto end = sized<parallax_step_end_options_t>();
    end.learning_rate = 1;
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t step = job.step_begin();
      slice.values = gradient.data();
      job.push(step, {slice}).wait();
      job.step_end(step, end).wait();
    }
    const uint64_t step = job.step_begin();
    slice.values = outcome.values.data();
    job.pull(step, {slice}).wait();
    job.step_end(step, end).wait();
    outcome.topology = job.report(PARALLAX_REPORT_TOPOLOGY);
    job.close();
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  return outcome;
}

// Rank 1 has the faults.
std::vector<Outcome> train_all(const char* faults) {
  std::vector<Outcome> outcomes(kWorld);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    ranks.emplace_back([&, rank] { outcomes[rank] = train(rank, rank == 1 ? faults : ""); });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcomes;
}

TEST(Faults, WithinTheLeaseChangeNoResult) {
  for (const char* faults : {"seed=3; delay:percent=50,ms=4", "silence:peer=0,at=5,for_ms=200",
                             "stall:at=6,for_ms=300; delay:variable=0,ms=3"}) {
    const std::vector<Outcome> outcomes = train_all(faults);
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.error, "") << faults;
      EXPECT_EQ(outcome.values, std::vector<float>(64 * 16, -6.0F * kSteps)) << faults;
    }
    EXPECT_NE(outcomes[1].topology.find("\"faults\""), std::string::npos);
    EXPECT_EQ(outcomes[0].topology.find("\"faults\""), std::string::npos);
  }
}

TEST(Faults, PastTheLeaseAreLosses) {
  for (const char* faults : {"silence:peer=0,at=8", "close:peer=2,at=5"}) {
    for (const Outcome& outcome : train_all(faults)) {
      EXPECT_EQ(outcome.error.rfind("PEER_LOST: ", 0), 0U) << faults << ": " << outcome.error;
      EXPECT_NE(outcome.error.find("rank "), std::string::npos) << outcome.error;
    }
  }
}

TEST(Faults, RulesOfTheEnvironmentAndWrongOnes) {
  ASSERT_EQ(setenv("PARALLAX_FAULTS", "drop:peer=1", 1), 0);
  auto options = sized<parallax_options_t>();
  try {
    Job job(options);
    ADD_FAILURE() << "a wrong rule was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), PARALLAX_INVALID);
    EXPECT_NE(std::string(error.what()).find("'drop:peer=1'"), std::string::npos) << error.what();
  }
  options.faults = "";
  EXPECT_NO_THROW(Job{options});
  unsetenv("PARALLAX_FAULTS");
}

// A rule that names nobody would be taken for a fault that the program stood.
TEST(Faults, APeerThatIsNotInTheWorldIsRefused) {
  auto options = sized<parallax_options_t>();
  options.faults = "delay:ms=1; close:peer=77,at=3";
  try {
    Job job(options);
    ADD_FAILURE() << "peer 77 of one rank was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), PARALLAX_INVALID);
    EXPECT_NE(
        std::string(error.what()).find("'close:peer=77,at=3': peer is 77, but the world is 1"),
        std::string::npos)
        << error.what();
  }
  const std::vector<Outcome> outcomes = train_all("silence:peer=3");
  EXPECT_NE(outcomes[1].error.find("peer is 3, but the world is 3"), std::string::npos)
      << outcomes[1].error;
  for (const uint32_t other : {0, 2}) {
    EXPECT_NE(outcomes[other].error.find("rank 1"), std::string::npos) << outcomes[other].error;
  }
}

}  // namespace
