// SPDX-License-Identifier: Apache-2.0
// StepPipeline: the end of a step at one rank of a group. Once all that was called for the step has
// started and its pulls are answered, the leaders of the host are told that nothing follows
// (ended); once this rank's part of every reduction is complete it votes, or at once, where its
// vote goes to all; the root makes one decision of all votes; and once every gradient of the step
// is here, the update rules run, variables move, and the step is finished: its buffers are those of
// the step two after it.
//
// Between hosts a vote waits for no pushes of others where it says nothing of sums, as of norms to
// clip or of rows to plan by: it goes beside this rank's last push (handed_on), and the decision
// comes while pushes are still under way. Then an owner that has all of them waits for nothing.
//
// Two steps may be ending at a time: the next one may end while this one is being decided. Votes
// and decisions travel along the tree (TreeKind::kVote). Where nothing is managed and no rows are
// counted, a decision follows from the votes alone: then few ranks tell theirs to all others, each
// makes the decision itself, and a step ends in one hop (AllVotes); of few hosts with several ranks
// the first of each does so, with the votes of its host, which it answers. What was called is
// whoever's that started it: here are only the counts of it (StepState). Engine's owner only;
// nothing blocks.
#ifndef PARALLAX_GROUP_STEP_PIPELINE_H_
#define PARALLAX_GROUP_STEP_PIPELINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/compute.h"
#include "base/status.h"
#include "group/all_votes.h"
#include "group/group.h"
#include "group/lent_runs.h"
#include "group/migration.h"
#include "group/pace.h"
#include "group/plan_control.h"
#include "group/step_rates.h"
#include "group/step_window.h"
#include "group/trees.h"
#include "group/vote.h"

namespace parallax {

// What this rank contributed of a variable in a step.
enum class Contributed : uint8_t { kNothing, kAll, kPart };

// What the caller says with step_end.
struct StepEnd {
  float learning_rate = 0;
  float clip_norm = 0;
  bool found_inf = false;
  bool absent = false;
  StepRates rates = {};  // none: learning_rate for all

  Rates of_group(uint32_t group) const {
    return rates.count == 0 ? Rates{.learning_rate = learning_rate} : rates.groups[group];
  }
};

struct StepState {
  uint64_t step = 0;  // 0: unused
  // Of what was called; kept by who starts it.
  std::vector<Contributed> contributed;  // by variable: what this rank pushed or reduced
  // Of fused tables, by member: the same of that one; rows of its slices. And by variable: how many
  // of its members it pushed all of.
  std::vector<Contributed> contributed_members;
  std::vector<uint64_t> member_rows;
  std::vector<uint32_t> members_given;
  uint32_t parts_left = 0;                // variables whose last slice said `more`
  uint32_t sums_pending = 0;              // sends that read step sums contributed by step_end
  uint32_t dense_variable = kNoVariable;  // the first with row ids that got a dense slice here
  uint32_t unstarted = 0;                 // pulls, pushes and reduces posted, not started
  uint32_t pulls_left = 0;
  uint32_t contributions_open = 0;  // pushes and reduces posted, not completed
  // Of how it ends; the pipeline's.
  StepEnd end;
  bool ended_sent = false;
  bool voted = false;
  bool decided = false;
  bool applying = false;
  bool migrating = false;
  Applies applies;
  uint32_t contributed_cursor = 0, handed_on_cursor = 0;
  uint32_t reduced_cursor = 0, delivered_cursor = 0;
  Decision decision;  // once decided

  // It begins. Allocates nothing, and leaves alone what is set before it is read.
  void reset(uint64_t begun);
};

// Of so many voters at most votes go from each to all: of more, the messages of one outweigh the
// hop that is spared.
inline constexpr uint32_t kVotesToAllMax = 8;

class StepPipeline {
 public:
  struct Parts {
    Group& group;
    PlanControl& plan_control;
    Migration& migration;
    Trees& trees;
    Outbox& outbox;
    Compute& compute;
    const Clock& clock;
  };

  // A step that was finished just now. Its state stays as it is until a step takes over its slot.
  struct Finished {
    uint64_t step = 0;  // 0: none was
    bool plan_changed = false;
  };

