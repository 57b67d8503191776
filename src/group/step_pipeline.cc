// SPDX-License-Identifier: Apache-2.0
// The end of a step: ended, voted, decided, applied. See step_pipeline.h.
#include "group/step_pipeline.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace parallax {

namespace {

// The kind of reduction that a variable's norm is added up with: all of a kind are divided alike.
// Rows that are divided by their own count of ranks are means already: like a sum, they are divided
// by nothing more.
uint32_t norm_kind(const Variable& variable) {
  return variable.counts_ranks() ? uint32_t{PARALLAX_SUM} : variable.reduction;
}

// min(1, clip_norm / (norm + 1e-6)); NaN stays NaN, as in PyTorch.
double clip_scale(float clip_norm, double norm) {
  const double scale = clip_norm / (norm + 1e-6);
  return scale > 1 ? 1 : scale;
}

bool gave_all(const StepState& step) {
  return std::all_of(step.contributed.begin(), step.contributed.end(),
                     [](Contributed each) { return each == Contributed::kAll; });
}

Send step_ended(uint64_t step) {
  Send send;
  send.header.kind = SectionKind::kStepEnded;
  send.header.step = step;
  send.header.tag = UINT32_MAX;  // of no variable in particular
  send.fence = true;
  return send;
}

// Those of this host.
void tell_leaders(const Columns& columns, uint64_t step, Outbox& outbox) {
  const Send send = step_ended(step);
  for (uint32_t column = 0; column < columns.count(); ++column) {
    const uint32_t leader = columns.leader(columns.host(), column);
    // As data: control would overtake the slices that it speaks of.
    if (leader != columns.rank()) outbox.add(leader, send);
  }
}

// Pulls of the next step are answered what this one leaves alone, whether it is committed or
// discarded.
void answer_early(Group& group, uint64_t step) {
  group.pulls().answer_early(step, [&](uint32_t variable) -> const RowIndex* {
    Exchange& exchange = group.runtime(variable).exchange_at(step);
    return exchange.state(step).reduced ? exchange.owned_index(step) : nullptr;
  });
}

void add_left_out(const StepState& step, TablesLeftOut* left_out) {
  const std::vector<Contributed>& tables = step.contributed_members;
  for (uint32_t table = 0; table < tables.size(); ++table) {
    if (tables[table] == Contributed::kNothing) left_out->add(table);
  }
}

// What other variables have applied of the step stays, and of this one too: the job ends with it.
Status rule_failure(const Group& group, const StepState& step) {
  const VariableRuntime& failed = group.runtime(step.applies.failed);
  return Status(PARALLAX_ABORTED, group.name() + ": step " + std::to_string(step.step) +
                                      ": the rule_fn of variable '" + failed.variable->name +
                                      "' answered " + std::to_string(failed.rule_answer) +
                                      ", where only 0 goes on; the step is applied in part")
      .about_variable(failed.variable->id)
      .about_step(step.step)
      .about_field("rule_fn");
}

}  // namespace

void StepState::reset(uint64_t begun) {
  step = begun;
  std::fill(contributed.begin(), contributed.end(), Contributed::kNothing);
  std::fill(contributed_members.begin(), contributed_members.end(), Contributed::kNothing);
  std::fill(member_rows.begin(), member_rows.end(), uint64_t{0});
  std::fill(members_given.begin(), members_given.end(), 0u);
  parts_left = sums_pending = unstarted = pulls_left = contributions_open = 0;
  dense_variable = kNoVariable;
  ended_sent = voted = decided = applying = migrating = false;
  applies = {};
  contributed_cursor = handed_on_cursor = reduced_cursor = delivered_cursor = 0;
}

void StepPipeline::add_variables() {
  parts_.plan_control.add_variables(window_.finished());
  size_t members = 0;
  for (const auto& runtime : parts_.group.runtimes()) members += runtime->variable->fused.size();
  for (StepState& state : states_) {
    state.contributed.resize(parts_.group.size());
    state.contributed_members.resize(members);
    state.member_rows.resize(members);
    state.members_given.resize(members == 0 ? 0 : parts_.group.size());
  }
  for (const auto& runtime : parts_.group.runtimes()) {
    const Variable& variable = *runtime->variable;
    if (!variable.managed()) continue;
    for (Ballot& each : ballots_) each.rates.reserve(variable.rates, norm_kind(variable));
  }
  runs_->add_variables();
  for (const uint64_t ahead : {1, 2}) runs_->open(window_.finished() + ahead);
  // No step is under way anywhere before all ranks have these variables.
  choose_voters();
  parts_.trees[TreeKind::kVote].begin_at(window_.next_to_vote());
}

