// SPDX-License-Identifier: Apache-2.0
// AllSync: rounds in which every rank tells every other, and each knows for itself that all have:
// one hop where a tree takes two (tree_sync.h), for as many messages as there are ranks, squared.
// A rank that has heard of all may already tell of the next round while another has not. Pure
// bookkeeping.
#ifndef PARALLAX_COLLECTIVES_ALL_SYNC_H_
#define PARALLAX_COLLECTIVES_ALL_SYNC_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace parallax {

class AllSync {
 public:
  AllSync(uint32_t world, uint32_t rank) : rank_(rank), rounds_{Round(world), Round(world)} {}

  uint64_t round() const { return round_; }  // from 1; the one under way or next to come

  // Whether this rank may tell: no other round than this and the next, and no repeat.
  [[nodiscard]] bool awaits(uint32_t from, uint64_t round) const {
    return from != rank_ && from < rounds_[0].told.size() && round >= round_ &&
           round <= round_ + 1 && of(round).told[from] == 0;
  }
  [[nodiscard]] bool arrive(uint32_t from, uint64_t round) {
    if (!awaits(from, round)) return false;
    tell(of(round), from);
    return true;
  }
  // This rank tells, in this round.
  void join() { tell(of(round_), rank_); }
  bool joined() const { return of(round_).told[rank_] != 0; }
  // True once in a round, when all have told: the next one begins.
  [[nodiscard]] bool take_complete() {
    Round& over = of(round_);
    if (over.left > 0) return false;
    over = Round(std::move(over.told));
    ++round_;
    return true;
  }
  // The others that have not told in this round.
  std::vector<uint32_t> missing() const {
    std::vector<uint32_t> ranks;
    const std::vector<uint8_t>& told = of(round_).told;
    for (uint32_t rank = 0; rank < told.size(); ++rank) {
      if (told[rank] == 0 && rank != rank_) ranks.push_back(rank);
    }
    return ranks;
  }
  // The last round that another rank has told in, of this and the next; 0: none.
  uint64_t told_in() const {
    for (const uint64_t round : {round_ + 1, round_}) {
      const Round& at = of(round);
      const auto told = static_cast<uint32_t>(at.told.size()) - at.left - at.told[rank_];
      if (told > 0) return round;
    }
    return 0;
  }
  // Between rounds, the same on all ranks: this one is next.
  void begin_at(uint64_t round) { round_ = round; }

 private:
  struct Round {
    explicit Round(uint32_t world) : told(world), left(world) {}
    // The memory of one that is over.
    explicit Round(std::vector<uint8_t> used)
        : told(std::move(used)), left(static_cast<uint32_t>(told.size())) {
      std::fill(told.begin(), told.end(), uint8_t{0});
    }
    std::vector<uint8_t> told;  // by rank
    uint32_t left;
  };

  Round& of(uint64_t round) { return rounds_[round % 2]; }
  const Round& of(uint64_t round) const { return rounds_[round % 2]; }
  static void tell(Round& round, uint32_t rank) {
    round.told[rank] = 1;
    --round.left;
  }

  uint32_t rank_;
  std::array<Round, 2> rounds_;
  uint64_t round_ = 1;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ALL_SYNC_H_
