// SPDX-License-Identifier: Apache-2.0
// See open_losses.h.
#include "net/open_losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "net/rank_process.h"

namespace parallax::net {

namespace {

using std::chrono::milliseconds;

constexpr size_t kJobsAtOnce = 3;
constexpr int64_t kKillUsMax = 60000;
constexpr int64_t kOpenLossPatienceMs = 60000;

class OpenLoss {
 public:
  explicit OpenLoss(uint64_t seed) : random_(seed), seed_(seed), job_(draw()) {
    victim_ = static_cast<uint32_t>(random_.below(job_.world()));
    const int64_t after_us = random_.between(0, kKillUsMax);
    for (uint32_t rank = 0; rank < job_.world(); ++rank) {
      if (rank != victim_) job_.start(rank);
    }
    job_.start(victim_, {"--die-at", "rendezvous:0", "--die-after-us", std::to_string(after_us)});
  }

  // Looks once; true when it is over.
  bool advance() {
    if (!job_.wait_exit(milliseconds(0)) && monotonic_ms() - started_ms_ < kOpenLossPatienceMs)
      return false;
    for (uint32_t rank = 0; rank < job_.world(); ++rank) judge(rank);
    return true;
  }

  size_t in_open() const { return in_open_; }

 private:
  RankJobOptions draw() {
    const auto first = static_cast<size_t>(random_.between(1, 2));
    const auto second = static_cast<size_t>(random_.between(1, 2));
    std::vector<uint32_t> hosts(first, 0);
    hosts.insert(hosts.end(), second, 1);
    const bool exits = random_.chance(50);
    return {.host_of = hosts,
            .arguments = {"--steps", "100", "--pace-ms", "3", "--lease-ms", "8000", "--timeout-ms",
                          "60000", "--exit-at-once", exits ? "1" : "0"},
            .net_namespaces = {}};
  }

  void judge(uint32_t rank) {
    const RankProcess& process = job_.rank(rank);
    const std::string who = "seed " + std::to_string(seed_) + ", victim " +
                            std::to_string(victim_) + ", rank " + std::to_string(rank) + " of " +
                            std::to_string(job_.world()) + ":\n" + process.tail();
    if (rank == victim_) {
      EXPECT_EQ(process.exit(), 128 + SIGKILL) << who;
      in_open_ += process.said("phase register") ? 0 : 1;
      return;
    }
    EXPECT_EQ(process.exit(), kExitPeerLost) << who;
    const std::string said = process.line("status ").value_or("");
    const std::string name = job_.name(victim_);
    const size_t named = said.find("rank ");
    EXPECT_TRUE(named != std::string::npos && said.compare(named, name.size(), name) == 0) << who;
  }

  SeededRandom random_;
  const uint64_t seed_;
  RankJob job_;
  uint32_t victim_ = 0;
  size_t in_open_ = 0;
  const int64_t started_ms_ = monotonic_ms();
};

}  // namespace

void expect_no_living_rank_is_blamed(uint64_t seed, size_t count) {
  std::vector<std::unique_ptr<OpenLoss>> running;
  size_t started = 0, in_open = 0;
  while (started < count || !running.empty()) {
    while (started < count && running.size() < kJobsAtOnce) {
      running.push_back(std::make_unique<OpenLoss>(seed * 1000000 + started++));
    }
    std::erase_if(running, [&in_open](const std::unique_ptr<OpenLoss>& each) {
      const bool over = each->advance();
      if (over) in_open += each->in_open();
      return over;
    });
  }
  std::printf("report: %zu jobs of two hosts with a rank killed, in %zu of them inside open\n",
              count, in_open);
}

}  // namespace parallax::net