// Of several ranks on each of several hosts those of a host vote by its first one.
void StepPipeline::choose_voters() {
  const Columns& columns = parts_.group.columns();
  const auto& runtimes = parts_.group.runtimes();
  const HostMap& hosts = columns.map();
  const bool of_hosts = columns.host_count() > 1 && columns.host_count() < columns.world();
  const uint32_t voters = of_hosts ? columns.host_count() : columns.world();
  votes_to_all_ = voters > 1 && voters <= kVotesToAllMax &&
                  std::none_of(runtimes.begin(), runtimes.end(), [](const auto& runtime) {
                    return runtime->variable->managed() || runtime->variable->ids_declared();
                  });
  votes_by_host_ = votes_to_all_ && of_hosts;
  TreeSync& tree = parts_.trees[TreeKind::kVote];
  const uint32_t rank = columns.rank(), first = columns.locals()[0];
  if (!votes_by_host_) {
    tree.hang(tree_parent(hosts, 0, rank), tree_children(hosts, 0, rank));
  } else if (rank != first) {
    tree.hang(first, {});
  } else {
    tree.hang(kNoRank, {columns.locals().begin() + 1, columns.locals().end()});
  }
  if (!votes_to_all_) return;
  all_votes_.begin_at(window_.next_to_vote(), of_hosts ? Voters::kHosts : Voters::kRanks);
}

uint64_t StepPipeline::begin() {
  const uint64_t step = window_.begin();
  state(step).reset(step);
  // One that is further ahead keeps nobody waiting.
  if (window_.admits(step)) own_time_.begin(step);
  return step;
}

void StepPipeline::end(uint64_t step, const StepEnd& end) {
  window_.end(step);
  StepEnd& kept = state(step).end;
  kept.learning_rate = end.learning_rate;
  kept.clip_norm = end.clip_norm;
  kept.found_inf = end.found_inf;
  kept.absent = end.absent;
  // Of the many rates there may be, as many as there are.
  kept.rates.count = end.rates.count;
  std::copy_n(end.rates.groups.begin(), end.rates.count, kept.rates.groups.begin());
}

bool StepPipeline::may_say_ended(uint64_t step) const {
  const StepState& ending = state(step);
  return window_.is_ending(step) && !ending.ended_sent && ending.unstarted == 0 &&
         ending.pulls_left == 0 && window_.may_start(step);
}

void StepPipeline::say_ended(uint64_t step) {
  StepState& ending = state(step);
  if (!all(ending, &StepState::contributed_cursor, &ExchangeState::contributed)) return;
  ending.ended_sent = true;
  // Of elements, which go out as they are contributed, nobody waits to hear that none come who has
  // them, nor on boards, which say so themselves.
  if (!votes_to_all_ || !(parts_.group.entries().are_all() || gave_all(ending))) {
    tell_leaders(parts_.group.columns(), step, parts_.outbox);
  }
  // Its own exchanges ask for it too, leader or not: behind what is on its way to them.
  const uint32_t self = parts_.group.columns().rank();
  if (parts_.outbox.has_queued(self)) {
    parts_.outbox.add(self, step_ended(step));
  } else {
    PARALLAX_CHECK(ended(self, step));
  }
}

bool StepPipeline::ended(uint32_t rank, uint64_t step) {
  if (!parts_.group.pulls().end_local(rank, step)) return false;
  // Lent in a run before, and checked then.
  PARALLAX_CHECK(runs_->ended(rank, step));
  for (const auto& runtime : parts_.group.runtimes()) {
    if (!runs_->awaits(rank, step, runtime->id)) runtime->exchange_at(step).end(rank, step);
  }
  return true;
}

