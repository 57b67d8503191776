// SPDX-License-Identifier: Apache-2.0
// Jobs whose devices sum among themselves, with ranks as processes, one of which is this program
// again: with an NCCL of another version, with one that is too old, and killed.
#include <fcntl.h>
#include <nccl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "cuda/module_ranks.h"
#include "support/temporary_folder.h"

extern char** environ;

namespace cuda_double_test {
namespace {

std::string from_environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// What a rank of two came to.
struct Came {
  parallax_status_t committed = PARALLAX_OK, reduced = PARALLAX_OK;
  std::string sentence, plan, stats;
};

// A step, and a second one that rank 1 does not live to see if it is to be killed.
Came be_one_of_two(uint32_t rank, const std::string& folder, bool killed, bool ordered) {
  const std::string rendezvous = "file:" + folder;
  auto options = sized<parallax_options_t>();
  options.rank = rank;
  options.world = 2;
  options.rendezvous = rendezvous.c_str();
  options.deterministic = ordered ? 1 : 0;
  DeviceRank own{rank, 2, nullptr};
  check(parallax_open(&options, &own.job));
  own.add("w");
  Came came;
  {
    const Current current(static_cast<int>(rank));
    const DeviceNumbers<float> values(std::vector<float>(kCount, static_cast<float>(rank + 1)));
    came.committed = parallax_commit(own.job);
    if (came.committed == PARALLAX_OK) {
      came.plan = own.report(PARALLAX_REPORT_PLAN);
      uint64_t step = own.begin();
      DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
      EXPECT_EQ(values.host()[kCount - 1], 3.f);
      came.stats = own.report(PARALLAX_REPORT_STATS);
      // Once the other one has finished that step, and its devices wait in the next.
      const std::string waiting = folder + ".waiting";  // the folder goes when all have met
      while (killed && rank == 1 && access(waiting.c_str(), F_OK) != 0) usleep(1000);
      if (killed && rank == 1) kill(getpid(), SIGKILL);
      if (killed) {
        step = own.begin();
        parallax_request_t* request = own.reduce(step, own.slice(0, values.address()));
        EXPECT_EQ(DeviceRank::wait(request, 30), PARALLAX_TIMEOUT);
        const int file = creat(waiting.c_str(), 0600);
        EXPECT_GE(file, 0);
        close(file);
        came.reduced = DeviceRank::wait(request, 60000);
        unlink(waiting.c_str());
        came.sentence = parallax_last_error();
        check(parallax_request_release(request));
      }
    } else {
      came.sentence = parallax_last_error();
    }
    parallax_close(own.job);
  }
  return came;
}

// Two ranks of four, as threads of this process, each on a device of its own: a step by NCCL, and
// its outcome.
void be_two_of_four(uint32_t process, const std::string& folder) {
  cuda_double_reset(4);
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  const std::string rendezvous = "file:" + folder;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, rank = 2 * process + i] {
      auto options = sized<parallax_options_t>();
      options.rank = rank;
      options.world = 4;
      options.rendezvous = rendezvous.c_str();
      DeviceRank own{rank, 4, nullptr};
      check(parallax_open(&options, &own.job));
      own.add("w");
      check(parallax_commit(own.job));
      const std::string plan = own.report(PARALLAX_REPORT_PLAN);
      EXPECT_NE(plan.find("among the devices, by NCCL"), std::string::npos) << plan;
      {
        const Current current(static_cast<int>(rank));
        const DeviceNumbers<float> values(std::vector<float>(kCount, static_cast<float>(rank + 1)));
        const uint64_t step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
        EXPECT_EQ(values.values(), std::vector<float>(kCount, 10)) << rank;
      }
      EXPECT_EQ(parallax_close(own.job), PARALLAX_OK) << parallax_last_error();
    });
  }
  for (std::thread& each : threads) each.join();
}

class ModuleNcclProcesses : public testing::Test {
 protected:
  void SetUp() override {
    cuda_double_reset(2);
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(leaks(), "");
    EXPECT_EQ(nccl_leaks(), "");
  }
  // This process as rank 0, another as rank 1 with these in its environment.
  Came run(const std::map<std::string, std::string>& environment, bool killed = false,
           bool ordered = false) {
    const parallax::testkit::TemporaryFolder folder;
    std::map<std::string, std::string> all = environment;
    all["NCCL_TEST_FOLDER"] = folder.path();
    all["NCCL_TEST_KILLED"] = killed ? "yes" : "";
    all["NCCL_TEST_ORDERED"] = ordered ? "yes" : "";
    const pid_t child = spawn("ARank", all);
    Came came = be_one_of_two(0, folder.path(), killed, ordered);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(killed ? WIFSIGNALED(status) : status == 0) << status;
    return came;
  }
  // Another process that runs one of these tests, with these in its environment.
  static pid_t spawn(const std::string& test, const std::map<std::string, std::string>& all) {
    std::vector<std::string> lines;
    for (char** line = environ; *line != nullptr; ++line) {
      const std::string text = *line;
      if (all.count(text.substr(0, text.find('='))) == 0) lines.push_back(text);
    }
    for (const auto& [name, value] : all) lines.push_back(name + "=" + value);
    std::vector<char*> pointers;
    for (std::string& line : lines) pointers.push_back(line.data());
    pointers.push_back(nullptr);
    std::string program = "/proc/self/exe", filter = "--gtest_filter=ModuleNcclProcesses." + test;
    char* arguments[] = {program.data(), filter.data(), nullptr};
    pid_t child = -1;
    EXPECT_EQ(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, pointers.data()),
              0);
    return child;
  }
};

