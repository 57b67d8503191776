// SPDX-License-Identifier: Apache-2.0
// A rank is killed or stopped, in every phase and every role, between real processes: 2 hosts x 2
// ranks over tcp, or UCX, and shared memory. Every survivor's call answers PEER_LOST, names the
// rank and its host, and does so within the lease; nobody hangs; one that was stopped and continues
// ends too.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/open_losses.h"
#include "net/rank_process.h"
#include "support/environment_variable.h"

namespace parallax::net {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kTimeoutMs = 60000;  // of the job: a rank that runs into it has failed the test
constexpr milliseconds kReachPatience{30000};
constexpr milliseconds kEndPatience{kLeaseMs + 2 * kSlackMs};
constexpr size_t kCasesAtOnce = 4;

struct Phase {
  const char* name;
  const char* at;
};
const Phase kPhases[] = {
    {"rendezvous", "rendezvous:0"},
    {"connect", "connect:0"},
    {"commit", "commit:0"},
    {"pull", "pull:4"},
    {"push", "push:4"},
    {"reduce", "reduce:4"},
    {"step_end", "step_end:4"},
    {"wait", "wait:4"},
    {"close", "close:6"},
};
struct Role {
  const char* name;
  uint32_t rank;
};
const Role kRoles[] = {
    {"rank 0", 0}, {"its host-mate", 1}, {"owner on another host", 2}, {"last rank", 3}};

// One case: a job of four of which one ends or stops.
class Case {
 public:
  Case(const Phase& phase, const Role& role, bool stop)
      : phase_(phase), role_(role), stop_(stop), job_(options()) {
    // Who dies while ranks meet is there before the others: it would else be through too soon.
    const bool early = std::string(phase.name) == "rendezvous";
    job_.start(role.rank, {"--die-at", phase.at, "--die-how", stop ? "stop" : "kill"});
    const auto gone = [this] { return !victim().running() || victim().stopped(); };
    if (early) {
      EXPECT_TRUE(job_.wait_until(gone, kReachPatience)) << describe();
    }
    for (uint32_t rank = 0; rank < job_.world(); ++rank) {
      if (rank != role.rank) job_.start(rank);
    }
    started_ms_ = monotonic_ms();
  }

  // Looks once; true when it is over.
  bool advance() {
    job_.wait_until([] { return true; }, milliseconds(0));
    const bool gone = !victim().running() || victim().stopped();
    if (gone_ms_ == 0 && gone) gone_ms_ = monotonic_ms();
    const bool out_of_time = gone_ms_ == 0 ? monotonic_ms() - started_ms_ > kReachPatience.count()
                                           : monotonic_ms() - gone_ms_ > kEndPatience.count();
    if (!out_of_time && (gone_ms_ == 0 || survivors_running())) return false;
    EXPECT_NE(gone_ms_, 0) << describe() << ": the phase was never reached";
    judge();
    return true;
  }

  // The line of the table.
  std::string row() const {
    char text[160];
    std::snprintf(text, sizeof text, "report: %-8s %-22s %-4s %8lld %8lld %10lld", phase_.name,
                  role_.name, stop_ ? "stop" : "kill", static_cast<long long>(first_ms_),
                  static_cast<long long>(last_ms_), static_cast<long long>(continued_ms_));
    return text;
  }

 private:
  static RankJobOptions options() {
    return {.host_of = {0, 0, 1, 1},
            .arguments = {"--steps", "6", "--lease-ms", std::to_string(kLeaseMs), "--timeout-ms",
                          std::to_string(kTimeoutMs)},
            .net_namespaces = {}};
  }

  RankProcess& victim() { return job_.rank(role_.rank); }
  std::string describe() const {
    return std::string(role_.name) + (stop_ ? " stopped" : " killed") + " at " + phase_.at;
  }
  bool survivors_running() {
    for (uint32_t rank = 0; rank < job_.world(); ++rank) {
      if (rank != role_.rank && job_.rank(rank).running()) return true;
    }
    return false;
  }