Status StepPipeline::advance(Finished* finished) {
  if (!window_.is_ending(window_.next_to_vote())) return {};
  StepState& step = state(window_.next_to_vote());
  if (step.ended_sent && !step.voted && may_vote(step)) vote(step);
  // Behind the vote, which what follows waits for.
  if (step.ended_sent && !votes_to_all_) answer_early(parts_.group, step.step);
  const bool by_tree = !votes_to_all_ || votes_by_host_;
  if (by_tree && parts_.trees[TreeKind::kVote].take_complete()) pass_votes_on();
  if (votes_to_all_ && all_votes_.is_voter()) {
    bool complete = false;
    PARALLAX_RETURN_IF_ERROR(all_votes_.take_complete(&complete));
    if (complete) decide_by_all(step);
  }
  if (step.decided && !step.applying && reduced(step) && delivered(step) &&
      parts_.group.pulls().hold() && parts_.group.staging().readable(step.step)) {
    apply(step);
  }
  if (!step.applying || step.applies.left > 0) return {};
  if (step.applies.failed != UINT32_MAX) return rule_failure(parts_.group, step);
  // The updates have run. New plans are laid out, variables whose placement changes with the next
  // step are moved, then the step is finished.
  if (!step.migrating) {
    step.migrating = true;
    PARALLAX_RETURN_IF_ERROR(parts_.plan_control.take(step.decision, step.step));
    parts_.migration.move(step.step + 1);
  }
  if (parts_.migration.moved(step.step + 1) && returned(step)) *finished = finish(step);
  return {};
}

// True if all exchanges are `ready` in the step. A cursor stands at the first variable that is not,
// and only moves on. What is asked of a variable serves every cursor that stands there: with many
// variables a look at one is a cache miss or two, so all checks of a step together take about one.
bool StepPipeline::all(StepState& step, uint32_t StepState::*cursor,
                       bool ExchangeState::*ready) const {
  const Group& group = parts_.group;
  uint32_t& at = step.*cursor;
  while (at < group.size()) {
    const uint32_t asked = at;
    ExchangeState now = group.runtime(asked).exchange_at(step.step).state(step.step);
    now.handed_on |= now.reduced;
    if (now.contributed && step.contributed_cursor == asked) ++step.contributed_cursor;
    if (now.handed_on && step.handed_on_cursor == asked) ++step.handed_on_cursor;
    if (now.reduced && step.reduced_cursor == asked) ++step.reduced_cursor;
    if (now.delivered && step.delivered_cursor == asked) ++step.delivered_cursor;
    if (!(now.*ready)) return false;
  }
  return true;
}

// ---- votes

// A vote to all speaks of no sum, so it goes beside what it is about, not behind it; and so does
// another between hosts that says nothing of norms or rows.
bool StepPipeline::may_vote(StepState& step) {
  if (votes_to_all_) return true;
  const bool tells_sums =
      step.end.clip_norm != 0 || step.end.rates.any_clip() || parts_.plan_control.counts_rows();
  const bool early = parts_.group.columns().host_count() > 1 && !tells_sums;
  const bool complete =
      early ? all(step, &StepState::handed_on_cursor, &ExchangeState::handed_on) : reduced(step);
  return complete && parts_.group.staging().readable(step.step);
}

void StepPipeline::vote(StepState& step) {
  step.voted = true;
  said_.clear();
  fill_vote(step, &said_);
  ballot(step.step).votes.merge(said_);
  if (votes_to_all_ && !votes_by_host_) return all_votes_.tell(said_, step.end.rates);
  parts_.trees[TreeKind::kVote].join();
}

void StepPipeline::fill_vote(const StepState& step, Vote* vote) {
  const Group& group = parts_.group;
  const StepEnd& end = step.end;
  vote->any = true;
  vote->contributors = end.absent ? 0 : 1;
  vote->found_inf = end.found_inf ? 1 : 0;
  vote->scalars = {std::bit_cast<uint32_t>(end.learning_rate),
                   std::bit_cast<uint32_t>(end.clip_norm), group.columns().rank(), end.rates.count};
  if (end.rates.count > 0) ballot(step.step).rates.say(end.rates, group.columns().rank());
  add_norms(step, vote);
  const uint32_t dense = step.dense_variable;
  if (dense != kNoVariable && !group.runtime(dense).facts.given_dense) vote->dense_variable = dense;
  add_left_out(step, &vote->left_out);
  vote->pace = PaceVote::of(group.columns().rank(), own_time_.of(step.step));
  parts_.plan_control.count_rows(step.step, vote);
}

