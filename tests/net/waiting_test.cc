// SPDX-License-Identifier: Apache-2.0
// What a step between two ranks of a host asks of the kernel while both look: by strace, which has
// to be there and to be let trace; elsewhere the test skips itself and says why.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "net/rank_process.h"
#include "support/temporary_folder.h"

namespace parallax::net {
namespace {

constexpr uint64_t kSteps = 2000;
// Floats of a variable that goes on boards, and of one in messages, of less than 64 KB.
constexpr uint64_t kElements[] = {2, 16'000};
constexpr uint64_t kStepsPerMs = 20;  // at least, of ranks with a core each, by far
constexpr int kRoundsMax = 5;

// Runs it by sh; its exit status, or -1.
int run_shell(const std::string& command, std::string* said) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return -1;
  std::array<char, 256> bytes;
  while (std::fgets(bytes.data(), bytes.size(), pipe) != nullptr) *said += bytes.data();
  const int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string line_of(const std::string& path, const std::string& prefix) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(prefix)) return line.substr(prefix.size());
  }
  return "";
}

// By name, those that the thread made that made the marks, between them. A line of strace -f is
// "PID NAME(...": also where other threads' lines come in between.
std::map<std::string, uint64_t> calls_between_marks(const std::string& trace) {
  std::map<std::string, uint64_t> calls;
  std::string marker;
  int marks = 0;
  std::ifstream file(trace);
  for (std::string line; std::getline(file, line);) {
    const std::string thread = line.substr(0, line.find(' '));
    const size_t name = line.find_first_not_of(' ', thread.size());
    const size_t open = line.find('(');
    if (name == std::string::npos || open == std::string::npos || open < name) continue;
    const std::string call = line.substr(name, open - name);
    if (call == "getppid") {
      marker = thread;
      ++marks;
    } else if (marks == 1 && thread == marker && call[0] != '<' && call[0] != '-') {
      ++calls[call];
    }
  }
  EXPECT_EQ(marks, 2) << trace;
  return calls;
}

class Waiting : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer makes system calls of its own";
#endif
    std::string said;
    if (run_shell("strace -f -o /dev/null true", &said) != 0) {
      GTEST_SKIP() << "no strace that may trace: " << said;
    }
  }

  // Two ranks of a host, each traced; they never block, however long another has the core.
  static void run_ranks(const std::string& folder, uint64_t elements) {
    std::string ranks, said;
    for (const char* rank : {"0", "1"}) {
      ranks += std::string("strace -f -o ") + folder + "/trace" + rank + " '" +
               program_path("stepper") + "' --rendezvous file:" + folder + "/rendezvous --rank " +
               rank + " --hosts 0,0 --steps " + std::to_string(kSteps) + " --elements " +
               std::to_string(elements) + " >" + folder + "/said" + rank + " & pids=\"$pids $!\"; ";
    }
    const int failed =
        run_shell("export PARALLAX_SPIN_US=1000000 PARALLAX_SPIN_YIELD=off; " + ranks +
                      "failed=0; for p in $pids; do wait $p || failed=1; done; "
                      "exit $failed",
                  &said);
    ASSERT_EQ(failed, 0) << said << line_of(folder + "/said0", "refused ")
                         << line_of(folder + "/said1", "refused ");
  }
  static uint64_t elapsed_ms(const std::string& folder, const char* rank) {
    return std::strtoull(line_of(folder + "/said" + rank, "elapsed ").c_str(), nullptr, 10);
  }
};

// What a rank asked the kernel for, of steps that took so long together: the calls that time
// brings, not steps. A millisecond apart a look at what tells of a peer's death, a lock that the
// resting thread had, and a bell as a wait of so long ends.
void expect_few_calls(const std::string& trace, uint64_t time_ms, const std::string& of) {
  for (const auto& [call, count] : calls_between_marks(trace)) {
    const bool seldom =
        call == "epoll_wait" || call == "read" || call == "futex" || call == "write";
    EXPECT_LE(count, seldom ? time_ms + 2 : 0)
        << call << of << ", in " << kSteps << " steps of " << time_ms << " ms together";
    ::testing::Test::RecordProperty(call + of, std::to_string(count));
  }
}

// Given two ranks of a host that look, expect their steps to block nobody and to make no system
// calls, of any size up to 64 KB.
TEST_F(Waiting, a_step_that_ends_by_looking_makes_no_system_call) {
  for (const uint64_t elements : kElements) {
    // A machine that has no core for both makes of each step milliseconds, which tell little.
    std::optional<testkit::TemporaryFolder> folder;
    for (int round = 0; round < kRoundsMax; ++round) {
      folder.emplace();
      ASSERT_NO_FATAL_FAILURE(run_ranks(folder->path(), elements));
      if (elapsed_ms(folder->path(), "0") <= kSteps / kStepsPerMs) break;
    }
    uint64_t spun = 0;
    for (const char* rank : {"0", "1"}) {
      const std::string of = " of rank " + std::string(rank) + ", " + std::to_string(elements);
      const uint64_t time_ms = elapsed_ms(folder->path(), rank);
      const nlohmann::json waiting =
          nlohmann::json::parse(line_of(folder->path() + "/said" + rank, "waiting "));
      EXPECT_LE(waiting["bells"], time_ms + 1) << waiting << of;
      EXPECT_EQ(waiting["blocked"], 0) << waiting << of;
      spun += waiting["spun"].get<uint64_t>();
      expect_few_calls(folder->path() + "/trace" + rank, time_ms, of);
      RecordProperty("elapsed_ms" + of, std::to_string(time_ms));
    }
    // Who comes last to an exchange has it within its call, and does not wait: about one waits of
    // each, of two that a step has, which one is chance, and where both come together none does.
    EXPECT_GT(spun, kSteps / 10) << elements;
  }
}

}  // namespace
}  // namespace parallax::net