  void judge() {
    // Survivors of a rendezvous may come later than the death: they count from their own start.
    const int64_t died_ms =
        std::max<int64_t>(std::stoll(victim().line("clock ").value_or("0")),
                          std::string(phase_.name) == "rendezvous" ? started_ms_ : 0);
    for (uint32_t rank = 0; rank < job_.world(); ++rank) {
      if (rank == role_.rank) continue;
      const RankProcess& survivor = job_.rank(rank);
      const std::string who = describe() + ", rank " + std::to_string(rank) + ":\n";
      EXPECT_EQ(survivor.exit(), kExitPeerLost) << who << survivor.tail();
      const std::string said = survivor.line("status ").value_or("");
      EXPECT_TRUE(said.starts_with("PEER_LOST: ")) << who << survivor.tail();
      // The first one named is the culprit; "seen by" follows.
      const size_t named = said.find("rank ");
      EXPECT_TRUE(named != std::string::npos &&
                  said.compare(named, job_.name(role_.rank).size(), job_.name(role_.rank)) == 0)
          << who << survivor.tail();
      const int64_t took_ms = std::stoll(survivor.line("clock ").value_or("0")) - died_ms;
      EXPECT_LE(took_ms, kLeaseMs + kSlackMs) << who << survivor.tail();
      first_ms_ = rank == (role_.rank == 0 ? 1U : 0U) ? took_ms : std::min(first_ms_, took_ms);
      last_ms_ = std::max(last_ms_, took_ms);
    }
    if (stop_) {
      resume();
    } else {
      EXPECT_EQ(victim().exit(), 128 + SIGKILL) << describe();
    }
  }

  // What was stopped finds its job gone, and says so.
  void resume() {
    EXPECT_TRUE(victim().stopped()) << describe();
    const int64_t from_ms = monotonic_ms();
    victim().signal(SIGCONT);
    EXPECT_TRUE(job_.wait_exit(kEndPatience)) << describe() << ", continued:\n" << victim().tail();
    continued_ms_ = monotonic_ms() - from_ms;
    EXPECT_GT(victim().exit().value_or(0), 10) << describe() << ", continued:\n" << victim().tail();
    EXPECT_LT(victim().exit().value_or(128), 128) << describe();
    EXPECT_TRUE(victim().said("status ")) << describe() << ", continued:\n" << victim().tail();
  }

  const Phase phase_;
  const Role role_;
  const bool stop_;
  RankJob job_;
  int64_t started_ms_ = 0;
  int64_t gone_ms_ = 0;  // 0: the victim is alive yet
  int64_t first_ms_ = 0, last_ms_ = 0, continued_ms_ = 0;
};

void run_all(bool stop, std::span<const Role> roles = kRoles) {
  std::deque<std::pair<Phase, Role>> waiting;
  for (const Phase& phase : kPhases) {
    for (const Role& role : roles) waiting.emplace_back(phase, role);
  }
  std::vector<std::unique_ptr<Case>> running;
  std::vector<std::string> rows;
  while (!waiting.empty() || !running.empty()) {
    while (!waiting.empty() && running.size() < kCasesAtOnce) {
      running.push_back(
          std::make_unique<Case>(waiting.front().first, waiting.front().second, stop));
      waiting.pop_front();
    }
    std::erase_if(running, [&rows](const std::unique_ptr<Case>& each) {
      const bool over = each->advance();
      if (over) rows.push_back(each->row());
      return over;
    });
  }
  std::sort(rows.begin(), rows.end());
  std::printf("report: PEER_LOST after ms, lease %lld ms; a stopped rank, continued, ends after\n",
              static_cast<long long>(kLeaseMs));
  std::printf("report: %-8s %-22s %-4s %8s %8s %10s\n", "phase", "role", "how", "first", "last",
              "continued");
  for (const std::string& row : rows) std::printf("%s\n", row.c_str());
}

TEST(Loss, killed) { run_all(false); }
TEST(Loss, stopped) { run_all(true); }

// Given jobs of which a rank is killed within 60 ms of its open, expect no survivor to blame
// another.
TEST(Loss, soon_after_open) { expect_no_living_rank_is_blamed(1, 30); }

TEST(Loss, killed_over_ucx) {
  const testkit::EnvironmentVariable ucx("PARALLAX_TRANSPORT", "ucx");
  run_all(false, std::span(kRoles).subspan(2, 1));
}
TEST(Loss, stopped_over_ucx) {
  const testkit::EnvironmentVariable ucx("PARALLAX_TRANSPORT", "ucx");
  run_all(true, std::span(kRoles).subspan(2, 1));
}

}  // namespace
}  // namespace parallax::net