// One exact sum for each reduction, since only the root knows the contributors to divide by; and
// those of each group that clips its own gradients, which have another scale each.
void StepPipeline::add_norms(const StepState& step, Vote* vote) {
  const StepEnd& end = step.end;
  if (end.clip_norm == 0 && !end.rates.any_clip()) return;
  for (const auto& runtime : parts_.group.runtimes()) {
    const Variable& variable = *runtime->variable;
    if (!variable.managed()) continue;
    const uint32_t kind = norm_kind(variable);
    const ReducedGradient part = runtime->exchange_at(step.step).owned(step.step);
    if (end.of_group(variable.rates).clip_norm > 0) {
      add_squared_norm(part, &ballot(step.step).rates.norm(variable.rates, kind));
    } else if (end.clip_norm > 0) {
      vote->norm_kinds |= 1u << kind;
      add_squared_norm(part, &vote->norms[kind]);
    }
  }
}

bool StepPipeline::merge_vote(uint64_t step, std::span<const std::byte> payload) {
  if (!decode_vote(payload, parts_.group.columns().world(), &said_)) return false;
  // Added up as they come; this rank's own joins in vote().
  ballot(step).votes.merge(said_);
  return true;
}

uint64_t StepPipeline::voted_by_others() const {
  const TreeSync& votes = parts_.trees[TreeKind::kVote];
  const uint64_t told = votes_to_all_ && all_votes_.is_voter() ? all_votes_.told_in() : 0;
  return std::max(told, votes.any_arrived() ? votes.round() : 0);
}

void StepPipeline::pass_votes_on() {
  const bool root = parts_.trees[TreeKind::kVote].is_root();
  Ballot& votes = ballot(parts_.trees[TreeKind::kVote].round());
  if (root) return votes_by_host_ ? all_votes_.tell_of_host() : answer_votes(votes);
  std::array<std::byte, kVoteBytesMax> bytes;
  votes.rates.for_each_part(
      [this](std::span<const std::byte> part) { parts_.trees.send_part(TreeKind::kVote, part); });
  const size_t used = encode_vote(votes.votes, bytes);
  votes.clear();
  PARALLAX_CHECK(!parts_.trees.pass_on(TreeKind::kVote, std::span(bytes).first(used)));
}

// The root of the tree takes its own decision by the same way, through the same checks.
void StepPipeline::answer_votes(Ballot& votes) {
  std::array<std::byte, kVoteBytesMax> bytes;
  Decision decision;
  decide(votes, &decision);
  votes.clear();
  const auto payload = std::span(bytes).first(encode_decision(decision, bytes));
  PARALLAX_CHECK(parts_.trees.pass_on(TreeKind::kVote, payload) && take_decision(payload));
}

// ---- the decision

// Every voter's own, of the same votes: whether the step is discarded, and who contributed. Only
// which two ranks a mismatch names may differ, and how long a step took that a rank was late in.
void StepPipeline::decide_by_all(StepState& step) {
  Ballot& votes = ballot(step.step);
  if (votes_by_host_) return answer_votes(votes);
  decide(votes, &step.decision);
  votes.clear();
  taken(step);
}

// Else the root's: everything that ends the step, computed once and sent to all, so that no two
// ranks can come to another scale or plan.
void StepPipeline::decide(const Ballot& ballot, Decision* decision) {
  const Vote& votes = ballot.votes;
  const Columns& columns = parts_.group.columns();
  decision->clear();
  decision->contributors = votes.contributors;
  decision->left_out = votes.left_out;
  decide_clipping(ballot, decision);
  decision->outcome = votes.found_inf > 0 ? Outcome::kDiscard : Outcome::kCommit;
  if (votes.disagree) {
    decision->outcome = Outcome::kMismatch;
    decision->first = votes.scalars;
    decision->second = votes.other;
  } else if (ballot.rates.differing().any != 0) {
    decision->outcome = Outcome::kMismatch;
    decision->difference = ballot.rates.differing();
  }
  parts_.plan_control.decide(votes, decision);
  const int64_t now_ns = parts_.clock.now_ns();
  late_window_.add(votes.pace, columns.world(), now_ns - std::exchange(decided_ns_, now_ns));
  decision->late = late_window_.late();
  // Once in a job.
  const bool says = !votes_to_all_ || columns.rank() == 0;
  if (says && late_window_.news(decision->late, now_ns)) {
    PARALLAX_LOG(kWarn, kStep,
                 late_sentence(rank_name(columns.map(), decision->late.rank), decision->late));
  }
}

