// SPDX-License-Identifier: Apache-2.0
// The cores that a thread may use: its own affinity, and control groups in files.
#include "base/usable_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <string>
#include <thread>

#include "support/temporary_folder.h"

namespace parallax {
namespace {

class UsableCoresFiles : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    root_.write(path.substr(1), text);
  }
  UsableCores read() const { return usable_cores(root_.path()); }

  testkit::TemporaryFolder root_;
};

TEST_F(UsableCoresFiles, WithoutGroupsThereIsNoQuota) {
  const UsableCores cores = read();
  EXPECT_EQ(cores.quota_thousandths, 0u);
  EXPECT_EQ(cores.quota_file, "");
  EXPECT_GE(core_count(cores.mask), 1u);
  EXPECT_LE(cores.mask.size(), kCoreMaskBytesMax);
}

TEST_F(UsableCoresFiles, OfVersion2TheLeastOnTheWayUpHolds) {
  put("/proc/self/cgroup", "0::/jobs/42/step\n");
  put("/sys/fs/cgroup/jobs/42/step/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/jobs/42/cpu.max", "150000 100000\n");
  put("/sys/fs/cgroup/jobs/cpu.max", "800000 100000\n");
  const UsableCores cores = read();
  EXPECT_EQ(cores.quota_thousandths, 1500u);
  EXPECT_EQ(cores.quota_file, "/sys/fs/cgroup/jobs/42/cpu.max");
  put("/sys/fs/cgroup/jobs/cpu.max", "50000 100000\n");
  EXPECT_EQ(read().quota_thousandths, 500u);
}

TEST_F(UsableCoresFiles, OfVersion1TheCpuControllerHoldsWhateverSharesItsMount) {
  put("/proc/self/cgroup", "5:cpu,cpuacct:/docker/7\n4:memory:/docker/7\n0::/\n");
  put("/sys/fs/cgroup/cpu/docker/7/cpu.cfs_quota_us", "200000\n");
  put("/sys/fs/cgroup/cpu/docker/7/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  const UsableCores cores = read();
  EXPECT_EQ(cores.quota_thousandths, 2000u);
  EXPECT_EQ(cores.quota_file, "/sys/fs/cgroup/cpu/docker/7/cpu.cfs_quota_us");
}

// Given processes of one group and of another, expect the group to tell them apart by more than its
// path, which containers have alike.
TEST_F(UsableCoresFiles, GroupsAreToldApart) {
  put("/proc/self/cgroup", "0::/a\n");
  put("/sys/fs/cgroup/a/cpu.max", "100000 100000\n");
  const UsableCores one = read();
  EXPECT_EQ(read(), one);
  testkit::TemporaryFolder beside;
  std::filesystem::copy(root_.path(), beside.path(), std::filesystem::copy_options::recursive);
  const UsableCores other = usable_cores(beside.path());
  EXPECT_EQ(other.quota_file, one.quota_file);
  EXPECT_NE(other.quota_group, one.quota_group);
}

TEST_F(UsableCoresFiles, NonsenseIsNoQuota) {
  put("/proc/self/cgroup", "0::/a\n");
  for (const char* text : {"", "\n", "max\n", "100000\n", "-5 100000\n", "100000 0\n", "x y\n",
                           "100000 -1\n", "999999999999999999999999 100000\n"}) {
    put("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(read().quota_thousandths, 0u) << text;
  }
  put("/sys/fs/cgroup/a/cpu.max", "1 1000000\n");
  EXPECT_EQ(read().quota_thousandths, 1u) << "less than can be told is not none";
  put("/sys/fs/cgroup/a/cpu.max", "9000000000000000000 1\n");
  EXPECT_EQ(read().quota_thousandths, 1000 * 8 * kCoreMaskBytesMax);
}

// Given a thread bound to one core, expect that one alone, by its number.
TEST(UsableCores, TheMaskIsTheCallingThreads) {
  const UsableCores before = usable_cores();
  ASSERT_FALSE(before.mask.empty());
  const size_t last = 8 * before.mask.size() - 1;
  size_t core = last;
  while ((before.mask[core / 8] >> core % 8 & 1) == 0) --core;
  std::thread bound([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    const UsableCores cores = usable_cores();
    EXPECT_EQ(core_count(cores.mask), 1u);
    ASSERT_EQ(cores.mask.size(), core / 8 + 1);
    EXPECT_EQ(cores.mask[core / 8] >> core % 8 & 1, 1);
  });
  bound.join();
  EXPECT_EQ(usable_cores(), before);
}

TEST(UsableCores, QuotasReadAsCores) {
  EXPECT_EQ(core_quota_text(2000), "2");
  EXPECT_EQ(core_quota_text(1500), "1.5");
  EXPECT_EQ(core_quota_text(1), "0.001");
  EXPECT_EQ(core_quota_text(10050), "10.05");
}

}  // namespace
}  // namespace parallax
