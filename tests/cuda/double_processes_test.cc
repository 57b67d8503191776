// SPDX-License-Identifier: Apache-2.0
// The double of libnccl.so.2: ranks as processes, one of which is this program again.
#include <nccl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "cuda/double_fixture.h"

extern char** environ;

namespace cuda_double_test {

std::string told(const char* variable, const char* otherwise) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? otherwise : value;
}

// Collectives of one rank, whose number is in the sum: `rounds` of them, and then one that nobody
// else launches if the rank is to be killed.
void be_a_rank(int rank, int count, const ncclUniqueId& id) {
  const Current current(rank);
  const Stream stream;
  ncclComm_t communicator = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&communicator, count, id, rank, nullptr), ncclSuccess);
  {
    const DeviceNumbers<int> numbers({rank + 1});
    ASSERT_EQ(ncclAllReduce(numbers.address(), numbers.address(), 1, ncclInt, ncclSum, communicator,
                            stream.get()),
              ncclSuccess);
    while (cuStreamQuery(stream.get()) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
    EXPECT_EQ(numbers.values()[0], count * (count + 1) / 2);
  }
  if (told("DOUBLE_TEST_KILLED", "") == "yes" && rank == 1) kill(getpid(), SIGKILL);
  if (told("DOUBLE_TEST_KILLED", "") == "yes") {
    const DeviceNumbers<int> numbers({1});
    ASSERT_EQ(ncclAllReduce(numbers.address(), numbers.address(), 1, ncclInt, ncclSum, communicator,
                            stream.get()),
              ncclSuccess);
    EXPECT_EQ(cuStreamQuery(stream.get()), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(ncclCommAbort(communicator), ncclSuccess);
    while (cuStreamQuery(stream.get()) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  } else {
    EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
  }
}

class NcclProcesses : public DoubleTest {
 protected:
  // Another process as rank 1 of 2, with the id in its environment.
  static pid_t spawn(const ncclUniqueId& id) {
    setenv("DOUBLE_TEST_ID", id.internal, 1);
    std::string program = "/proc/self/exe", filter = "--gtest_filter=NcclProcesses.ARank";
    char* arguments[] = {program.data(), filter.data(), nullptr};
    pid_t child = -1;
    EXPECT_EQ(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    unsetenv("DOUBLE_TEST_ID");
    return child;
  }
};

// By itself a world of one; else what the tests below spawn.
TEST_F(NcclProcesses, ARank) {
  ncclUniqueId id = {};
  const std::string path = told("DOUBLE_TEST_ID", "");
  if (path.empty()) {
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    return be_a_rank(0, 1, id);
  }
  std::memcpy(id.internal, path.data(), path.size());
  be_a_rank(1, 2, id);
}

TEST_F(NcclProcesses, RanksMeetInAFile) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const pid_t child = spawn(id);
  be_a_rank(0, 2, id);
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(access(id.internal, F_OK), 0);  // it is gone when they have met
}

TEST_F(NcclProcesses, WhoIsKilledMakesTheOthersWaitUntilTheyAbort) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  setenv("DOUBLE_TEST_KILLED", "yes", 1);
  const pid_t child = spawn(id);
  be_a_rank(0, 2, id);
  unsetenv("DOUBLE_TEST_KILLED");
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace cuda_double_test
