// SPDX-License-Identifier: Apache-2.0
// AllVotes: votes on steps that go from every voter to every other, each of which makes the
// decision itself (step_pipeline.h). Voters are all ranks: on boards where all of the group's ranks
// have them (entries.h), else as messages; or the first rank of each host, as messages, each with
// what the ranks of its host have voted. AllSync knows who has voted; what was said is merged into
// the step's ballot. Engine's owner only; nothing blocks.
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
  // What others have said, which is there no more.
  void take(Ballot& other, uint32_t world);
};
// By slot of the step.
using Ballots = std::array<Ballot, StepWindow::kDepth>;

enum class Voters : uint8_t { kRanks, kHosts };

class AllVotes final : private EntryReader {
 public:
  // All outlive this. Before the group has variables: votes have room on boards before any.
  AllVotes(Group& group, Outbox& outbox, Ballots& ballots);
  AllVotes(const AllVotes&) = delete;
  AllVotes& operator=(const AllVotes&) = delete;
  ~AllVotes() = default;

  // Between steps, the same on all ranks, `round` being the next step. Votes go so from here on.
  void begin_at(uint64_t round, Voters voters);
  bool is_voter() const { return own_ < voters_.size(); }
  // Voters are all: this rank's own, on the next step: nothing but scalars, pace and rates, as
  // where nothing is managed and no rows are counted.
  void tell(const Vote& vote, const StepRates& rates);
  // Voters are hosts, and this rank is one: what the next step's ballot has by now, of its host.
  void tell_of_host();
  // kVote. False: not what this rank may send now.
  [[nodiscard]] bool take(uint32_t from, const Section& section);
  // True once in a round, when all have told. Not OK: one told what is no vote.
  Status take_complete(bool* complete);

  // The others that have not voted on the next step.
  std::vector<uint32_t> missing() const;
  // The last step that another rank has voted on, of the next and the one after it; 0: none.
  uint64_t told_in() const;

 private:
  static constexpr uint32_t kNoVoter = UINT32_MAX;

  uint32_t rank() const { return group_.columns().rank(); }
  uint32_t voter_of(uint32_t rank) const;
  uint32_t world() const { return group_.columns().world(); }
  // Where what has come is merged: of hosts apart, since one's own is still to be told.
  Ballot& ballot(uint64_t step) { return (of_hosts_ ? others_ : ballots_)[StepWindow::slot(step)]; }
  bool on_boards() const { return place_.exists() && group_.entries().usable(); }
  bool on_board(uint32_t rank, uint64_t step) const {
    return on_boards() && group_.entries().kind(rank, place_, step) != EntryKind::kNone;
  }
  void write(uint64_t step, const Vote& vote, const StepRates& rates);
  void send(uint64_t step, const Vote& vote, const RatesBallot& rates);
  News read_entries() override;
  [[nodiscard]] bool read(uint32_t from, uint64_t step);

  Group& group_;
  Outbox& outbox_;
  Ballots& ballots_;
  Ballots others_;                // of hosts
  std::vector<uint32_t> voters_;  // their ranks, ascending
  uint32_t own_;                  // this rank's place among them, or kNoVoter
  bool of_hosts_ = false;
  AllSync all_;                    // by place
  const EntryPlace place_;         // if entries are usable; else, or none: in messages
  bool awaits_ = false;            // the entries know it as a reader
  uint32_t garbled_ = UINT32_MAX;  // who has told what is no vote
  Vote said_;                      // to read one: it is large
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_ALL_VOTES_H_
