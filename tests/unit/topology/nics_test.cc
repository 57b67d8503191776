// SPDX-License-Identifier: Apache-2.0
#include "topology/nics.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "support/temporary_folder.h"

namespace parallax {
namespace {

namespace fs = std::filesystem;

TEST(Nics, WhyThereIsNone) {
  const testkit::TemporaryFolder folder;
  const std::string root = folder.path();
  const auto has = [&](const std::string& words, const std::string& library = "") {
    const std::string why = why_no_nics(root, library);
    return why.find(words) == std::string::npos ? testing::AssertionFailure() << why
                                                : testing::AssertionSuccess();
  };
  EXPECT_TRUE(has("(/sys/class/infiniband is missing)"));
  EXPECT_TRUE(has("libibverbs cannot be loaded: no such file", "no such file"));
  fs::create_directories(root + "/sys/class/infiniband");
  EXPECT_TRUE(has("(/sys/class/infiniband is empty)"));
  fs::create_directories(root + "/sys/class/infiniband/mlx5_0");
  EXPECT_TRUE(has("/dev/infiniband is missing here; give the container"));
  EXPECT_TRUE(has("libibverbs cannot be loaded: no such file; install it", "no such file"));
  fs::create_directories(root + "/dev/infiniband");
  EXPECT_TRUE(has("ibverbs-providers"));
}

TEST(Nics, WhyOneDoesNotOpen) {
  EXPECT_NE(why_not_open(EACCES).find("Permission denied; give this user the right"),
            std::string::npos);
  EXPECT_NE(why_not_open(ENOENT).find("--device=/dev/infiniband"), std::string::npos);
  EXPECT_NE(why_not_open(0).find("no reason given"), std::string::npos);
}

// As the kernel lays out /sys/class/infiniband/rxe0.
TEST(Nics, AddressesFromTheKernelsFiles) {
  const testkit::TemporaryFolder folder;
  const std::string port = folder.path() + "/ports/1/";
  for (const char* part : {"gids", "gid_attrs/types", "gid_attrs/ndevs"}) {
    fs::create_directories(port + part);
  }
  const auto entry = [&](const std::string& index, const std::string& gid, const std::string& type,
                         const std::string& device) {
    (void)folder.write("ports/1/gids/" + index, gid + "\n");
    if (!type.empty()) (void)folder.write("ports/1/gid_attrs/types/" + index, type + "\n");
    if (!device.empty()) (void)folder.write("ports/1/gid_attrs/ndevs/" + index, device + "\n");
  };
  entry("10", "0000:0000:0000:0000:0000:ffff:0a09:0001", "RoCE v2", "lo");
  entry("2", "fe80:0000:0000:0000:5054:00ff:fe12:3456", "IB/RoCE v1", "nosuch0");
  entry("3", "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2", "lo");
  entry("4", "0000:0000:0000:0000:0000:ffff:0a09:0001", "", "lo");
  entry("5", "garbage", "RoCE v2", "lo");
  entry("x", "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "lo");
  const std::vector<NicGid> gids = gids_in_files(folder.path(), 1);
  ASSERT_EQ(gids.size(), 2u);
  EXPECT_EQ(gids[0].index, 2u);
  EXPECT_EQ(gids[0].address, "fe80::5054:ff:fe12:3456");
  EXPECT_EQ(gids[0].type, "roce_v1");
  EXPECT_EQ(gids[0].net_mtu_bytes, 0u);
  EXPECT_EQ(gids[1].index, 10u);
  EXPECT_EQ(gids[1].address, "::ffff:10.9.0.1");
  EXPECT_EQ(gids[1].type, "roce_v2");
  EXPECT_EQ(gids[1].net_device, "lo");
  EXPECT_TRUE(gids_in_files(folder.path(), 2).empty());
}

TEST(Nics, AMachineWithoutOneSaysWhy) {
  std::vector<Nic> nics;
  std::string why;
  add_verbs_devices(&nics, &why);
  EXPECT_EQ(nics.empty(), !why.empty()) << why;
}

}  // namespace
}  // namespace parallax
