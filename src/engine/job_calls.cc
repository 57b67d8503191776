// SPDX-License-Identifier: Apache-2.0
// Registration, commit and close at one rank. See job_calls.h.
#include "engine/job_calls.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "group/algorithm_costs.h"
#include "message/wire.h"

namespace parallax {

Status JobCalls::register_variable(const parallax_variable_t& description, uint32_t* id) {
  PARALLAX_RETURN_IF_ERROR(parts_.phase.check_preparing("register", parts_.pipeline.window()));
  Variable variable;
  PARALLAX_RETURN_IF_ERROR(make_variable(description, &variable));
  variable.fuse_tables = parts_.fuse_tables == FuseTables::kAll ||
                         (parts_.fuse_tables == FuseTables::kManaged && variable.managed());
  PARALLAX_RETURN_IF_ERROR(parts_.pins.apply(&variable));
  PARALLAX_RETURN_IF_ERROR(check_memory(variable));
  if (variable.init == PARALLAX_INIT_BROADCAST) {
    if (parts_.group.columns().rank() != 0) {
      variable.initial = nullptr;
    } else if (variable.initial == nullptr) {
      return invalid("variable '" + variable.name +
                     "': initial is NULL on rank 0, whose values PARALLAX_INIT_BROADCAST gives to "
                     "every rank")
          .about_field("initial");
    }
  }
  return add(std::move(variable), id);
}

// Its memory is kept before anybody knows of the variable, so that nobody frees it in between.
Status JobCalls::add(Variable variable, uint32_t* id) {
  Place& place = variable.place;
  if (!place.given()) return parts_.registry.add(std::move(variable), id);
  PARALLAX_RETURN_IF_ERROR(keep_place(parts_.buffers, variable.name, &place));
  const Place kept = place;
  Status status;
  if (parts_.launches.in_window(place.buffers[0].range) ||
      parts_.launches.in_window(place.buffers[1].range)) {
    status = unsupported("variable '" + variable.name +
                         "': its place lies in a buffer that ranks have registered together, with "
                         "the variables of an earlier commit; give it one of its own")
                 .about_field("place_values");
  }
  if (status.ok()) status = parts_.registry.add(std::move(variable), id);
  if (!status.ok()) let_go(parts_.buffers, kept);
  return status;
}

// Where its slices cannot be read, or its table cannot be kept, it is refused before a step needs
// them.
Status JobCalls::check_memory(const Variable& variable) const {
  const bool slices = variable.memory != PARALLAX_MEMORY_HOST;
  if (!slices && variable.table_memory == PARALLAX_MEMORY_HOST) return {};
  const std::string field = slices ? "memory" : "table_memory";
  if (parts_.pipeline.window().staleness() > 0) {
    return unsupported("variable '" + variable.name + "': " + field +
                       " is PARALLAX_MEMORY_CUDA, and the job has a staleness, with which slices "
                       "and tables lie in host memory; set it to PARALLAX_MEMORY_HOST, or open the "
                       "job without staleness")
        .about_field(field);
  }
  DeviceShare share;
  const Status open =
      parts_.devices ? parts_.devices(&share) : unsupported("this job has no way to a device");
  if (open.ok()) return {};
  return open
      .prefixed("variable '" + variable.name + "': " + field +
                " is PARALLAX_MEMORY_CUDA, and no device can be used: ")
      .about_field(field);
}

// ---- commit

namespace {

// A row is never cut: with its headers it must fit one message.
Status check_row_bytes(const Variable& variable, const Transport& transport) {
  if (!variable.ids_declared()) return {};
  const uint64_t elements =
      std::max({variable.gradient_elements(), variable.state_width(0), variable.state_width(1)});
  const uint64_t bytes = sizeof(MessageHeader) + sizeof(SectionHeader) + sizeof(uint32_t) +
                         elements * bytes_of_sum(variable.sum_type());
  const uint64_t most = transport.message_bytes_max();
  if (bytes <= most) return {};
  return limit("commit: variable '" + variable.name + "': a row of " + std::to_string(elements) +
               " elements takes a message of " + std::to_string(bytes) + " bytes, and transport " +
               std::string(transport.name()) + " carries " + std::to_string(most) +
               "; register it as DENSE, or cut its rows into narrower ones");
}

}  // namespace

Status JobCalls::commit(Request** request) {
  PARALLAX_RETURN_IF_ERROR(parts_.phase.check_preparing("commit", parts_.pipeline.window()));
  // Ranks that disagree have their registries broadcast.
  if (parts_.broadcast.active()) {
    return bad_state("commit: a broadcast is pending; wait for it first");
  }
  TakenRequest taken(parts_.requests);
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kCommit, 0));
  Status built;
  try {
    built = lay_out();
  } catch (...) {
    // No memory, and variables that are laid out by half. The others are told, if that can be.
    try {
      parts_.failure.abort(limit("commit: out of memory at " + parts_.group.name()));
    } catch (...) {
      parts_.failure.give_up();
    }
    throw;
  }
  parts_.phase.commit();
  *request = commit_request_ = taken.keep();
  // The other ranks are told, so that none waits for this one.
  if (!built.ok()) parts_.failure.abort(built);
  return {};
}

