// SPDX-License-Identifier: Apache-2.0
// Machines that are short of something: /dev/shm of one page or full, a rendezvous on a full
// disk, no port. In namespaces of their own, so as root; elsewhere the tests skip themselves and
// say why.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "net/rank_process.h"

namespace parallax::net {
namespace {

// Runs `script` by sh in a mount and a network namespace of its own, with $OPENER the opener's
// path, and gives its exit status; -1: it could not be started.
int run_apart(const std::string& script, std::string* said) {
  const std::string command = "OPENER='" + program_path("opener") +
                              "' unshare --mount --net sh -c 'ip link set lo up; " + script +
                              "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return -1;
  std::array<char, 256> bytes;
  while (std::fgets(bytes.data(), bytes.size(), pipe) != nullptr) *said += bytes.data();
  const int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class TightMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string said;
    if (run_apart("mount -t tmpfs -o size=4k none /mnt", &said) != 0) {
      GTEST_SKIP() << "no namespaces to be had (root is needed): " << said;
    }
  }
};

// Two ranks of one host and one of another; all must end with 0.
constexpr char kThreeRanks[] =
    "dir=$(mktemp -d); pids=; "
    "for r in 0 1 2; do "
    "\"$OPENER\" --rendezvous file:$dir/rendezvous --rank $r --hosts 0,0,1 & pids=\"$pids $!\"; "
    "done; "
    "failed=0; for p in $pids; do wait $p || failed=1; done; rm -rf $dir; [ $failed = 0 ]";

// Given /dev/shm of one page, filled to the last byte, expect a job within and between hosts to
// train: nothing of it lies there.
TEST_F(TightMachine, trains_without_dev_shm) {
  std::string said;
  EXPECT_EQ(run_apart(std::string("mount -t tmpfs -o size=4k none /dev/shm && "
                                  "head -c 4096 /dev/zero >/dev/shm/all; ") +
                          kThreeRanks,
                      &said),
            0)
      << said;
}

// Given a rendezvous on a full disk, expect IO with the path and the system's reason, on a rank
// that comes first and at once.
TEST_F(TightMachine, a_full_disk_is_told) {
  std::string said;
  EXPECT_EQ(run_apart("mount -t tmpfs -o size=8k none /mnt && "
                      "head -c 8192 /dev/zero >/mnt/all; mkdir /mnt/place; "
                      "\"$OPENER\" --rendezvous file:/mnt/place --rank 0 --hosts 0,1",
                      &said),
            3)
      << said;
  EXPECT_NE(said.find("refused IO: "), std::string::npos) << said;
  EXPECT_NE(said.find("/mnt/place"), std::string::npos) << said;
  EXPECT_NE(said.find("No space left"), std::string::npos) << said;
}

// Given a machine whose ports are all taken, expect LIMIT with the remedy, and no search for one
// that never ends.
TEST_F(TightMachine, no_port_is_told) {
  std::string said;
  ASSERT_EQ(setenv("RANKS", kThreeRanks, 1), 0);
  EXPECT_EQ(run_apart(R"sh(echo 40000 40001 >/proc/sys/net/ipv4/ip_local_port_range
                         python3 -c "
import os, socket
for port in 40000, 40001:
    held = socket.socket()
    held.bind((\"\", port))
    os.set_inheritable(held.detach(), True)
os.execvp(\"sh\", [\"sh\", \"-c\", os.environ[\"RANKS\"]])")sh",
                      &said),
            1)
      << said;
  EXPECT_NE(said.find("refused LIMIT: "), std::string::npos) << said;
  EXPECT_NE(said.find("ip_local_port_range"), std::string::npos) << said;
}

}  // namespace
}  // namespace parallax::net
