// SPDX-License-Identifier: Apache-2.0
// PullRounds: the rounds of pulls that a leader gathers. A rank has one pull under way at a time,
// its n-th of a step; round (step, n) is complete once every rank of the host has sent its n-th or
// ended the step, so that what they want can be asked for as one.
//
// A leader sees at most four rounds at once: (t, n), (t, n + 1) of ranks that differ by one, and
// the like of t + 1 for a rank that has ended t. So a round has the place of its two parities, and
// a pull that finds its place in use is of a peer that ran ahead of the rules. Sends nothing; owned
// by the leader's PullExchange.
#ifndef PARALLAX_SERVER_PULL_ROUNDS_H_
#define PARALLAX_SERVER_PULL_ROUNDS_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "world/patterns.h"

namespace parallax {

inline constexpr uint32_t kPullRoundsOpenMax = 4;  // [step parity][round parity]

struct PullRound {
  // Counts all rounds ever opened here. Of the number only 8 bits travel, which come again after
  // 256 pulls of a step; what a place's last round left behind is told by this.
  uint64_t opening = 0;
  uint32_t place = 0;
  uint64_t step = 0;
  uint8_t number = 0;  // from 0
  bool active = false;
  bool asked = false;                    // its owners are asked: nobody can join it any more
  std::vector<uint8_t> here = {};        // per local rank: its pull has arrived whole
  uint64_t left = 0;                     // once asked: items and elements still to come
  std::vector<uint32_t> variables = {};  // that some rank of the host wants
};

// A round of pulls that waits for some ranks of the host: the n-th pulls, n counted from 1.
struct PullWait {
  uint32_t number = 0;  // 0: none waits
  std::vector<uint32_t> here = {}, missing = {};
};

class PullRounds {
 public:
  explicit PullRounds(const Columns& columns);

  // The round that a rank of the host, by local index, may send a pull of; opened if it is the
  // first to. Null: the place's round still waits, this one was asked already, or the rank has
  // ended its pull of it or the step.
  PullRound* joinable(uint32_t local, uint64_t step, uint8_t number);
  // The round that owners may send values of: asked, with some still to come. Else null.
  PullRound* answerable(uint64_t step, uint8_t number);

  bool complete(const PullRound& round) const;
  // The rank's rounds of that step are over.
  void end(uint32_t local, uint64_t step) { ended_[step & 1][local] = 1; }
  // Both places of a step; those not `active` or of another step are not its.
  std::span<PullRound> of_parity(uint64_t step) {
    return std::span(rounds_).subspan(place(step, 0), 2);
  }
  // The places of the step before the last are this one's now.
  void open_step(uint64_t step);

  // The oldest round of a step that is not asked for yet.
  PullWait waiting(uint64_t step) const;

 private:
  static uint32_t place(uint64_t step, uint8_t number) {
    return static_cast<uint32_t>((step & 1) * 2 + (number & 1));
  }

  const Columns& columns_;
  uint64_t opened_ = 0;
  std::array<PullRound, kPullRoundsOpenMax> rounds_;
  std::array<std::vector<uint8_t>, 2> ended_;  // [step parity][local rank]
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_ROUNDS_H_
