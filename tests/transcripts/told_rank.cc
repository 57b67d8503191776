// SPDX-License-Identifier: Apache-2.0
// The calls of a script, and what comes of them. See told_rank.h.
#include "transcripts/told_rank.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace parallax::transcripts {

struct ToldRank::CallRow {
  const char* name;
  Status (ToldRank::*make)(const Words& words, Call* call);
};

const ToldRank::CallRow ToldRank::kCalls[] = {
    {"register", &ToldRank::do_register}, {"commit", &ToldRank::do_commit},
    {"begin", &ToldRank::do_begin},       {"pull", &ToldRank::do_pull},
    {"push", &ToldRank::do_push},         {"reduce", &ToldRank::do_reduce},
    {"end", &ToldRank::do_end},           {"barrier", &ToldRank::do_barrier},
    {"abort", &ToldRank::do_abort},       {"close", &ToldRank::do_close},
};

ToldRank::ToldRank(SimWorld& world, const EngineOptions& options, Story& story,
                   std::vector<NamedVariable>& variables)
    : world_(world),
      story_(story),
      variables_(variables),
      rank_(options.rank),
      hosts_(options.view.hosts),
      transport_(world.transport(rank_), rank_, story),
      compute_(world, rank_, false),
      engine_(options, transport_, world.clock(), compute_) {
  const Status started = engine_.start();
  if (!started.ok()) throw ScriptError("start: " + started.message());
}

void ToldRank::run(int64_t) {
  engine_.run();
  while (reap()) engine_.kick();
}

int64_t ToldRank::next_deadline_ns() const {
  return std::min(engine_.next_deadline_ns(), compute_.next_ready_ns());
}

void ToldRank::say(const std::string& what) {
  story_.add_now("rank " + std::to_string(rank_) + ": " + what);
}

void ToldRank::say_waits() {
  for (const Call& call : calls_) {
    say(call.text + " waits: " + engine_.reports().missing(*call.request).message());
  }
}

void ToldRank::tell(const Words& words) {
  const auto* const row =
      std::find_if(std::begin(kCalls), std::end(kCalls),
                   [&](const CallRow& each) { return words.at(0) == each.name; });
  if (row == std::end(kCalls)) throw ScriptError("there is no call '" + words.at(0) + "'");
  Call& call = calls_.emplace_back();
  call.text = words.text_from(0);
  const Status made = (this->*row->make)(words.from(1), &call);
  if (!made.ok()) {
    say(call.text + " refused: " + status_name(made.code()) + ", " + made.message());
  }
  if (call.request == nullptr) calls_.pop_back();
  engine_.kick();
  while (reap()) engine_.kick();
  if (!engine_.flushed()) world_.poke(rank_);
}

// ---- calls

const Partition& ToldRank::partition_of(const std::string& name) const {
  return std::find_if(variables_.begin(), variables_.end(),
                      [&](const NamedVariable& each) { return each.name == name; })
      ->partition;
}

// The id that this rank has for it.
uint32_t ToldRank::variable(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found != names_.end()) return static_cast<uint32_t>(found - names_.begin());
  throw ScriptError("there is no variable '" + name + "'");
}

// NAME ROWSxWIDTH RULE [rows_max=N] [init=X]
Status ToldRank::do_register(const Words& words, Call*) {
  const std::vector<std::string> shape = cut(words.at(1), 'x');
  if (shape.size() != 2) throw ScriptError("'" + words.at(1) + "' is no ROWSxWIDTH");
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.name = words.at(0).c_str();
  variable.rows = static_cast<uint64_t>(number_of(shape[0]));
  variable.row_elements = static_cast<uint64_t>(number_of(shape[1]));
  variable.rows_max = static_cast<uint64_t>(words.number("rows_max", 0));
  variable.init_low = static_cast<float>(words.number("init", 0));
  if (words.at(2) == "sgd") {
    variable.rule = PARALLAX_RULE_SGD;
  } else if (words.at(2) != "held") {
    throw ScriptError("'" + words.at(2) + "' is neither sgd nor held");
  }
  uint32_t id = 0;
  PARALLAX_RETURN_IF_ERROR(engine_.job_calls().register_variable(variable, &id));
  names_.push_back(words.at(0));
  // By number: of a commit by name.
  const auto before = [this](const NamedVariable& each, const std::string& name) {
    return std::pair(each.commit, each.name) < std::pair(commits_, name);
  };
  const auto place = std::lower_bound(variables_.begin(), variables_.end(), names_.back(), before);
  if (place != variables_.end() && place->commit == commits_ && place->name == names_.back()) {
    return {};
  }
  const auto world = static_cast<uint32_t>(hosts_.host_of.size());
  variables_.insert(place, {names_.back(),
                            Partition(variable.rows, variable.row_elements, variable.rows_max > 0,
                                      SlotMap::of_ranks(world, kSlotsPerOwner), id),
                            commits_});
  return {};
}

Status ToldRank::do_commit(const Words&, Call* call) {
  ++commits_;
  return engine_.job_calls().commit(&call->request);
}

Status ToldRank::do_begin(const Words&, Call*) { return engine_.step_calls().begin(&step_); }

