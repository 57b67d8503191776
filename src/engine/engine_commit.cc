// SPDX-License-Identifier: Apache-2.0
// Registration, commit, barriers, broadcasts and the goodbye: what all ranks do together outside of
// steps. See engine.h.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "engine/commit_report.h"
#include "engine/engine.h"
#include "planner/choice.h"

namespace parallax {

namespace {

// FNV-1a, to tell equal registries from different ones; what differs is then looked up in full.
uint64_t digest_of(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  return hash;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Status Engine::register_variable(const parallax_variable_t& description, uint32_t* id) {
  if (!failure_.ok()) return failure_;
  if (phase_ != Phase::kOpen) {
    return bad_state("register: commit was called; register every variable before it");
  }
  if (variables_.size() == PARALLAX_VARIABLES_MAX) {
    return limit("register: a job holds at most " + std::to_string(PARALLAX_VARIABLES_MAX) +
                 " variables; put several into one");
  }
  Variable variable;
  PARALLAX_RETURN_IF_ERROR(make_variable(description, &variable));
  for (const Variable& other : variables_) {
    if (other.name == variable.name) {
      return invalid("variable '" + variable.name + "': the name is registered already");
    }
  }
  *id = static_cast<uint32_t>(variables_.size());
  variables_.push_back(std::move(variable));
  return {};
}

// ---- commit

Status Engine::commit(Request** request) {
  if (!failure_.ok()) return failure_;
  if (phase_ != Phase::kOpen)
    return bad_state("commit: it was called already; a job is committed once");
  PARALLAX_RETURN_IF_ERROR(requests_.take(RequestKind::kCommit, 0, request));
  const Status built = build_runtimes();
  phase_ = Phase::kCommitting;
  commit_request_ = *request;
  if (!built.ok()) {
    // The other ranks are told, so that none waits for this one.
    fail(built, SectionKind::kAbort, options_.rank);
    return {};
  }
  commit_phase_ = CommitPhase::kFill;
  return {};
}

Engine::CommitReport Engine::my_report() const {
  CommitReport report;
  report.digest = digest_of(encode_registry(variables_));
  report.rank = options_.rank;
  report.plan_mode = options_.plan_mode;
  report.plan_after_steps = options_.plan_after_steps;
  report.deterministic = options_.deterministic ? 1 : 0;
  if (commit_phase_ == CommitPhase::kDetailReport && !detail_.empty()) {
    report.verdict = CommitVerdict::kDiffer;
    report.text = detail_;
  }
  return report;
}

// Ranks first compare digests, up the tree. If these differ, rank 0 broadcasts its registry, first
// the size and then the bytes, and a second round reports what differs from it.
void Engine::advance_commit() {
  if (phase_ != Phase::kCommitting) return;
  if (commit_phase_ == CommitPhase::kFill) {
    // busy_: this run has filled its piece. One run advances many times, and must keep the leases.
    if (busy_ || !fill_tables()) return;
    commit_phase_ = CommitPhase::kCompare;
    trees_[static_cast<size_t>(TreeKind::kCommit)].join();
  }
  if (commit_phase_ == CommitPhase::kDetailSize && broadcast_.finished()) {
    broadcast_.finish();
    constexpr uint64_t kRegistryBytesMax = 16 << 20;
    // The size is a peer's number: bounded before it is allocated.
    if (detail_bytes_ > kRegistryBytesMax) {
      fail(internal("commit: rank 0 announces a registry of " + std::to_string(detail_bytes_) +
                    " bytes"),
           SectionKind::kAbort, 0);
      return;
    }
    detail_.resize(detail_bytes_);
    commit_phase_ = CommitPhase::kDetailBlob;
    broadcast_.start(0, reinterpret_cast<std::byte*>(detail_.data()), detail_bytes_);
  }
  if (commit_phase_ == CommitPhase::kDetailBlob && broadcast_.finished()) {
    broadcast_.finish();
    detail_ = compare_registries(detail_, variables_, options_.rank);
    commit_phase_ = CommitPhase::kDetailReport;
    trees_[static_cast<size_t>(TreeKind::kCommit)].join();
  }
  TreeSync& tree = trees_[static_cast<size_t>(TreeKind::kCommit)];
  if (!tree.take_complete()) return;
  CommitReport report = my_report();
  // Kept until now, since merging compares them with this rank's own.
  for (const CommitReport& child : reports_) report.merge(child);
  reports_.clear();
  const std::string encoded = report.encode();
  if (!tree.is_root()) {
    send_tree_up(TreeKind::kCommit, bytes_of(encoded));
    return;
  }
  send_tree_down(TreeKind::kCommit, bytes_of(encoded));
  PARALLAX_CHECK(answer_tree(TreeKind::kCommit, bytes_of(encoded)));
}

void Engine::on_commit_answer(std::span<const std::byte> payload) {
  CommitReport verdict;
  if (phase_ != Phase::kCommitting || !verdict.decode(payload)) {
    fail(internal("commit: the answer of rank 0 cannot be read"), SectionKind::kAbort, 0);
    return;
  }
  switch (verdict.verdict) {
    case CommitVerdict::kAgree:
      if (commit_phase_ == CommitPhase::kDetailReport) {
        fail(internal("commit: digests differ but registries do not"), SectionKind::kAbort, 0);
        return;
      }
      phase_ = Phase::kRunning;
      commit_phase_ = CommitPhase::kIdle;
      requests_.finish(std::exchange(commit_request_, nullptr), {});
      return;
    case CommitVerdict::kDiffer:
      fail({PARALLAX_MISMATCH, "commit: ranks disagree: " + verdict.text}, SectionKind::kAbort,
           options_.rank);
      return;
    case CommitVerdict::kLookCloser: {
      if (columns_.rank() == 0) detail_ = encode_registry(variables_);
      // Members, since a broadcast borrows its buffer.
      detail_bytes_ = detail_.size();
      commit_phase_ = CommitPhase::kDetailSize;
      broadcast_.start(0, reinterpret_cast<std::byte*>(&detail_bytes_), sizeof detail_bytes_);
      return;
    }
  }
}

// ---- the tree

void Engine::send_tree_up(TreeKind kind, std::span<const std::byte> payload) {
  const TreeSync& tree = trees_[static_cast<size_t>(kind)];
  SectionHeader header;
  header.kind = SectionKind::kTreeUp;
  header.tag = static_cast<uint32_t>(kind);
  header.step = tree.round();
  outbox_.send_bytes(tree.parent(), header, payload);
}

void Engine::send_tree_down(TreeKind kind, std::span<const std::byte> payload) {
  const TreeSync& tree = trees_[static_cast<size_t>(kind)];
  SectionHeader header;
  header.kind = SectionKind::kTreeDown;
  header.tag = static_cast<uint32_t>(kind);
  header.step = tree.round();
  for (const uint32_t child : tree.children()) outbox_.send_bytes(child, header, payload);
}

bool Engine::on_tree(uint32_t from, const Section& section) {
  return section.header.kind == SectionKind::kTreeUp ? on_tree_up(from, section)
                                                     : on_tree_down(from, section);
}

bool Engine::on_tree_up(uint32_t from, const Section& section) {
  if (section.header.tag >= kTreeKinds) return false;
  const auto kind = static_cast<TreeKind>(section.header.tag);
  TreeSync& tree = trees_[section.header.tag];
  return tree.arrive(from, section.header.step) && merge_tree_up(kind, section.payload);
}

bool Engine::merge_tree_up(TreeKind kind, std::span<const std::byte> payload) {
  if (kind == TreeKind::kCommit) return reports_.emplace_back().decode(payload);
  if (kind == TreeKind::kVote) {
    Vote vote;
    if (!decode_vote(payload, &vote)) return false;
    // Added up as they come; this rank's own joins in advance_step_end().
    vote_.merge(vote);
    return true;
  }
  if (kind == TreeKind::kClose) {
    Leaving leaving;
    if (payload.size() != sizeof leaving) return false;
    std::memcpy(&leaving, payload.data(), sizeof leaving);
    // Others may wait for the one that ended fewest steps.
    if (leaving.ended < leaving_.ended) leaving_ = leaving;
    return true;
  }
  return payload.empty();
}

bool Engine::on_tree_down(uint32_t from, const Section& section) {
  if (section.header.tag >= kTreeKinds) return false;
  const TreeSync& tree = trees_[section.header.tag];
  // Nobody is answered who has not reported: the answer takes all reports.
  if (from != tree.parent() || section.header.step != tree.round() || !tree.reported()) {
    return false;
  }
  const auto kind = static_cast<TreeKind>(section.header.tag);
  // Passed on first: answer_tree() moves the tree to its next round.
  send_tree_down(kind, section.payload);
  return answer_tree(kind, section.payload);
}

bool Engine::answer_tree(TreeKind kind, std::span<const std::byte> payload) {
  trees_[static_cast<size_t>(kind)].answered();
  switch (kind) {
    case TreeKind::kCommit:
      on_commit_answer(payload);
      return true;
    case TreeKind::kVote: {
      Decision decision;
      if (!decode_decision(payload, &decision)) return false;
      // The decision is a peer's. A plan that does not fit its variable would move values that are
      // not there, or into memory that was not reserved.
      const auto has_ids = [this](uint32_t variable) {
        return variable < runtimes_.size() && runtimes_[variable]->variable->ids_declared();
      };
      const uint32_t dense = decision.dense_variable;
      bool fits = dense == kNoVariable || (has_ids(dense) && decision.entry_count == 0 &&
                                           runtimes_[dense]->change_step == 0);
      for (uint32_t i = 0; fits && i < decision.entry_count; ++i) {
        const PlanEntry& entry = decision.entries[i];
        fits = has_ids(entry.variable) && entry.touched_rows_per_host >= 0 &&
               entry.union_rows >= 0 && entry.pulled_rows_per_host >= 0;
        if (!fits) break;
        const Runtime& runtime = *runtimes_[entry.variable];
        const std::vector<VariablePlan> plans = fitting_plans(runtime.facts);
        fits = std::find(plans.begin(), plans.end(), entry.plan) != plans.end() &&
               // An entry of a variable that was made dense meanwhile is passed over when it is
               // applied.
               (runtime.change_step == 0 || runtime.facts.given_dense);
      }
      if (!fits) return false;
      on_decision(decision);
      return true;
    }
    case TreeKind::kBarrier: {
      const auto found = std::find_if(active_.begin(), active_.end(), [](const Request* each) {
        return each->kind == RequestKind::kBarrier;
      });
      // This rank joined because of a barrier in active_, and is answered once.
      PARALLAX_CHECK(found != active_.end());
      Request* barrier = *found;
      active_.erase(found);
      requests_.finish(barrier, {});
      return payload.empty();
    }
    case TreeKind::kClose:
      all_closing_ = true;
      // The second round needs no call of the program: see advance_close().
      trees_[static_cast<size_t>(TreeKind::kCloseConfirm)].join();
      return payload.empty();
    case TreeKind::kCloseConfirm:
      close_confirmed_ = true;
      return payload.empty();
  }
  return false;
}

// ---- barrier, broadcast, close

Status Engine::barrier(Request** request) {
  PARALLAX_RETURN_IF_ERROR(check_running("barrier"));
  PARALLAX_RETURN_IF_ERROR(requests_.take(RequestKind::kBarrier, 0, request));
  active_.push_back(*request);
  return {};
}

void Engine::advance_barrier() {
  TreeSync& tree = trees_[static_cast<size_t>(TreeKind::kBarrier)];
  if (!tree.joined()) {
    const bool called = std::any_of(active_.begin(), active_.end(), [](const Request* each) {
      return each->kind == RequestKind::kBarrier;
    });
    if (!called) return;
    tree.join();
  }
  if (!tree.take_complete()) return;
  if (tree.is_root()) {
    send_tree_down(TreeKind::kBarrier, {});
    PARALLAX_CHECK(answer_tree(TreeKind::kBarrier, {}));
  } else {
    send_tree_up(TreeKind::kBarrier, {});
  }
}

Status Engine::broadcast(std::byte* buffer, uint64_t bytes, uint32_t root, Request** request) {
  PARALLAX_RETURN_IF_ERROR(check_running("broadcast"));
  constexpr uint64_t kBroadcastBytesMax = 1ull << 40;
  if (root >= columns_.world()) {
    return invalid("broadcast: root is " + std::to_string(root) + ", the job has " +
                   std::to_string(columns_.world()) + " ranks");
  }
  if (bytes > kBroadcastBytesMax) return invalid("broadcast: more than 2^40 bytes; cut it up");
  if (buffer == nullptr && bytes > 0) return invalid("broadcast: buffer is null");
  PARALLAX_RETURN_IF_ERROR(requests_.take(RequestKind::kBroadcast, 0, request));
  (*request)->root = root;
  (*request)->buffer = buffer;
  (*request)->bytes = bytes;
  active_.push_back(*request);
  return {};
}

void Engine::advance_broadcast() {
  const auto mismatched = [this] {
    if (broadcast_.mismatch().empty()) return false;
    fail({PARALLAX_MISMATCH, broadcast_.mismatch()}, SectionKind::kAbort, options_.rank);
    return true;
  };
  if (mismatched()) return;  // also of one that is complete here
  const auto first = [this] {
    return std::find_if(active_.begin(), active_.end(),
                        [](const Request* each) { return each->kind == RequestKind::kBroadcast; });
  };
  auto next = first();
  while (next != active_.end()) {
    Request* request = *next;
    if (!request->started) {
      request->started = true;
      broadcast_.start(request->root, request->buffer, request->bytes);
    }
    if (mismatched() || !broadcast_.finished()) return;
    broadcast_.finish();
    active_.erase(next);
    requests_.finish(request, {});
    next = first();
  }
}

Status Engine::close(Request** request) {
  if (phase_ == Phase::kClosing || phase_ == Phase::kClosed) {
    return bad_state("close: it was called already");
  }
  Request* closing = nullptr;
  PARALLAX_RETURN_IF_ERROR(requests_.take(RequestKind::kClose, 0, &closing));
  *request = closing;
  // A failed job has nobody to say goodbye to.
  if (!failure_.ok()) {
    phase_ = Phase::kClosed;
    requests_.finish(closing, failure_);
    return {};
  }
  if (phase_ == Phase::kCommitting) {
    abort("close was called before every rank had committed");
    phase_ = Phase::kClosed;
    requests_.finish(closing, failure_);
    return {};
  }
  phase_ = Phase::kClosing;
  close_request_ = closing;
  if (window_.ended() < leaving_.ended) leaving_ = {window_.ended(), options_.rank};
  trees_[static_cast<size_t>(TreeKind::kClose)].join();
  return {};
}

// A rank that closes takes part in nothing more. If others wait for it in a commit or a step, the
// job fails at once, not at their deadlines. The rank of the tree sees it at which a report of
// theirs meets its goodbye.
void Engine::check_leaving() {
  // Every rank has come to close, so nobody waits for another's step.
  if (all_closing_) return;
  const TreeSync& commits = trees_[static_cast<size_t>(TreeKind::kCommit)];
  const TreeSync& votes = trees_[static_cast<size_t>(TreeKind::kVote)];
  const bool closing = phase_ == Phase::kClosing;
  uint32_t leaver = options_.rank;
  std::string what;
  if (closing && commits.any_arrived()) {
    what = "before its commit";
  } else if (closing && votes.any_arrived() && window_.ended() < votes.round()) {
    what = "before ending step " + std::to_string(votes.round());
  } else if (!closing && leaving_.ended != UINT64_MAX) {
    leaver = static_cast<uint32_t>(leaving_.rank);
    if (phase_ == Phase::kCommitting) what = "before its commit";
    if (window_.ended() > leaving_.ended && window_.is_ending(window_.ended())) {
      what = "before ending step " + std::to_string(leaving_.ended + 1);
    }
  }
  if (what.empty()) return;
  fail(peer_lost(rank_name(leaver) + " closed the job " + what + ", which other ranks wait for"),
       SectionKind::kAbort, leaver);
}

// Two rounds of the tree. After the first, every rank has come to close. The second makes sure that
// every rank knows that before any of them leaves: as long as a rank does not, it would take one
// that has left for a lost one, or a lost one for one that has left.
void Engine::advance_close() {
  if (phase_ != Phase::kClosing || close_request_ == nullptr) return;
  for (const TreeKind kind : {TreeKind::kClose, TreeKind::kCloseConfirm}) {
    TreeSync& tree = trees_[static_cast<size_t>(kind)];
    if (!tree.take_complete()) continue;
    if (tree.is_root()) {
      send_tree_down(kind, {});
      PARALLAX_CHECK(answer_tree(kind, {}));
    } else if (kind == TreeKind::kClose) {
      send_tree_up(kind, std::as_bytes(std::span(&leaving_, 1)));
    } else {
      send_tree_up(kind, {});
    }
  }
  // What is still unsent may be the answer that a child waits for.
  if (!close_confirmed_ || !outbox_.idle()) return;
  phase_ = Phase::kClosed;
  requests_.finish(std::exchange(close_request_, nullptr), {});
}

}  // namespace parallax
