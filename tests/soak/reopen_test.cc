// SPDX-License-Identifier: Apache-2.0
// A process that lives through many jobs over tcp, each of three hosts, one of whose other two
// ranks is killed at a random moment within 150 ms of its joining: in open, in commit, or in a
// step. Every survivor's call ends, within a bound, and names the victim; and the process that
// lives holds as many descriptors and threads, and as much memory, as after the first jobs.
//
// By environment: PARALLAX_LOSS_SEED, PARALLAX_LOSS_REOPENS.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/seeded_random.h"
#include "net/rank_process.h"
#include "soak/soak_settings.h"
#include "support/temporary_folder.h"

namespace parallax::net {
namespace {

constexpr uint32_t kWorld = 3;
constexpr int64_t kDieUsMax = 150000;
constexpr int64_t kReopenLeaseMs = 3000;
constexpr int64_t kReopenPatienceMs = 60000;
// What caches of the process take until then is no leak; and after, so many bytes a job are none.
constexpr uint64_t kWarmJobs = 100;
constexpr int64_t kBytesPerJobMax = 64;
constexpr int64_t kBytesMax = 256 << 10;
constexpr int64_t kPagesMax = 2048;
const uint64_t kReopenCount = soak_setting("PARALLAX_LOSS_REOPENS", 1000);

struct Held {
  int64_t descriptors = 0, threads = 0, bytes = 0, pages = 0;
};

class Reopener {
 public:
  Reopener() { lasting_ = start(0, 0, {"--jobs", std::to_string(kReopenCount)}); }

  // One job, until all who are in it have ended it.
  void lose_one(uint64_t number) {
    const uint32_t victim = random_.chance(50) ? 1 : 2;
    const int64_t after_us = random_.between(0, kDieUsMax);
    const std::string what = "seed " + std::to_string(kSoakSeed) + ", job " +
                             std::to_string(number) + ", victim " + std::to_string(victim) +
                             " after " + std::to_string(after_us) + " us: ";
    const auto dying = start(
        victim, number, {"--die-at", "rendezvous:0", "--die-after-us", std::to_string(after_us)});
    const auto other = start(3 - victim, number, {});
    const std::string lost = "lost " + std::to_string(number) + " ";
    const std::string held = "held " + std::to_string(number) + " ";
    ASSERT_TRUE(wait_until([&] {
      for (RankProcess* each : {lasting_.get(), dying.get(), other.get()}) each->poll();
      return (lasting_->said(held) || !lasting_->running()) && !dying->running() &&
             !other->running();
    })) << what
        << "a rank hangs:\n"
        << lasting_->tail() << other->tail() << dying->tail();
    EXPECT_EQ(dying->exit(), 128 + SIGKILL) << what << dying->tail();
    const int64_t died_ms = std::stoll(dying->line("clock ").value_or("0"));
    judge(what, victim, died_ms, lasting_->line(lost).value_or(""));
    judge(what, victim, died_ms, other->line(lost).value_or(""));
    Held now;
    std::istringstream(lasting_->line(held).value_or("")) >> now.descriptors >> now.threads >>
        now.bytes >> now.pages;
    held_.push_back(now);
  }

  // By the process that lasted.
  void judge_what_is_held() {
    ASSERT_GT(held_.size(), kWarmJobs);
    const Held& warm = held_[kWarmJobs];
    const Held& last = held_.back();
    for (const Held& each : held_) {
      EXPECT_EQ(each.descriptors, held_.front().descriptors);
      EXPECT_EQ(each.threads, held_.front().threads);
    }
    const auto jobs = static_cast<int64_t>(held_.size() - kWarmJobs);
    EXPECT_LE(last.bytes, warm.bytes + kBytesMax + jobs * kBytesPerJobMax);
    EXPECT_LE(last.pages, warm.pages + kPagesMax);
    std::sort(took_ms_.begin(), took_ms_.end());
    const auto at = [this](size_t percent) {
      return static_cast<long long>(took_ms_[(took_ms_.size() - 1) * percent / 100]);
    };
    std::printf(
        "report: %zu jobs in one process, a rank killed in each: median %lld  p99 %lld  max %lld "
        "ms; descriptors %lld, threads %lld; malloc %lld to %lld bytes, resident %lld to %lld "
        "pages, from job %llu on\n",
        held_.size(), at(50), at(99), at(100), static_cast<long long>(last.descriptors),
        static_cast<long long>(last.threads), static_cast<long long>(warm.bytes),
        static_cast<long long>(last.bytes), static_cast<long long>(warm.pages),
        static_cast<long long>(last.pages), static_cast<unsigned long long>(kWarmJobs));
  }

 private:
  std::unique_ptr<RankProcess> start(uint32_t rank, uint64_t first,
                                     const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"survivor",
                                          "--rendezvous",
                                          "file:" + folder_.path() + "/job",
                                          "--rank",
                                          std::to_string(rank),
                                          "--hosts",
                                          "0,1,2",
                                          "--first",
                                          std::to_string(first),
                                          "--lease-ms",
                                          std::to_string(kReopenLeaseMs),
                                          "--timeout-ms",
                                          std::to_string(kReopenPatienceMs)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return std::make_unique<RankProcess>(arguments, "");
  }

  static bool wait_until(const std::function<bool()>& done) {
    const int64_t give_up_ms = monotonic_ms() + kReopenPatienceMs + kSlackMs;
    while (!done()) {
      if (monotonic_ms() >= give_up_ms) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

  // `lost`: "MS STATUS: sentence".
  void judge(const std::string& what, uint32_t victim, int64_t died_ms, const std::string& lost) {
    std::istringstream words(lost);
    int64_t lost_ms = 0;
    std::string status;
    words >> lost_ms >> status;
    EXPECT_EQ(status, "PEER_LOST:") << what << lost;
    const std::string name =
        "rank " + std::to_string(victim) + " (host host" + std::to_string(victim) + ")";
    const size_t named = lost.find("rank ");
    EXPECT_TRUE(named != std::string::npos && lost.compare(named, name.size(), name) == 0)
        << what << lost;
    EXPECT_LE(lost_ms - died_ms, kReopenLeaseMs + kSlackMs) << what << lost;
    took_ms_.push_back(lost_ms - died_ms);
  }

  const testkit::TemporaryFolder folder_;  // outlives the ranks
  SeededRandom random_{kSoakSeed};
  std::unique_ptr<RankProcess> lasting_;
  std::vector<Held> held_;
  std::vector<int64_t> took_ms_;
};

TEST(LossSoak, one_process_of_many_jobs) {
  Reopener reopener;
  for (uint64_t number = 0; number < kReopenCount; ++number) {
    reopener.lose_one(number);
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
  reopener.judge_what_is_held();
}

}  // namespace
}  // namespace parallax::net
