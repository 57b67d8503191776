// SPDX-License-Identifier: Apache-2.0
// Which round is whose. See pull_rounds.h.
#include "server/pull_rounds.h"

#include <algorithm>

#include "parallax/parallax.h"

namespace parallax {

PullRounds::PullRounds(const Columns& columns) : columns_(columns) {
  const size_t locals = columns.locals().size();
  for (uint32_t i = 0; i < rounds_.size(); ++i) {
    rounds_[i].place = i;
    rounds_[i].here.resize(locals);
    rounds_[i].variables.reserve(PARALLAX_SLICES_MAX);
  }
  for (auto& ended : ended_) ended.resize(locals);
}

PullRound* PullRounds::joinable(uint32_t local, uint64_t step, uint8_t number) {
  // What a rank sends arrives in its order: behind the end of its step no pull of it is due.
  if (ended_[step & 1][local] != 0) return nullptr;
  PullRound& round = rounds_[place(step, number)];
  // The place has the parity of step and number alone: the numbers in full tell whose it is.
  if (round.active && round.step == step && round.number == number) {
    return round.asked || round.here[local] != 0 ? nullptr : &round;
  }
  // A round still open in this place: a peer ran further ahead than rounds can be told apart.
  if (round.active && (!round.asked || round.left > 0)) return nullptr;
  round.opening = ++opened_;
  round.active = true;
  round.asked = false;
  round.step = step;
  round.number = number;
  round.left = 0;
  std::fill(round.here.begin(), round.here.end(), uint8_t{0});
  round.variables.clear();
  return &round;
}

PullRound* PullRounds::answerable(uint64_t step, uint8_t number) {
  PullRound& round = rounds_[place(step, number)];
  const bool due = round.active && round.asked && round.left > 0;
  return due && round.step == step && round.number == number ? &round : nullptr;
}

bool PullRounds::complete(const PullRound& round) const {
  for (size_t local = 0; local < round.here.size(); ++local) {
    if (round.here[local] == 0 && ended_[round.step & 1][local] == 0) return false;
  }
  return true;
}

void PullRounds::open_step(uint64_t step) {
  std::fill(ended_[step & 1].begin(), ended_[step & 1].end(), uint8_t{0});
  // A round of step - 2 that is still open was begun by a rank that ended the step before.
  for (PullRound& round : of_parity(step)) round.active = false;
}

PullWait PullRounds::waiting(uint64_t step) const {
  PullWait oldest;
  for (const PullRound& round : rounds_) {
    if (!round.active || round.asked || round.step != step) continue;
    // The oldest: later rounds wait for the same ranks, or for those that wait in it.
    if (oldest.number != 0 && oldest.number <= round.number + 1u) continue;
    oldest = {.number = round.number + 1u, .here = {}, .missing = {}};
    for (const uint32_t rank : columns_.locals()) {
      const uint32_t local = columns_.local_of(rank);
      if (round.here[local] != 0) {
        oldest.here.push_back(rank);
      } else if (ended_[step & 1][local] == 0) {
        oldest.missing.push_back(rank);
      }
    }
  }
  return oldest;
}

}  // namespace parallax
