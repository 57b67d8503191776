// SPDX-License-Identifier: Apache-2.0
// The jobs that fuzz_wire.cc attacks: three ranks on two hosts or three, who of them is attacked,
// and what every rank calls.
#ifndef PARALLAX_TESTS_FUZZ_WIRE_JOB_H_
#define PARALLAX_TESTS_FUZZ_WIRE_JOB_H_

#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "collectives/exchange.h"
#include "support/engine_world.h"

namespace parallax::testkit {

inline constexpr uint32_t kRanks = 3;

struct Choice {
  explicit Choice(uint8_t bits) : bits(bits) {}
  std::vector<uint32_t> hosts() const {
    // Of three hosts sums of rows also go back from their owners.
    if ((bits & 128) != 0) return {0, 1, 2};
    return (bits & 1) != 0 ? std::vector<uint32_t>{0, 0, 1} : std::vector<uint32_t>{0, 1, 1};
  }
  parallax_plan_mode_t plan_mode() const {
    constexpr parallax_plan_mode_t kModes[] = {PARALLAX_PLAN_AUTO, PARALLAX_PLAN_HYBRID,
                                               PARALLAX_PLAN_PS, PARALLAX_PLAN_AR};
    return kModes[bits >> 1 & 3];
  }
  bool deterministic() const { return (bits & 8) != 0; }
  // The rank whose engine it is.
  uint32_t victim() const { return (bits >> 4 & 3) % kRanks; }
  // Who has no rows says so, or a census tells.
  uint32_t marker_hosts_max() const { return (bits & 64) != 0 ? 0 : kMarkerHostsMax; }

  const uint8_t bits;
};

enum Variable : uint32_t { kEmbedding, kDense, kHeldRows, kHeld, kTied, kVariables };

inline std::vector<parallax_variable_t> variables() {
  std::vector<parallax_variable_t> all = {
      sparse_variable("embedding", 20, 2, 20, PARALLAX_RULE_ADAGRAD),
      dense_variable("dense", 10, 60, PARALLAX_RULE_SGD), sparse_variable("held_rows", 9, 1, 4),
      dense_variable("held", 300, 1), sparse_variable("tied", 12, 2, 12, PARALLAX_RULE_MOMENTUM)};
  all[kTied].accumulate = 1;
  all[kTied].reduction = PARALLAX_MEAN_ROW;
  all[kHeld].reduction = PARALLAX_MEAN_CONTRIBUTORS;
  static const std::array<float, 24> initial = {1, 2, 3};
  all[kTied].init = PARALLAX_INIT_BROADCAST;
  all[kTied].initial = initial.data();
  all[kTied].rates = 1;
  return all;
}

// What every rank calls, phase by phase. The requests are left to the engine; every call of a rank
// that is told nothing wrong by its peers is right.
enum Phase : uint32_t {
  kCommit,
  kStep,
  kBetween,    // rows are read, written and evaluated, and all meet
  kStepDense,  // the tied variable is given whole: it moves two steps later
  kStepPlain,
  kStepMoved,
  kBetweenMoved,
  kStepAfter,
  kClose,
  kPhases
};

class Calls {
 public:
  explicit Calls(Engine& engine) : engine_(engine), rank_(engine.options().rank) {}

  // False: the engine refused one.
  bool start(uint32_t phase) {
    requests.clear();
    switch (phase) {
      case kCommit:
        return commit();
      case kBetween:
      case kBetweenMoved:
        return between();
      case kClose:
        return keep(engine_.job_calls().close(&request_));
      default:
        return step(phase == kStepDense);
    }
  }

  std::vector<Request*> requests;