// By this rank's own rates, which are all ranks' if the step is committed. The global norm is that
// of what the groups' clips have left, as it would be for a caller who clips group by group first.
void StepPipeline::decide_clipping(const Ballot& ballot, Decision* decision) {
  const StepEnd& end = state(window_.next_to_vote()).end;
  if (end.clip_norm == 0 && !end.rates.any_clip()) return;
  const double contributors = std::max(1u, ballot.votes.contributors);
  const double factors[kReductionKinds] = {1.0, 1.0 / parts_.group.columns().world(),
                                           1.0 / contributors};
  double square = 0;
  for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
    square += factors[kind] * factors[kind] * ballot.votes.norms[kind].value();
  }
  for (uint32_t group = 0; group < end.rates.count; ++group) {
    const float clip_norm = end.rates.groups[group].clip_norm;
    if (clip_norm == 0) continue;
    double of_group = 0;
    for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
      of_group += factors[kind] * factors[kind] * ballot.rates.squared_norm(group, kind);
    }
    const double scale = clip_scale(clip_norm, std::sqrt(of_group));
    decision->group_scales[group] = scale;
    square += scale * scale * of_group;
  }
  if (end.clip_norm == 0) return;
  decision->gradient_norm = std::sqrt(square);
  decision->clip_scale = clip_scale(end.clip_norm, decision->gradient_norm);
}

bool StepPipeline::take_decision(std::span<const std::byte> payload) {
  // The step's own, which nobody reads before it is decided.
  StepState& step = state(window_.next_to_vote());
  if (!decode_decision(payload, parts_.group.columns().world(), &step.decision) ||
      !parts_.plan_control.fits(step.decision)) {
    return false;
  }
  taken(step);
  return true;
}

void StepPipeline::taken(StepState& step) {
  PARALLAX_CHECK(step.step == window_.next_to_vote() && step.voted && !step.decided);
  step.decided = true;
  late_ = step.decision.late;
  window_.decide();
  parts_.group.pulls().decided(window_.decided());
}

// ---- the end

// True if no send is left that reads memory which the end of the step hands on to step + 2, or
// frees. Peers that keep to the protocol took all of it before the step was decided, or, where
// votes wait for no sum, before the totals that are here were made of it, or it is counted; except
// what other variables have under way. One that takes nothing, and goes on all the same, is waited
// for, until the deadline of the request.
bool StepPipeline::returned(const StepState& step) const {
  if (step.sums_pending != 0 || step.contributions_open != 0) return false;
  if (parts_.group.rows().unsent[step.step & 1] > 0) return false;
  return !parts_.migration.frees_memory(step.step + 1) || parts_.outbox.peers_with_data().empty();
}

StepPipeline::Finished StepPipeline::finish(StepState& step) {
  Group& group = parts_.group;
  // All that the exchanges of an older plan had to send was sent: see returned().
  const bool plan_changed = parts_.migration.switch_over(step.step + 1);
  window_.finish();
  PARALLAX_LOG(kTrace, kStep,
               group.name() + ": step " + std::to_string(step.step) + " is decided and applied");
  for (const auto& runtime : group.runtimes()) {
    // Early enough: peers send for that step once the next one is decided, which takes our vote.
    runtime->exchange_at(window_.opens()).open(window_.opens());
  }
  runs_->open(window_.opens());
  own_time_.open(window_.next_to_vote(), parts_.clock.now_ns());
  group.pulls().open(window_.opens());
  // After the switch of tables: it answers pulls that were held back, out of the new ones.
  group.pulls().applied(window_.finished());
  return {.step = step.step, .plan_changed = plan_changed};
}

}  // namespace parallax