Status JobCalls::lay_out() {
  parts_.registry.number_new();
  if (parts_.group.columns().rank() == 0 && parts_.job.hosts == nullptr) {  // once, not of parts
    const std::string idle = parts_.pins.idle(parts_.registry.registered());
    if (!idle.empty()) {
      PARALLAX_LOG(kWarn, kPlan,
                   "commit: pins: no variable of the job so far is of, and can follow, " + idle);
    }
  }
  device_terms_ = device_agreement_.terms();  // libraries are looked for: in the caller's time
  for (const Variable* variable : parts_.registry.newest_registered()) {
    PARALLAX_RETURN_IF_ERROR(check_row_bytes(*variable, parts_.transport));
  }
  parts_.traffic.reserve(parts_.registry.size());
  PARALLAX_RETURN_IF_ERROR(
      parts_.group.add(parts_.registry.newest(), parts_.pipeline.window().finished()));
  parts_.pipeline.add_variables();
  return {};
}

void JobCalls::say_terms() {
  const auto make_id = [this](CommunicatorId* id) { return device_agreement_.make_id(id); };
  commit_protocol_.start(device_terms_, costs_agreed_ ? CostTerms() : cost_terms_,
                         device_agreement_.needs_id() ? make_id : CommitProtocol::MakeId());
}

void JobCalls::advance_commit() {
  if (!parts_.phase.committing()) return;
  if (!commit_protocol_.started()) {
    // One piece in a run, which advances many times and must keep the leases.
    if (filling_) return;
    filling_ = !parts_.group.fill();
    if (filling_) return;
    parts_.registry.forget_initial(PARALLAX_INIT_BUFFER);
    if (!measure()) return;
    say_terms();
  }
  take_commit(commit_protocol_.advance());
}

// Where it matters to some of the newest variables, once in a job. True when all is measured.
bool JobCalls::measure() {
  cost_terms_ = {};
  cost_terms_.wanted = !costs_agreed_ && parts_.costs.wanted() &&
                       choices_open(parts_.group, parts_.registry.newest());
  if (!cost_terms_.wanted || !parts_.costs.measured) return true;
  if (!probe_.begun()) probe_.begin();
  probe_.advance();
  measuring_ = probe_.computing();
  if (probe_.finished()) cost_terms_ = probe_.terms();
  return probe_.finished();
}

// True if some variables go another way for it.
bool JobCalls::use_costs() {
  const CostTerms costs = commit_protocol_.costs_agreed();
  if (!costs.agreed || costs_agreed_) return false;
  costs_agreed_ = true;
  if (parts_.group.columns().rank() == 0) {
    PARALLAX_LOG(kInfo, kPlan, "costs of the job: " + costs_text(costs.constants));
  }
  bool changed = false;
  const Status used = parallax::use_costs(parts_.group, costs.constants, parts_.registry.newest(),
                                          parts_.pipeline.window().finished(), &changed);
  if (used.ok()) return changed;
  parts_.failure.abort(used.prefixed("commit: " + parts_.group.name() + ": "));
  return false;
}

void JobCalls::take_commit(const JobFailure& failure) {
  if (!failure.status.ok()) {
    return parts_.failure.fail(failure.status, SectionKind::kAbort, failure.culprit,
                               failure.variable);
  }
  if (!parts_.phase.committing() || !commit_protocol_.agreed()) return;
  // Once more, so that no rank begins a step before all go the same ways.
  if (use_costs()) return commit_protocol_.start();
  if (!parts_.failure.status().ok()) return;
  if (initial_stream_.needed() && !initial_sent_) {
    if (!initial_stream_.advance()) return;
    initial_sent_ = another_round_ = true;
  }
  parts_.registry.forget_initial(PARALLAX_INIT_BROADCAST);
  if (!carried_) {
    if (device_agreement_.may_hold(commit_protocol_.devices_agreed())) {
      device_terms_ = device_agreement_.hold();
      return say_terms();
    }
    bool another_round = false;
    const Status carried = device_agreement_.carry(
        commit_protocol_.devices_agreed(), parts_.pipeline.window().finished(), &another_round);
    if (!carried.ok()) return parts_.failure.abort(carried.prefixed("commit: "));
    carried_ = true;
    another_round_ = another_round_ || another_round;
  }
  // Once more, so that no rank begins a step before every owner has its values, and what other
  // hosts send to devices is taken for that.
  if (std::exchange(another_round_, false)) return commit_protocol_.start();
  if (device_agreement_.forming()) return;
  initial_sent_ = carried_ = false;
  commit_protocol_.end();
  parts_.phase.run();
  parts_.requests.finish(std::exchange(commit_request_, nullptr), {});
}

