// SPDX-License-Identifier: Apache-2.0
#include "base/machine_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "support/temporary_folder.h"

namespace parallax {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A machine of 24000 MiB and 1000 MiB of swap, in files.
class MachineMemoryFiles : public testing::Test {
 protected:
  void SetUp() override {
    put("/proc/meminfo",
        "MemTotal:       24576000 kB\nMemFree:        20000000 kB\nSwapTotal:       1024000 kB\n");
  }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    root_.write(path.substr(1), text);
  }
  MachineMemory read() const { return machine_memory(root_.path()); }

  testkit::TemporaryFolder root_;
};

TEST_F(MachineMemoryFiles, WithoutGroupsTheMachineIsTheBound) {
  EXPECT_EQ(installed_memory_bytes(root_.path()), 24000 * kMiB);
  const MachineMemory memory = read();
  EXPECT_EQ(memory.total_bytes, 25000 * kMiB);
  EXPECT_EQ(memory.limit_bytes, 0u);
  EXPECT_EQ(memory.most_bytes(), 25000 * kMiB);
}

TEST_F(MachineMemoryFiles, OfVersion2TheLeastOnTheWayUpHolds) {
  put("/proc/self/cgroup", "0::/jobs/42/step\n");
  put("/sys/fs/cgroup/jobs/42/step/memory.max", "max\n");
  put("/sys/fs/cgroup/jobs/42/memory.max", "4294967296\n");
  put("/sys/fs/cgroup/jobs/memory.max", "8589934592\n");
  const MachineMemory memory = read();
  EXPECT_EQ(memory.most_bytes(), 4096 * kMiB);
  EXPECT_EQ(memory.limit_file, "/sys/fs/cgroup/jobs/42/memory.max");
  put("/sys/fs/cgroup/jobs/42/memory.max", "99999999999999\n");
  put("/sys/fs/cgroup/jobs/memory.max", "max\n");
  EXPECT_EQ(read().limit_bytes, 0u) << "more than the machine has is no limit";
}

TEST_F(MachineMemoryFiles, OfVersion1TheMemoryControllerHolds) {
  put("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:hugetlb,memory:/docker/7\n1:name=systemd:/b\n");
  put("/sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes", "1073741824\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const MachineMemory memory = read();
  EXPECT_EQ(memory.most_bytes(), 1024 * kMiB);
  EXPECT_EQ(memory.limit_file, "/sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes");
}

// In a container the group is named as the host names it, and lies at the mount's top.
TEST_F(MachineMemoryFiles, AContainersOwnGroupIsTheTop) {
  put("/proc/self/cgroup", "0::/system.slice/docker-7.scope\n");
  put("/sys/fs/cgroup/memory.max", "2147483648\n");
  EXPECT_EQ(read().most_bytes(), 2048 * kMiB);
  put("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(read().most_bytes(), 2048 * kMiB);
}

TEST_F(MachineMemoryFiles, NonsenseIsNoLimit) {
  put("/proc/meminfo", "MemTotal: many kB\nSwapTotal: 7 kB\n");
  put("/proc/self/cgroup", "nonsense\n0::\n::\n:memory:x\n");
  put("/sys/fs/cgroup/memory.max", "-7\n");
  EXPECT_EQ(read().most_bytes(), 0u);
  EXPECT_EQ(machine_memory(root_.path() + "/none").most_bytes(), 0u);
}

TEST(MachineMemory, ThisMachineHasSome) { EXPECT_GT(machine_memory().most_bytes(), kMiB); }

}  // namespace
}  // namespace parallax
