// SPDX-License-Identifier: Apache-2.0
#include "collectives/device_exchange.h"

#include <gtest/gtest.h>

#include "unit/collectives/fake_communicator.h"

namespace parallax::testkit {
namespace {

TEST(DeviceExchange, GivesToTheLaunchesAndTellsOfTheirEnd) {
  FormingDevices devices;
  DeviceLaunches launches;
  launches.begin(devices, {});
  launches.add({{.variable = 3, .like = {.count = 4, .dtype = PARALLAX_F16, .average = true}}}, 0);
  DeviceExchange exchange(3, 1, 4, launches);
  EXPECT_TRUE(exchange.reserve().ok());
  EXPECT_EQ(exchange.arena().reserved_bytes(), 0u);
  exchange.open(1);
  exchange.open(2);
  EXPECT_TRUE(exchange.state(1).contributed);
  EXPECT_FALSE(exchange.state(1).reduced);
  std::byte from[8] = {}, to[8] = {};
  uint32_t pending = 0;
  exchange.contribute(
      1, {.elements = {from, PARALLAX_F16}, .result = {to, PARALLAX_F16}, .after = 5}, &pending);
  exchange.end(0, 1);  // another rank's is nothing to this one
  EXPECT_TRUE(exchange.state(1).reduced);
  EXPECT_FALSE(exchange.state(1).delivered);
  ASSERT_TRUE(launches.advance(0).ok());
  ASSERT_EQ(devices.told.launches.size(), 1u);
  const DeviceReduction& launched = devices.told.launches[0][0];
  EXPECT_EQ(launched.from, from);
  EXPECT_EQ(launched.to, to);
  EXPECT_EQ(launched.after, 5u);
  EXPECT_EQ(launched.count, 4u);
  EXPECT_EQ(launched.dtype, static_cast<uint32_t>(PARALLAX_F16));
  EXPECT_TRUE(launched.average);
  devices.told.may_end = 1;
  ASSERT_TRUE(launches.advance(0).ok());
  EXPECT_TRUE(exchange.state(1).delivered);
  EXPECT_EQ(pending, 0u);
  EXPECT_TRUE(exchange.whole(1).placed);
  EXPECT_EQ(exchange.whole(1).values, to);
  EXPECT_TRUE(exchange.missing(1).empty());
  EXPECT_FALSE(exchange.on_section(0, {})) << "nothing of it travels by messages";
}

TEST(DeviceExchange, TheEndOfTheStepHereStandsForASlice) {
  FormingDevices devices;
  DeviceLaunches launches;
  launches.begin(devices, {});
  launches.add({{.variable = 0, .like = {.count = 4}}}, 0);
  DeviceExchange exchange(0, 1, 4, launches);
  exchange.open(1);
  exchange.end(0, 1);
  EXPECT_FALSE(exchange.state(1).reduced);
  exchange.end(1, 1);
  EXPECT_TRUE(exchange.state(1).reduced);
  ASSERT_TRUE(launches.advance(0).ok());
  EXPECT_EQ(devices.told.launches[0][0].from, nullptr);
}

}  // namespace
}  // namespace parallax::testkit