// By itself nothing; else what the tests below spawn.
TEST_F(ModuleNcclProcesses, ARank) {
  const std::string folder = from_environment("NCCL_TEST_FOLDER");
  if (folder.empty()) return;
  const bool killed = from_environment("NCCL_TEST_KILLED") == "yes";
  const bool ordered = from_environment("NCCL_TEST_ORDERED") == "yes";
  const Came came = be_one_of_two(1, folder, killed, ordered);
  const std::string expected = from_environment("NCCL_TEST_COMMITTED");
  EXPECT_EQ(std::to_string(came.committed), expected.empty() ? "0" : expected) << came.sentence;
}

TEST_F(ModuleNcclProcesses, SumAmongTheirDevices) {
  const uint64_t before = nccl_double_finished();
  const Came came = run({});
  EXPECT_NE(came.plan.find("among the devices, by NCCL"), std::string::npos) << came.plan;
  EXPECT_EQ(nccl_double_finished(), before + 1);
}

// Given ranks that are threads, several in each of several processes, expect one communicator of
// all their devices. By itself this is the second process.
TEST_F(ModuleNcclProcesses, ThreadsOfSeveralProcessesHaveADeviceEach) {
  const std::string given = from_environment("NCCL_TEST_FOLDER");
  if (!given.empty()) return be_two_of_four(1, given);
  const parallax::testkit::TemporaryFolder folder;
  const uint64_t before = nccl_double_finished();
  const pid_t child =
      spawn("ThreadsOfSeveralProcessesHaveADeviceEach", {{"NCCL_TEST_FOLDER", folder.path()}});
  be_two_of_four(0, folder.path());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(nccl_double_finished(), before + 2);
}

TEST_F(ModuleNcclProcesses, WhoIsKilledIsLostAndTheReductionGivenUp) {
  const uint64_t aborts = cuda_double_calls("ncclCommAbort");
  const Came came = run({}, true);
  EXPECT_EQ(came.reduced, PARALLAX_PEER_LOST) << came.sentence;
  EXPECT_NE(came.sentence.find("rank 1"), std::string::npos) << came.sentence;
  EXPECT_EQ(cuda_double_calls("ncclCommAbort"), aborts + 1);
}

TEST_F(ModuleNcclProcesses, VersionsThatDoNotFitAreAMismatch) {
  const Came came = run({{"NCCL_DOUBLE_VERSION", "21805"},
                         {"NCCL_TEST_COMMITTED", std::to_string(PARALLAX_MISMATCH)}});
  EXPECT_EQ(came.committed, PARALLAX_MISMATCH);
  for (const char* words : {"versions of NCCL do not fit", "rank 1", "NCCL 2.18.5"}) {
    EXPECT_NE(came.sentence.find(words), std::string::npos) << came.sentence;
  }
}

TEST_F(ModuleNcclProcesses, DriversOfOneMajorVersionFit) {
  EXPECT_NE(run({{"CUDA_DOUBLE_DRIVER", "13020"}}).plan.find("among the devices"),
            std::string::npos);
  const Came came = run({{"CUDA_DOUBLE_DRIVER", "12040"},
                         {"NCCL_TEST_COMMITTED", std::to_string(PARALLAX_MISMATCH)}});
  EXPECT_EQ(came.committed, PARALLAX_MISMATCH);
  EXPECT_NE(came.sentence.find("versions of CUDA do not fit"), std::string::npos) << came.sentence;
}

// Sums in an order gather into windows where all ranks have them, and else into memory as any: one
// rank alone would wait for the others in a call that they do not make.
TEST_F(ModuleNcclProcesses, WindowsWantEveryRankToHaveThem) {
  const uint64_t before = cuda_double_calls("ncclCommWindowRegister");
  Came came = run({}, false, true);
  EXPECT_NE(came.stats.find(R"("gather_windows":1)"), std::string::npos) << came.stats;
  EXPECT_EQ(cuda_double_calls("ncclCommWindowRegister"), before + 1);
  // Of the same version, without the functions.
  came = run({{"LD_LIBRARY_PATH", PARALLAX_CUDA_DOUBLE "_2.18"},
              {"NCCL_DOUBLE_VERSION", std::to_string(NCCL_VERSION_CODE)}},
             false, true);
  EXPECT_NE(came.plan.find("among the devices, by NCCL"), std::string::npos) << came.plan;
  EXPECT_NE(came.stats.find(R"("gather_windows":0)"), std::string::npos) << came.stats;
  EXPECT_EQ(cuda_double_calls("ncclCommWindowRegister"), before + 1);
}

// Its library is too old to be used: host memory carries the sum, with the same values.
TEST_F(ModuleNcclProcesses, ARankWithoutNcclLeavesItToTheHost) {
  const uint64_t before = nccl_double_launched();
  const Came came = run({{"LD_LIBRARY_PATH", PARALLAX_CUDA_DOUBLE "_2.14"}});
  EXPECT_NE(came.plan.find("go by host memory: rank 1"), std::string::npos) << came.plan;
  EXPECT_NE(came.plan.find("NCCL 2.14.3"), std::string::npos) << came.plan;
  EXPECT_EQ(nccl_double_launched(), before);
}

}  // namespace
}  // namespace cuda_double_test
