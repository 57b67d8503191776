// SPDX-License-Identifier: Apache-2.0
// What all ranks do together outside of steps: registration, commit and close, and whom reports and
// answers of the tree are for. See engine.h.
#include <utility>

#include "engine/engine.h"

namespace parallax {

Status Engine::register_variable(const parallax_variable_t& description, uint32_t* id) {
  if (!failure_.status().ok()) return failure_.status();
  if (!phase_.open()) {
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

namespace {

// A row is never cut: with its headers it must fit one message.
Status check_row_bytes(const Variable& variable, const Transport& transport) {
  if (!variable.ids_declared()) return {};
  const uint64_t bytes = sizeof(MessageHeader) + sizeof(SectionHeader) + sizeof(uint32_t) +
                         variable.gradient_elements() * bytes_of_sum(variable.sum_type());
  const uint64_t most = transport.message_bytes_max();
  if (bytes <= most) return {};
  return limit("commit: variable '" + variable.name + "': a row of " +
               std::to_string(variable.row_elements) + " elements takes a message of " +
               std::to_string(bytes) + " bytes, and transport " + std::string(transport.name()) +
               " carries " + std::to_string(most) +
               "; register it as DENSE, or cut its rows into narrower ones");
}

}  // namespace

Status Engine::commit(Request** request) {
  if (!failure_.status().ok()) return failure_.status();
  if (!phase_.open()) return bad_state("commit: it was called already; a job is committed once");
  PARALLAX_RETURN_IF_ERROR(requests_.take(RequestKind::kCommit, 0, request));
  const Status built = build_group();
  phase_.commit();
  commit_request_ = *request;
  // The other ranks are told, so that none waits for this one.
  if (!built.ok()) failure_.abort(built);
  return {};
}

Status Engine::build_group() {
  for (const Variable& variable : variables_) {
    PARALLAX_RETURN_IF_ERROR(check_row_bytes(variable, transport_));
  }
  traffic_.reserve(variable_count());
  PARALLAX_RETURN_IF_ERROR(group_.build(variables_));
  pipeline_.reserve();
  return {};
}

void Engine::advance_commit() {
  if (!phase_.committing()) return;
  if (!commit_protocol_.started()) {
    // busy_: this run has filled its piece. One run advances many times, and must keep the leases.
    if (busy_) return;
    busy_ = !group_.fill();
    if (busy_) return;
    commit_protocol_.start();
  }
  take_commit(commit_protocol_.advance());
}

void Engine::take_commit(const JobFailure& failure) {
  if (!failure.status.ok()) {
    return failure_.fail(failure.status, SectionKind::kAbort, failure.culprit);
  }
  if (!phase_.committing() || !commit_protocol_.agreed()) return;
  phase_.run();
  requests_.finish(std::exchange(commit_request_, nullptr), {});
}

// ---- the tree

bool Engine::on_tree(uint32_t from, const Section& section) {
  const auto kind = static_cast<TreeKind>(section.header.tag);
  return section.header.kind == SectionKind::kTreeUp
             ? trees_.take_report(from, section) && merge_report(kind, section.payload)
             : trees_.take_answer(from, section) && on_answer(kind, section.payload);
}

bool Engine::merge_report(TreeKind kind, std::span<const std::byte> payload) {
  switch (kind) {
    case TreeKind::kCommit:
      return commit_protocol_.merge_report(payload);
    case TreeKind::kVote:
      return pipeline_.merge_vote(payload);
    case TreeKind::kBarrier:
      return payload.empty();
    case TreeKind::kClose:
    case TreeKind::kCloseConfirm:
      return goodbye_.merge_report(kind, payload);
  }
  return false;
}

bool Engine::on_answer(TreeKind kind, std::span<const std::byte> payload) {
  switch (kind) {
    case TreeKind::kCommit:
      take_commit(commit_protocol_.on_answer(payload));
      return true;
    case TreeKind::kVote:
      return pipeline_.take_decision(payload);
    case TreeKind::kBarrier:
      return collective_calls_.on_barrier_answer(payload);
    case TreeKind::kClose:
    case TreeKind::kCloseConfirm:
      return goodbye_.on_answer(kind, payload);
  }
  return false;
}

// ---- close

Status Engine::close(Request** request) {
  if (phase_.closing() || phase_.closed()) {
    return bad_state("close: it was called already");
  }
  Request* closing = nullptr;
  PARALLAX_RETURN_IF_ERROR(requests_.take(RequestKind::kClose, 0, &closing));
  *request = closing;
  // A failed job has nobody to say goodbye to.
  if (!failure_.status().ok()) {
    end();
    requests_.finish(closing, failure_.status());
    return {};
  }
  if (phase_.committing()) {
    abort("close was called before every rank had committed");
    end();
    requests_.finish(closing, failure_.status());
    return {};
  }
  phase_.close();
  close_request_ = closing;
  goodbye_.start(pipeline_.window().ended());
  return {};
}

// If others wait in a commit or a step for a rank that closes, the job fails at once, not at their
// deadlines.
void Engine::check_leaving() {
  const Goodbye::Leaver leaver = goodbye_.missed(phase_.committing(), pipeline_.window());
  if (leaver.before.empty()) return;
  failure_.fail(peer_lost(rank_name(options_.hosts, leaver.rank) + " closed the job " +
                          leaver.before + ", which other ranks wait for"),
                SectionKind::kAbort, leaver.rank);
}

void Engine::advance_close() {
  if (!phase_.closing() || close_request_ == nullptr) return;
  goodbye_.advance();
  // What is still unsent may be the answer that a child waits for.
  if (!goodbye_.confirmed() || !outbox_.idle()) return;
  end();
  requests_.finish(std::exchange(close_request_, nullptr), {});
}

}  // namespace parallax