void JobCalls::leave_commit() {
  if (!parts_.failure.status().ok()) return;
  for (const Variable* variable : parts_.registry.newest_registered()) {
    if (variable->initial == nullptr) continue;
    return parts_.failure.abort(
        {PARALLAX_ABORTED, parts_.group.name() +
                               ": commit timed out before the initial values of variable '" +
                               variable->name + "' were taken from the caller's buffer"});
  }
}

// ---- the tree

bool JobCalls::merge_report(TreeKind kind, std::span<const std::byte> payload) {
  return kind == TreeKind::kCommit ? commit_protocol_.merge_report(payload)
                                   : parts_.goodbye.merge_report(kind, payload);
}

bool JobCalls::on_answer(TreeKind kind, std::span<const std::byte> payload) {
  if (kind != TreeKind::kCommit) return parts_.goodbye.on_answer(kind, payload);
  take_commit(commit_protocol_.on_answer(payload));
  return true;
}

// ---- split

Status JobCalls::split(std::span<const uint32_t> ranks, Request** request) {
  if (!parts_.failure.status().ok()) return parts_.failure.status();
  if (parts_.phase.closing() || parts_.phase.closed()) {
    return bad_state("split: close was called");
  }
  return splits_.split(ranks, request);
}

// ---- close

Status JobCalls::close(Request** request) {
  if (parts_.phase.closing() || parts_.phase.closed()) {
    return bad_state("close: it was called already");
  }
  TakenRequest taken(parts_.requests);
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kClose, 0));
  Request* const closing = *request = taken.keep();
  // A failed job has nobody to say goodbye to.
  if (!parts_.failure.status().ok()) {
    end();
    parts_.requests.finish(closing, parts_.failure.status());
    return {};
  }
  if (parts_.phase.committing()) {
    abort("close was called before every rank had committed");
    end();
    parts_.requests.finish(closing, parts_.failure.status());
    return {};
  }
  parts_.phase.close();
  close_request_ = closing;
  parts_.goodbye.start(parts_.pipeline.window().ended());
  return {};
}

// If others wait in a split, a commit or a step for a rank that closes, the job fails at once, not
// at their deadlines.
void JobCalls::check_leaving() {
  // Who waited may have said meanwhile that its time was up.
  if (heard_since_close_ && parts_.phase.closing() && splits_.awaited()) {
    return parts_.failure.abort(peer_lost(parts_.group.name() +
                                          " closed the job before a split, which other ranks wait "
                                          "for")
                                    .about_peer(parts_.group.columns().rank()));
  }
  // While a communicator forms all ranks have agreed, and one in which it has may close already.
  const bool committing = parts_.phase.committing() && !forms_communicator();
  const Goodbye::Leaver leaver = parts_.goodbye.missed(committing, parts_.pipeline.window(),
                                                       parts_.pipeline.voted_by_others());
  if (leaver.before.empty()) return;
  parts_.failure.fail(peer_lost(rank_name(parts_.group.columns().map(), leaver.rank) +
                                " closed the job " + leaver.before + ", which other ranks wait for")
                          .about_peer(leaver.rank),
                      SectionKind::kAbort, leaver.rank);
}

void JobCalls::advance_close() {
  if (!parts_.phase.closing() || close_request_ == nullptr) return;
  parts_.goodbye.advance();
  // What is still unsent may be the answer that a child waits for.
  if (!parts_.goodbye.confirmed() || !parts_.outbox.idle()) return;
  end();
  parts_.requests.finish(std::exchange(close_request_, nullptr), {});
}

// ---- the end of the job

void JobCalls::abort(const std::string& reason) {
  parts_.failure.abort(
      {PARALLAX_ABORTED, parts_.group.name() + " aborted the job: " +
                             (reason.empty() ? std::string("no reason given") : reason)});
}

void JobCalls::end() {
  parts_.phase.end();
  parts_.failure.close();
}

void JobCalls::finish_all(const Status& status) {
  splits_.finish_all(status);
  for (Request** request : {&commit_request_, &close_request_}) {
    if (*request != nullptr) parts_.requests.finish(std::exchange(*request, nullptr), status);
  }
}

}  // namespace parallax
