// SPDX-License-Identifier: Apache-2.0
// Hundreds of jobs, each of which loses one rank or two at a random moment: killed in steps, two at
// once, right after open, in commit, in close; or stopped, for good or for a moment. 1 to 4 hosts
// of 2 to 8 ranks, over shared memory and tcp; half of the programs end with their first error,
// without close. Every survivor ends, names a victim, and is ended by no signal; the delays of
// detection are reported. With PARALLAX_TRANSPORT=ucx it is UCX, which may end a process whose peer
// dies while the two connect (inside open): such survivors of jobs of several hosts are counted and
// reported, and bounded. And 10,000 jobs of two hosts with a kill within 60 ms of open.
//
// By environment: PARALLAX_LOSS_SEED, PARALLAX_LOSS_KILLS, PARALLAX_LOSS_STOPS,
// PARALLAX_LOSS_OPENS.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/seeded_random.h"
#include "net/open_losses.h"
#include "net/rank_process.h"
#include "soak/soak_settings.h"

namespace parallax::net {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kSoakLeaseMs = 3000;
constexpr milliseconds kPatience{60000};
constexpr uint32_t kWorldMax = 12;  // processes at once
constexpr int kSteps = 40;
constexpr size_t kAbortedOneIn = 100;

const uint64_t kKillCount = soak_setting("PARALLAX_LOSS_KILLS", 600);
const uint64_t kStopCount = soak_setting("PARALLAX_LOSS_STOPS", 200);
const uint64_t kOpenCount = soak_setting("PARALLAX_LOSS_OPENS", 10000);

// Over UCX, one survivor in so many of jobs of several hosts may be ended by it.
bool over_ucx() {
  const char* transport = std::getenv("PARALLAX_TRANSPORT");
  return transport != nullptr && std::string(transport) == "ucx";
}

struct Class {
  const char* name;
  const char* line;      // of the victim, after which it dies
  int64_t after_us_max;  // within this time
  uint32_t victims = 1;
  bool may_end = false;  // the job may be over before
};
const Class kKills[] = {
    {.name = "step", .line = "phase push step 2", .after_us_max = 60000},
    {.name = "two at once", .line = "phase push step 2", .after_us_max = 60000, .victims = 2},
    {.name = "after open", .line = "phase register", .after_us_max = 60000},
    {.name = "commit", .line = "phase commit", .after_us_max = 10000},
    {.name = "close", .line = "phase close", .after_us_max = 5000, .may_end = true},
};
const Class kStops[] = {
    {.name = "stop", .line = "phase push step 2", .after_us_max = 60000},
    {.name = "stop and continue", .line = "phase push step 2", .after_us_max = 60000},
};

struct Tally {
  std::vector<int64_t> took_ms;
  size_t jobs = 0, survivors = 0, aborted = 0;
};

// One job of which some ranks are lost.
class Case {
 public:
  Case(const Class& kind, uint64_t seed) : kind_(kind), random_(seed), seed_(seed), job_(draw()) {}

  void kill(Tally* tally) {
    strike(SIGKILL);
    EXPECT_TRUE(job_.wait_exit(kPatience)) << describe() << "a rank hangs";
    judge(tally);
  }

  // Stopped for good: the others lose it, and once continued it ends as well.
  void stop(Tally* tally) {
    strike(SIGSTOP);
    EXPECT_TRUE(job_.wait_until([this] { return survivors_ended(); }, kPatience))
        << describe() << "a survivor hangs";
    job_.rank(victims_[0]).signal(SIGCONT);
    EXPECT_TRUE(job_.wait_exit(kPatience)) << describe() << "the continued rank hangs";
    judge(tally);
    const int exit = job_.rank(victims_[0]).exit().value_or(-1);
    if (exit >= 128 && hosts_ > 1 && over_ucx()) {
      ++tally->aborted;
    } else {
      EXPECT_GT(exit, 10) << describe() << job_.rank(victims_[0]).tail();
      EXPECT_LT(exit, 128) << describe() << job_.rank(victims_[0]).tail();
    }
  }

  // Stopped for less than a lease: nobody is lost.
  void pause(Tally* tally) {
    strike(SIGSTOP);
    std::this_thread::sleep_for(milliseconds(kSoakLeaseMs / 4));
    job_.rank(victims_[0]).signal(SIGCONT);
    EXPECT_TRUE(job_.wait_exit(kPatience)) << describe() << "a rank hangs";
    ++tally->jobs;
    for (uint32_t rank = 0; rank < job_.world(); ++rank) {
      ++tally->survivors;
      EXPECT_EQ(job_.rank(rank).exit(), 0) << describe() << job_.rank(rank).tail();
    }
  }

 private:
  RankJobOptions draw() {
    hosts_ = static_cast<uint32_t>(random_.between(1, 4));
    const uint32_t most = std::min(8U, kWorldMax / hosts_);
    const auto ranks = static_cast<uint32_t>(random_.between(hosts_ == 1 ? 3 : 2, most));
    RankJobOptions options;
    for (uint32_t rank = 0; rank < hosts_ * ranks; ++rank) options.host_of.push_back(rank / ranks);
    exits_ = random_.chance(50);
    options.arguments = {"--steps",        std::to_string(kSteps),
                         "--pace-ms",      "3",
                         "--lease-ms",     std::to_string(kSoakLeaseMs),
                         "--timeout-ms",   "60000",
                         "--exit-at-once", exits_ ? "1" : "0"};
    return options;
  }