  // All parts outlive this.
  explicit StepPipeline(const Parts& parts, uint32_t staleness = 0)
      : parts_(parts),
        window_(staleness),
        states_(window_.depth()),
        all_votes_(parts.group, parts.outbox, ballots_),
        runs_(std::make_unique<LentRuns>(parts.group.columns(), parts.group.runtimes(),
                                         parts.outbox, parts.group.entries(),
                                         parts.group.staging())) {}

  // A commit is under way, between steps, and the group has its variables: makes room for them.
  void add_variables();

  const StepWindow& window() const { return window_; }
  StepState& state(uint64_t step) { return states_[window_.calls_slot(step)]; }
  const StepState& state(uint64_t step) const { return states_[window_.calls_slot(step)]; }
  // What goes together of the slices of a call.
  LentRuns& runs() const { return *runs_; }
  OwnTime& own_time() { return own_time_; }
  const LateRank& late() const { return late_; }  // as of the last decision

  // The caller begins the next step, and ends the one that it is in. See StepWindow.
  uint64_t begin();
  void end(uint64_t step, const StepEnd& end);

  // The step is ending, all that was called for it has started, and nobody was told yet.
  bool may_say_ended(uint64_t step) const;
  // Tells the leaders of this host that may wait for one, once all that this rank contributed is
  // read, that no slice and no pull of it is still to come. To be called until may_say_ended() is
  // false.
  void say_ended(uint64_t step);

  // A rank of this host has said it: for every variable, what it has not contributed to is complete
  // without it. False: a pull of its is not over.
  [[nodiscard]] bool ended(uint32_t rank, uint64_t step);

  // Moves on what can be moved. Not OK: the job fails with it.
  Status advance(Finished* finished);
  // A child's vote on that step, and the root's decision. False: not what this rank may be sent.
  [[nodiscard]] bool merge_vote(uint64_t step, std::span<const std::byte> payload);
  [[nodiscard]] bool merge_vote_part(uint64_t step, std::span<const std::byte> payload) {
    return ballot(step).rates.merge_part(payload, parts_.group.columns().world());
  }
  [[nodiscard]] bool take_decision(std::span<const std::byte> payload);
  // kVote: a voter's, which goes to all.
  [[nodiscard]] bool take_vote(uint32_t from, const Section& section) {
    return votes_to_all_ && all_votes_.take(from, section);
  }

  // All votes go to all ranks, or to the first ranks of all hosts, which tell theirs, as far as the
  // variables so far say.
  bool votes_to_all() const { return votes_to_all_; }
  bool votes_by_host() const { return votes_by_host_; }
  // Of the step to be decided next, where they do: which voters have not voted.
  std::vector<uint32_t> missing_votes() const { return all_votes_.missing(); }
  // The last step that another rank is known to have voted on, of those undecided; 0: none.
  uint64_t voted_by_others() const;

 private:
  bool all(StepState& step, uint32_t StepState::*cursor, bool ExchangeState::*ready) const;
  bool reduced(StepState& step) const {
    return all(step, &StepState::reduced_cursor, &ExchangeState::reduced);
  }
  bool delivered(StepState& step) const {
    return all(step, &StepState::delivered_cursor, &ExchangeState::delivered);
  }
  Ballot& ballot(uint64_t step) { return ballots_[StepWindow::slot(step)]; }

  void choose_voters();
  bool may_vote(StepState& step);
  void vote(StepState& step);
  void fill_vote(const StepState& step, Vote* vote);
  void add_norms(const StepState& step, Vote* vote);
  void pass_votes_on();
  void answer_votes(Ballot& votes);
  void decide_by_all(StepState& step);
  void taken(StepState& step);
  void decide(const Ballot& ballot, Decision* decision);
  void decide_clipping(const Ballot& ballot, Decision* decision);
  void apply(StepState& step);
  void submit_apply(StepState& step, VariableRuntime& runtime, double mean);
  bool returned(const StepState& step) const;
  Finished finish(StepState& step);

  const Parts parts_;
  StepWindow window_;
  std::vector<StepState> states_;  // by StepWindow::calls_slot
  Ballots ballots_;
  Vote said_;  // to make one, or to read one: it is large
  AllVotes all_votes_;
  const std::unique_ptr<LentRuns> runs_;
  bool votes_to_all_ = false;
  bool votes_by_host_ = false;  // then: voters are hosts
  OwnTime own_time_;
  LateRank late_;
  // Of who decides.
  LateWindow late_window_;
  int64_t decided_ns_ = 0;  // when it decided last
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_STEP_PIPELINE_H_