 private:
  bool keep(const Status& status) {
    if (status.ok()) requests.push_back(request_);
    return status.ok();
  }
  bool commit() {
    for (const parallax_variable_t& variable : variables()) {
      uint32_t id = 0;
      if (!engine_.job_calls().register_variable(variable, &id).ok()) std::abort();
    }
    return keep(engine_.job_calls().commit(&request_));
  }
  bool between() {
    static std::vector<int64_t> ids = {1, 19, 1, 5, -1, 0, 7, 11, 1, 2};
    static std::vector<float> values(600);
    const parallax_slice_t slices[] = {rows_slice(kEmbedding, ids, values.data()),
                                       dense_slice(kDense, values.data())};
    parallax_rows_t rows = {};
    rows.size = sizeof rows;
    rows.variable = rank_ == 0 ? kEmbedding : kTied;
    rows.row_count = 12;
    rows.values = rows.state[0] = values.data();
    if (!keep(engine_.step_calls().pull(0, slices, &request_)) ||
        !keep(engine_.row_calls().post(rows, rank_ == 1, &request_))) {
      return false;
    }
    static std::vector<float> sums(2000);
    parallax_collective_t what = {};
    what.size = sizeof what;
    what.count = 3;
    what.send = values.data();
    what.recv = sums.data();
    // One that travels with its reports, one in more than a message, one of every pair.
    for (const uint32_t kind : {PARALLAX_ALLREDUCE, PARALLAX_ALLGATHER, PARALLAX_ALLTOALLV}) {
      static const std::vector<uint64_t> counts(8, 40);
      what.kind = kind;
      what.tag = kind == PARALLAX_ALLREDUCE ? 0 : 3;
      what.send_counts = what.recv_counts = counts.data();
      if (!keep(engine_.collective_calls().collective(what, &request_))) return false;
      what.recv = sums.data() + (kind == PARALLAX_ALLREDUCE ? 300 : 1200);
      what.count = 290;
    }
    return keep(engine_.collective_calls().barrier(&request_)) &&
           keep(engine_.collective_calls().broadcast(bytes_.data(), bytes_.size(), 1, &request_));
  }
  bool step(bool dense) {
    static std::vector<int64_t> ids = {1, 3, 3, 11, 0};
    static std::vector<int64_t> held_ids = {0, 8};
    static std::vector<float> values(600, 1), out(600);
    uint64_t number = 0;
    if (!engine_.step_calls().begin(&number).ok()) return false;
    const parallax_slice_t pulled[] = {rows_slice(kEmbedding, ids, out.data()),
                                       dense_slice(kDense, out.data()),
                                       rows_slice(kTied, ids, out.data())};
    parallax_slice_t tied = rows_slice(kTied, ids, values.data());
    parallax_slice_t part = tied;
    part.more = 1;
    if (dense) tied = dense_slice(kTied, values.data());
    const parallax_slice_t pushed[] = {rows_slice(kEmbedding, ids, values.data()),
                                       dense_slice(kDense, values.data()), tied};
    const parallax_slice_t reduced[] = {rows_slice(kHeldRows, held_ids, values.data()),
                                        dense_slice(kHeld, values.data())};
    return keep(engine_.step_calls().pull(number, pulled, &request_)) &&
           keep(engine_.step_calls().pull(number, {pulled, 1}, &request_)) &&
           keep(engine_.step_calls().push(number, {&part, 1}, &request_)) &&
           keep(engine_.step_calls().push(number, pushed, &request_)) &&
           keep(engine_.step_calls().reduce(number, reduced, &request_)) &&
           keep(engine_.step_calls().end(number, end_of(number), &request_));
  }
  // Every other step has rates by group, one of which clips its own gradients.
  static parallax_step_end_options_t end_of(uint64_t number) {
    static const std::array<parallax_rates_t, 2> rates = {
        {{.size = sizeof(parallax_rates_t), .learning_rate = 0.5f},
         {.size = sizeof(parallax_rates_t), .learning_rate = 0.25f, .clip_norm = 1}}};
    parallax_step_end_options_t options = {};
    options.size = sizeof options;
    if (number % 2 == 1) return options;
    options.rates = rates.data();
    options.rates_count = rates.size();
    return options;
  }

  Engine& engine_;
  const uint32_t rank_;
  Request* request_ = nullptr;
  std::array<std::byte, 40> bytes_ = {};
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_FUZZ_WIRE_JOB_H_
