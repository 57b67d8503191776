// SPDX-License-Identifier: Apache-2.0
// A job's way to devices where there is none, and how much it may pin.
#include "job/job_devices.h"

#include <gtest/gtest.h>

#include "support/words.h"

namespace parallax::testkit {
namespace {

TEST(JobDevices, SayWhatWasLookedFor) {
  JobDevices devices({.module_dir = "/nonexistent", .wake = [] {}});
  DeviceShare share;
  EXPECT_FALSE(devices.report()["used"].get<bool>()) << "nobody asked yet";
  EXPECT_TRUE(devices.report()["tried"].empty());
  const Status status = devices.open(&share);
  EXPECT_EQ(status.code(), PARALLAX_UNSUPPORTED);
  EXPECT_TRUE(has(status, "/nonexistent/libparallax_cuda.so: no such file")) << status.message();
  EXPECT_TRUE(has(status, "PARALLAX_MODULE_DIR"));
  EXPECT_EQ(share.devices, nullptr);
  EXPECT_EQ(devices.report()["tried"].size(), 1u);
}

TEST(JobDevices, ShareAQuarterOfTheMachineUnlessToldOtherwise) {
  SettingValue value;
  value.number = 4096;
  const uint64_t alone = pinned_max_bytes(value, 1);
  EXPECT_GT(alone, 4096u) << "the default's number is not looked at";
  EXPECT_EQ(pinned_max_bytes(value, 2), alone / 2);
  value.source = SettingSource::kFile;
  EXPECT_EQ(pinned_max_bytes(value, 2), 4096u);
}

TEST(DeviceModule, RefusesAnotherBuild) {
  ParallaxDeviceModule table;
  table.abi = kDeviceModuleAbi;
  table.struct_bytes = sizeof table;
  table.build = "9.9.9 layout 1 c++ 1";
  const Status status = check_module(&table, "/lib/x.so");
  EXPECT_EQ(status.code(), PARALLAX_UNSUPPORTED);
  EXPECT_TRUE(has(status, "9.9.9") && has(status, "/lib/x.so")) << status.message();
  EXPECT_TRUE(has(status, PARALLAX_DEVICE_MODULE_BUILD));
  table.build = PARALLAX_DEVICE_MODULE_BUILD;
  EXPECT_TRUE(has(check_module(&table, ""), "lacks create() or describe()"));
  table.struct_bytes += 8;
  EXPECT_FALSE(check_module(&table, "").ok());
  table.abi = 2;
  EXPECT_FALSE(check_module(&table, "").ok());
  EXPECT_FALSE(check_module(static_cast<const ParallaxDeviceModule*>(nullptr), "").ok());
}

}  // namespace
}  // namespace parallax::testkit
