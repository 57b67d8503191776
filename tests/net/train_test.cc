// SPDX-License-Identifier: Apache-2.0
// Real processes train: over tcp, or UCX, on loopback between emulated hosts, over shared memory
// inside one.
// Every rank checks every value it pulls and reduces against its own naive oracle; here it is
// checked that all end well and with equal bits where that is promised.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "net/rank_process.h"
#include "support/environment_variable.h"

namespace parallax::net {
namespace {

constexpr std::chrono::seconds kTrainPatience{60};

struct Shape {
  const char* name;
  std::vector<uint32_t> host_of;
};
const Shape kTwoHostsOfTwo = {"2 hosts x 2 ranks", {0, 0, 1, 1}};
const Shape kThreeHosts = {"3 hosts x 1 rank", {0, 1, 2}};
const Shape kOneHost = {"1 host x 3 ranks", {0, 0, 0}};
const Shape kUneven = {"hosts of 1, 2 and 1 ranks", {0, 1, 1, 2}};
const Shape kFourHosts = {"4 hosts x 1 rank", {0, 1, 2, 3}};
const Shape kOneHostOfFour = {"1 host x 4 ranks", {0, 0, 0, 0}};
const char* const kPlans[] = {"auto", "hybrid", "ps", "ar"};

// Trains, and gives the checksum that all ranks agree on; "" if anything is wrong.
std::string train(const Shape& shape, std::vector<std::string> arguments) {
  std::string what = shape.name;
  for (const std::string& argument : arguments) what += " " + argument;
  SCOPED_TRACE(what);
  RankJob job({.host_of = shape.host_of, .arguments = std::move(arguments), .net_namespaces = {}});
  job.start_all();
  EXPECT_TRUE(job.wait_exit(kTrainPatience)) << "still running";
  std::set<std::string> checksums;
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    EXPECT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
    checksums.insert(job.rank(rank).line("checksum ").value_or(""));
  }
  EXPECT_EQ(checksums.size(), 1U);
  EXPECT_NE(*checksums.begin(), "");
  return ::testing::Test::HasFailure() ? "" : *checksums.begin();
}

// Given every shape and plan, expect the values of the oracle within rounding.
TEST(Train, every_shape_and_plan) {
  for (const Shape& shape : {kTwoHostsOfTwo, kThreeHosts, kOneHost, kUneven}) {
    for (const char* plan : kPlans) {
      train(shape, {"--plan", plan, "--plan-after", "4", "--pipeline", "1"});
    }
  }
}

// Given deterministic runs, expect the oracle's bits under every plan, and so one checksum a shape;
// ranks that fold in the same order give the same bits whether they share a host or not.
TEST(Train, deterministic_bits) {
  std::set<std::string> of_three;
  for (const Shape& shape : {kTwoHostsOfTwo, kThreeHosts, kOneHost, kUneven}) {
    std::set<std::string> checksums;
    for (const char* plan : kPlans) {
      checksums.insert(train(shape, {"--plan", plan, "--plan-after", "4", "--deterministic", "1",
                                     "--compute-threads", plan[0] == 'a' ? "1" : "0"}));
    }
    EXPECT_EQ(checksums.size(), 1U) << shape.name;
    if (shape.host_of.size() == 3) of_three.insert(checksums.begin(), checksums.end());
  }
  EXPECT_EQ(of_three.size(), 1U);
}

// Given gradients whose sums are exact, expect one checksum for four ranks however they are spread,
// with and without `deterministic`.
TEST(Train, one_checksum_for_every_spread) {
  std::set<std::string> checksums;
  for (const Shape& shape : {kTwoHostsOfTwo, kUneven, kFourHosts, kOneHostOfFour}) {
    for (const char* deterministic : {"0", "1"}) {
      checksums.insert(train(shape, {"--dyadic", "1", "--deterministic", deterministic}));
    }
  }
  EXPECT_EQ(checksums.size(), 1U);
}

// Given a longer run with wide rows, expect messages of many pieces to change nothing.
TEST(Train, wide_rows) {
  train(kTwoHostsOfTwo, {"--scale", "64", "--steps", "20", "--deterministic", "1"});
  train(kThreeHosts, {"--scale", "64", "--steps", "20", "--plan", "ar"});
}

// The same over UCX, with the bits that tcp gives.
TEST(Train, over_ucx) {
  const std::vector<std::string> exact = {"--plan-after", "4", "--deterministic", "1"};
  const std::string over_tcp = train(kUneven, exact);
  const testkit::EnvironmentVariable ucx("PARALLAX_TRANSPORT", "ucx");
  EXPECT_EQ(train(kUneven, exact), over_tcp);
  for (const char* plan : kPlans) {
    train(kTwoHostsOfTwo, {"--plan", plan, "--plan-after", "4", "--pipeline", "1"});
  }
  train(kThreeHosts, {"--scale", "64", "--steps", "20"});
}

}  // namespace
}  // namespace parallax::net
