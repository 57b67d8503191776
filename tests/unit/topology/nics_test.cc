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

TEST(Nics, AMachineWithoutOneSaysWhy) {
  std::vector<Nic> nics;
  std::string why;
  add_verbs_devices(&nics, &why);
  EXPECT_EQ(nics.empty(), !why.empty()) << why;
}

}  // namespace
}  // namespace parallax
