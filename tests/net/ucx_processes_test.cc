// SPDX-License-Identifier: Apache-2.0
// UcxTransport between processes over loopback: contents, wake-ups, deaths and stops. The children
// run ucx_programs.cc; this process never uses UCX itself.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <vector>

#include "net/ucx_process.h"
#include "support/real_time.h"
#include "transport/transport.h"

namespace parallax::net {
namespace {

using Clock = std::chrono::steady_clock;

class UcxProcesses : public ::testing::Test {
 protected:
  void start(const std::string& role, uint32_t world) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      ranks_.push_back(std::make_unique<Process>(
          folder_, ProcessOptions{.role = role, .rank = rank, .world = world}));
    }
  }
  void tell(const std::string& name, const std::string& word) {
    std::ofstream(folder_.path() + "/" + name + ".draft") << word;
    std::rename((folder_.path() + "/" + name + ".draft").c_str(),
                (folder_.path() + "/" + name).c_str());
  }
  // The line's rest, as a test property too, so that ctest's XML keeps the figure.
  std::string expect_line(uint32_t rank, const std::string& prefix) {
    const auto line = ranks_[rank]->wait_line(prefix);
    EXPECT_TRUE(line.has_value()) << "rank " << rank << " never said \"" << prefix << "\"";
    if (line.has_value()) RecordProperty("rank" + std::to_string(rank), prefix + *line);
    return line.value_or("");
  }
  void expect_soon(Clock::time_point since) {
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since);
    RecordProperty("heard_after_ms", static_cast<int>(took.count()));
    EXPECT_LT(took, std::chrono::milliseconds(testkit::kPromptMs));
  }
  void expect_success() {
    for (auto& rank : ranks_) EXPECT_EQ(rank->wait_exit(), 0);
  }

  RendezvousFolder folder_;
  std::vector<std::unique_ptr<Process>> ranks_;
};

// Given four processes that send mixed sizes to each other at once, expect every byte in order.
TEST_F(UcxProcesses, exchange_everything) {
  start("exchange", 4);
  for (uint32_t rank = 0; rank < 4; ++rank) expect_line(rank, "done in ");
  expect_success();
}

// Given a blocked ping-pong of 20,000 rounds, expect no wake-up to be lost.
TEST_F(UcxProcesses, wake_each_other) {
  start("ping", 2);
  expect_line(0, "round trip ");
  expect_success();
}

// Given the receiver killed under load, expect the sender to hear of it soon, once, and all its
// sends to complete.
TEST_F(UcxProcesses, receiver_killed) {
  start("until_lost", 2);
  expect_line(0, "running");
  expect_line(1, "running");
  const auto killed = Clock::now();
  ranks_[1]->signal(SIGKILL);
  expect_line(0, "lost rank 1");
  expect_soon(killed);
  EXPECT_EQ(ranks_[0]->wait_exit(), 0);
}

// Given the sender killed, expect the receiver, which has sent nothing but credits, to hear of it.
TEST_F(UcxProcesses, sender_killed) {
  start("until_lost", 2);
  expect_line(0, "running");
  expect_line(1, "running");
  const auto killed = Clock::now();
  ranks_[0]->signal(SIGKILL);
  expect_line(1, "lost rank 0");
  expect_soon(killed);
  EXPECT_EQ(ranks_[1]->wait_exit(), 0);
}

// Given a receiver that is stopped, expect its sender to be pushed back after at most its credits,
// to see no loss (leases are above), and to go on once it continues.
TEST_F(UcxProcesses, receiver_stopped_and_continued) {
  start("push", 2);
  expect_line(0, "running");
  ranks_[1]->signal(SIGSTOP);
  tell("stopped", "x");
  const std::string more = expect_line(0, "pushed back after ");
  ASSERT_FALSE(more.empty());
  EXPECT_LE(std::stoul(more), kSendsInFlightMax);
  ranks_[1]->signal(SIGCONT);
  tell("then", "resume");
  expect_line(0, "resumed");
  expect_success();
}

// Given a receiver that is stopped for good, expect its sender to close all the same, soon.
TEST_F(UcxProcesses, close_beside_a_stopped_receiver) {
  start("push", 2);
  expect_line(0, "running");
  ranks_[1]->signal(SIGSTOP);
  tell("stopped", "x");
  expect_line(0, "pushed back after ");
  tell("then", "close");
  const std::string ms = expect_line(0, "closed in ");
  ASSERT_FALSE(ms.empty());
  EXPECT_LT(std::stol(ms), testkit::kPromptMs);
  EXPECT_EQ(ranks_[0]->wait_exit(), 0);
}

}  // namespace
}  // namespace parallax::net