  std::string describe() const {
    return std::string(kind_.name) + ", seed " + std::to_string(seed_) + ", " +
           std::to_string(hosts_) + " hosts, " + std::to_string(job_.world()) + " ranks, victim " +
           (victims_.empty() ? "none" : std::to_string(victims_[0])) + ": ";
  }

  bool is_victim(uint32_t rank) const {
    return std::find(victims_.begin(), victims_.end(), rank) != victims_.end();
  }

  void strike(int number) {
    while (victims_.size() < kind_.victims) {
      const auto rank = static_cast<uint32_t>(random_.below(job_.world()));
      if (!is_victim(rank)) victims_.push_back(rank);
    }
    job_.start_all();
    EXPECT_TRUE(job_.wait_until(
        [this] {
          return job_.rank(victims_[0]).said(kind_.line) || !job_.rank(victims_[0]).running();
        },
        kPatience))
        << describe() << "never came to " << kind_.line;
    std::this_thread::sleep_for(std::chrono::microseconds(random_.between(0, kind_.after_us_max)));
    struck_ms_ = monotonic_ms();
    for (const uint32_t victim : victims_) job_.rank(victim).signal(number);
  }

  bool survivors_ended() {
    for (uint32_t rank = 0; rank < job_.world(); ++rank) {
      if (!is_victim(rank) && job_.rank(rank).running()) return false;
    }
    return true;
  }

  void judge(Tally* tally) {
    ++tally->jobs;
    for (uint32_t rank = 0; rank < job_.world(); ++rank) {
      if (is_victim(rank)) continue;
      ++tally->survivors;
      const RankProcess& survivor = job_.rank(rank);
      const int exit = survivor.exit().value_or(-1);
      if (exit >= 128 && hosts_ > 1 && over_ucx()) {
        ++tally->aborted;
        std::printf("report: %srank %u ended by signal %d\n", describe().c_str(), rank, exit - 128);
        continue;
      }
      if (kind_.may_end && exit == 0) continue;
      EXPECT_EQ(exit, kExitPeerLost) << describe() << "rank " << rank << ":\n" << survivor.tail();
      const std::string said = survivor.line("status ").value_or("");
      EXPECT_TRUE(names_a_victim(said)) << describe() << "rank " << rank << ":\n" << said;
      tally->took_ms.push_back(std::stoll(survivor.line("clock ").value_or("0")) - struck_ms_);
    }
  }

  // The first rank that the sentence names.
  bool names_a_victim(const std::string& said) const {
    const size_t named = said.find("rank ");
    return named != std::string::npos &&
           std::any_of(victims_.begin(), victims_.end(), [&](uint32_t victim) {
             const std::string name = job_.name(victim);
             return said.compare(named, name.size(), name) == 0;
           });
  }

  const Class& kind_;
  SeededRandom random_;
  const uint64_t seed_;
  uint32_t hosts_ = 1;
  bool exits_ = false;
  std::vector<uint32_t> victims_;
  int64_t struck_ms_ = 0;
  RankJob job_;
};

void report(const Class& kind, Tally tally) {
  std::sort(tally.took_ms.begin(), tally.took_ms.end());
  const auto at = [&](size_t percent) {
    if (tally.took_ms.empty()) return 0LL;
    return static_cast<long long>(tally.took_ms[(tally.took_ms.size() - 1) * percent / 100]);
  };
  std::printf(
      "report: %-18s %5zu jobs %6zu survivors %3zu aborted by UCX  median %5lld  p99 %5lld  "
      "max %5lld ms\n",
      kind.name, tally.jobs, tally.survivors, tally.aborted, at(50), at(99), at(100));
  std::fflush(stdout);
}

TEST(LossSoak, kills) {
  size_t survivors = 0, aborted = 0;
  for (size_t i = 0; i < std::size(kKills); ++i) {
    Tally tally;
    for (uint64_t job = i; job < kKillCount; job += std::size(kKills)) {
      Case(kKills[i], kSoakSeed * 1000000 + job).kill(&tally);
    }
    report(kKills[i], tally);
    survivors += tally.survivors;
    aborted += tally.aborted;
  }
  EXPECT_LE(aborted * kAbortedOneIn, survivors + kAbortedOneIn);
}

TEST(LossSoak, soon_after_open) { expect_no_living_rank_is_blamed(kSoakSeed, kOpenCount); }

TEST(LossSoak, stops) {
  Tally stopped, paused;
  for (uint64_t job = 0; job < kStopCount; ++job) {
    const uint64_t seed = kSoakSeed * 1000000 + 500000 + job;
    if (job % 2 == 0) {
      Case(kStops[0], seed).stop(&stopped);
    } else {
      Case(kStops[1], seed).pause(&paused);
    }
  }
  report(kStops[0], stopped);
  report(kStops[1], paused);
}

}  // namespace
}  // namespace parallax::net
