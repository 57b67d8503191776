// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/ucx_lanes.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

// As UCX 1.13.1 prints them.
constexpr const char* kHead = "#\n# UCP endpoint \n#\n#               peer: host1:101\n";
constexpr const char* kPuts = "#                 put[0]: 0..<egr/short>..92..<egr/bcopy>..(inf)\n";

std::string lane(const std::string& number, const std::string& resource, const std::string& uses) {
  return "#                 lane[" + number + "]:  " + resource +
         " md[1]          -> md[1]/ib/sysdev[255] " + uses + "\n";
}

UcxLanes read(const std::string& lanes) { return read_lanes(kHead + lanes); }

TEST(UcxLanes, ADeviceThatWrites) {
  const UcxLanes lanes = read(
      lane("0", "2:rc_verbs/mlx5_0:1.0", "rma_bw#0 am am_bw#0 wireup{ud_verbs/mlx5_0:1}") + kPuts);
  EXPECT_EQ(lanes.carriers, "rc_verbs/mlx5_0:1");
  EXPECT_TRUE(lanes.writes_by_device);
  EXPECT_TRUE(read(lane("0", "5:dc_mlx5/mlx5_1:2.0", "am am_bw#0") + kPuts).writes_by_device);
}

TEST(UcxLanes, WhatCarriesNothingIsNotNamed) {
  const UcxLanes lanes =
      read(lane("0", "2:rc_verbs/mlx5_0:1.0", "am") + lane("1", "3:ud_verbs/mlx5_0:1.0", "wireup") +
           lane("2", "3:ud_verbs/mlx5_0:1.0", "keepalive") + kPuts);
  EXPECT_EQ(lanes.carriers, "rc_verbs/mlx5_0:1");
  EXPECT_TRUE(lanes.writes_by_device);
}

TEST(UcxLanes, WritesThatArePeersToCopyAreNotTheDevices) {
  const UcxLanes datagrams = read(lane("0", "3:ud_verbs/mlx5_0:1.0", "am am_bw#0 rma") + kPuts);
  EXPECT_EQ(datagrams.carriers, "ud_verbs/mlx5_0:1");
  EXPECT_FALSE(datagrams.reliable);
  EXPECT_FALSE(datagrams.writes_by_device);
  const UcxLanes silent = read(lane("0", "2:rc_verbs/mlx5_0:1.0", "am"));
  EXPECT_TRUE(silent.reliable);
  EXPECT_FALSE(silent.writes_by_device) << "it does not tell of puts";
  const UcxLanes mixed =
      read(lane("0", "2:rc_verbs/mlx5_0:1.0", "am") + lane("1", "0:tcp/eth0.0", "rma") + kPuts);
  EXPECT_EQ(mixed.carriers, "rc_verbs/mlx5_0:1+tcp/eth0");
  EXPECT_FALSE(mixed.writes_by_device);
}

// An interface's name may have a dot of its own, and a lane may be there once for each path.
TEST(UcxLanes, NamesEndBeforeThePath) {
  EXPECT_EQ(read(lane("0", "0:tcp/eth0.100.0", "am am_bw#0")).carriers, "tcp/eth0.100");
  EXPECT_EQ(read(lane("0", "2:rc_verbs/mlx5_0:1.0", "am am_bw#0") +
                 lane("1", "2:rc_verbs/mlx5_0:1.1", "am_bw#1"))
                .carriers,
            "rc_verbs/mlx5_0:1");
}

TEST(UcxLanes, NothingIsSaidOfNothing) {
  EXPECT_EQ(read_lanes("").carriers, "");
  EXPECT_FALSE(read_lanes("").writes_by_device);
  EXPECT_EQ(read("#  lane[0]: am").carriers, "am") << "another UCX may say it in another way";
}

}  // namespace
}  // namespace parallax