// Slices: NAME for a dense pull, NAME[ID,...] for a pull of rows; with =X,... the gradient, again
// from its start where it is longer.
void ToldRank::add_slices(const Words& words, Call* call) const {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::vector<std::string> sides = cut(words.at(i), '=');
    const std::vector<std::string> named = cut(sides.at(0), '[');
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = variable(named.at(0));
    const Partition& shape = partition_of(names_[slice.variable]);
    uint64_t rows = shape.rows();
    if (named.size() > 1) {
      std::vector<int64_t>& ids = call->ids.emplace_back();
      for (const std::string& id : cut(named[1].substr(0, named[1].find(']')), ',')) {
        ids.push_back(static_cast<int64_t>(number_of(id)));
      }
      rows = ids.size();
      slice.form = PARALLAX_FORM_ROWS;
      slice.row_count = rows;
      slice.ids = ids.data();
    }
    std::vector<float>& values = call->values.emplace_back(rows * shape.row_elements());
    const std::vector<std::string> given =
        sides.size() > 1 ? cut(sides[1], ',') : std::vector<std::string>{"0"};
    for (size_t at = 0; at < values.size(); ++at) {
      values[at] = static_cast<float>(number_of(given[at % given.size()]));
    }
    slice.values = values.data();
    call->slices.push_back(slice);
  }
}

Status ToldRank::do_pull(const Words& words, Call* call) {
  add_slices(words, call);
  return engine_.step_calls().pull(step_, call->slices, &call->request);
}

Status ToldRank::do_push(const Words& words, Call* call) {
  add_slices(words, call);
  return engine_.step_calls().push(step_, call->slices, &call->request);
}

Status ToldRank::do_reduce(const Words& words, Call* call) {
  add_slices(words, call);
  return engine_.step_calls().reduce(step_, call->slices, &call->request);
}

// [rate=X] [clip=X] [found_inf] [absent]
Status ToldRank::do_end(const Words& words, Call* call) {
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  options.learning_rate = static_cast<float>(words.number("rate", 0));
  options.clip_norm = static_cast<float>(words.number("clip", 0));
  options.found_inf = words.has("found_inf") ? 1 : 0;
  options.absent = words.has("absent") ? 1 : 0;
  return engine_.step_calls().end(step_, options, &call->request);
}

Status ToldRank::do_barrier(const Words&, Call* call) {
  return engine_.collective_calls().barrier(&call->request);
}

Status ToldRank::do_abort(const Words& words, Call*) {
  engine_.job_calls().abort(words.text_from(0));
  return {};
}

Status ToldRank::do_close(const Words&, Call* call) {
  return engine_.job_calls().close(&call->request);
}

// ---- what comes back

bool ToldRank::reap() {
  const auto done = std::find_if(calls_.begin(), calls_.end(),
                                 [](const Call& call) { return call.request->done(); });
  if (done == calls_.end()) return false;
  const Status& status = done->request->status;
  say(done->text + ": " +
      (status.ok() ? "OK" + result(*done)
                   : std::string(status_name(status.code())) + ", " + status.message()));
  const Status released = engine_.release(done->request);
  if (!released.ok()) throw ScriptError("release: " + released.message());
  calls_.erase(done);
  return true;
}

std::string ToldRank::result(const Call& call) const {
  const parallax_step_info_t& info = call.request->info;
  switch (call.request->kind) {
    case RequestKind::kPull:
    case RequestKind::kReduce:
      return values_text(call);
    case RequestKind::kStepEnd: {
      std::string text = ", step " + std::to_string(info.step) +
                         (info.committed != 0 ? " committed, " : " discarded, ") +
                         std::to_string(info.contributors) + " contributors";
      if (info.gradient_norm != 0) {
        text +=
            ", norm " + numbers_text(std::vector<float>{static_cast<float>(info.gradient_norm)});
        text += ", scale " + numbers_text(std::vector<float>{static_cast<float>(info.clip_scale)});
      }
      return text + (info.plan_changed != 0 ? ", plan changed" : "");
    }
    default:
      return "";
  }
}

std::string ToldRank::values_text(const Call& call) const {
  std::string text;
  for (size_t i = 0; i < call.slices.size(); ++i) {
    const parallax_slice_t& slice = call.slices[i];
    text += (i == 0 ? ", " : "; ") + names_[slice.variable];
    std::vector<int64_t> ids;
    std::vector<float> values = call.values[i];
    if (slice.form == PARALLAX_FORM_ROWS) ids.assign(slice.ids, slice.ids + slice.row_count);
    if (call.request->kind == RequestKind::kReduce && slice.form == PARALLAX_FORM_ROWS) {
      const RowsResult& rows = call.request->rows[i];
      ids = rows.ids;
      values.resize(rows.values.size() / sizeof(float));
      if (!values.empty()) std::memcpy(values.data(), rows.values.data(), rows.values.size());
    }
    for (size_t id = 0; id < ids.size(); ++id) {
      text += (id == 0 ? " [" : ",") + std::to_string(ids[id]);
    }
    text += (ids.empty() ? " " : "] ") + numbers_text(values);
  }
  return text;
}

}  // namespace parallax::transcripts
