// SPDX-License-Identifier: Apache-2.0
// AllVotes: votes on steps that go from every rank to every other, each of which makes the decision
// itself (step_pipeline.h): on boards where all of the group's ranks have them (entries.h), else as
// messages. AllSync knows who has voted; what was said is merged into the step's ballot. Engine's
// owner only; nothing blocks.
#ifndef PARALLAX_GROUP_ALL_VOTES_H_
#define PARALLAX_GROUP_ALL_VOTES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "collectives/all_sync.h"
#include "group/group.h"
#include "group/rates_ballot.h"
#include "group/step_rates.h"
#include "group/step_window.h"
#include "group/vote.h"
#include "message/outbox.h"

namespace parallax {

// What has come of the votes on a step.
struct Ballot {
  Vote votes;
  RatesBallot rates;
  void clear() {
    votes.clear();
    rates.clear();
  }
};
// By slot of the step.
using Ballots = std::array<Ballot, StepWindow::kDepth>;

class AllVotes final : private EntryReader {
 public:
  // All outlive this. Before the group has variables: votes have room on boards before any.
  AllVotes(Group& group, Outbox& outbox, Ballots& ballots);
  AllVotes(const AllVotes&) = delete;
  AllVotes& operator=(const AllVotes&) = delete;
  ~AllVotes() = default;

  // Between steps, the same on all ranks, `round` being the next step. Votes go so from here on.
  void begin_at(uint64_t round) { all_.begin_at(round); }
  // This rank's own, on the next step: nothing but scalars, pace and rates, as where nothing is
  // managed and no rows are counted.
  void tell(const Vote& vote, const StepRates& rates);
  // kVote. False: not what this rank may send now.
  [[nodiscard]] bool take(uint32_t from, const Section& section);
  // True once in a round, when all have told. Not OK: one told what is no vote.
  Status take_complete(bool* complete);

  // The others that have not voted on the next step.
  std::vector<uint32_t> missing() const;
  // The last step that another rank has voted on, of the next and the one after it; 0: none.
  uint64_t told_in() const;

 private:
  uint32_t rank() const { return group_.columns().rank(); }
  uint32_t world() const { return group_.columns().world(); }
  Ballot& ballot(uint64_t step) { return ballots_[StepWindow::slot(step)]; }
  bool on_boards() const { return place_.exists() && group_.entries().usable(); }
  bool on_board(uint32_t rank, uint64_t step) const {
    return on_boards() && group_.entries().kind(rank, place_, step) != EntryKind::kNone;
  }
  void write(uint64_t step, const Vote& vote, const StepRates& rates);
  void send(uint64_t step, const Vote& vote, const StepRates& rates);
  News read_entries() override;
  [[nodiscard]] bool read(uint32_t from, uint64_t step);

  Group& group_;
  Outbox& outbox_;
  Ballots& ballots_;
  AllSync all_;
  const EntryPlace place_;         // if entries are usable; else, or none: in messages
  bool awaits_ = false;            // the entries know it as a reader
  uint32_t garbled_ = UINT32_MAX;  // who has told what is no vote
  Vote said_;                      // to read one: it is large
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_ALL_VOTES_H_
