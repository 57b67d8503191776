// SPDX-License-Identifier: Apache-2.0
// Drawing, posting and checking the steps of a script. See script.h.
#include "support/script.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "support/drawn_rates.h"

namespace parallax::testkit {

std::string differ(std::span<const double> got, std::span<const double> want) {
  if (got.size() != want.size()) {
    return std::to_string(got.size()) + " values, not " + std::to_string(want.size());
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::bit_cast<uint64_t>(got[i]) == std::bit_cast<uint64_t>(want[i])) continue;
    char text[96];
    std::snprintf(text, sizeof text, "element %zu is %a, not %a", i, got[i], want[i]);
    return text;
  }
  return "";
}

std::vector<Request*> Script::RankStep::requests() const {
  std::vector<Request*> all;
  for (const Call& part : parts) all.push_back(part.request);
  for (const Call& push : pushes) all.push_back(push.request);
  for (const Pull& pull : pulls) all.push_back(pull.request);
  for (const Call& reduce : reduces) all.push_back(reduce.request);
  all.push_back(end);
  return all;
}

Script::Script(const ScriptOptions& options)
    : options_(options),
      world_(options.world),
      random_(SeededRandom(options.world.seed).fork(5)),
      naive_(options.variables, world_.hosts().ranks_of) {}

bool Script::managed(uint32_t variable) const {
  return options_.variables[variable].rule != PARALLAX_RULE_NONE;
}

double Script::number(uint32_t dtype) {
  if (!is_floating(dtype)) {
    if (dtype == PARALLAX_I32 && random_.chance(30)) {  // sums wrap
      return static_cast<double>(random_.below(uint64_t{1} << 32)) - 0x1p31;
    }
    return static_cast<double>(random_.below(2001)) - 1000;
  }
  if (options_.exact_numbers) return static_cast<double>(random_.between(-64, 64)) / 64;
  if (random_.chance(5)) return random_.chance(50) ? 0.0 : -0.0;
  const double unit = random_.unit() * 2 - 1;
  // Where norms are compared: no more digits than the naive program can square and sum exactly.
  const bool short_one = dtype == PARALLAX_F64 && options_.clip;
  return rounded(short_one ? uint32_t{PARALLAX_F32} : dtype,
                 std::ldexp(unit, static_cast<int>(random_.between(-12, 4))));
}

// What a caller may ask to read or give a variable as.
uint32_t Script::draw_dtype(uint32_t variable) {
  constexpr uint32_t kFloating[] = {PARALLAX_F32, PARALLAX_F64, PARALLAX_F16, PARALLAX_BF16};
  if (!floating(variable) || random_.chance(70)) return options_.variables[variable].dtype;
  return kFloating[random_.below(std::size(kFloating))];
}

std::vector<int64_t> Script::draw_ids(uint32_t variable, uint64_t count) {
  std::vector<int64_t> row_ids;
  const uint64_t rows = options_.variables[variable].rows;
  for (uint64_t i = 0; i < count; ++i) {
    if (random_.chance(4)) {
      row_ids.push_back(-1);
      continue;
    }
    // Skewed, so that slices have duplicates and ranks meet.
    const uint64_t row = random_.below(rows);
    row_ids.push_back(
        static_cast<int64_t>(random_.chance(50) ? row * random_.below(rows) / rows : row));
  }
  return row_ids;
}

void Script::draw_contributions(Played* step) {
  step->contributions.assign(options_.variables.size(), std::vector<Contribution>(world_.size()));
  for (uint32_t variable = 0; variable < options_.variables.size(); ++variable) {
    const parallax_variable_t& shape = options_.variables[variable];
    std::optional<std::vector<int64_t>> common;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      Contribution& contribution = step->contributions[variable][rank];
      if (step->ranks[rank].absent || (random_.chance(15) && !is_whole(*step, rank))) continue;
      contribution.contributed = true;
      uint64_t rows = shape.rows;
      if (ids(variable)) {
        const uint64_t most = shape.rows_max * options_.density_percent / 100 + 1;
        contribution.ids = draw_ids(variable, random_.chance(10) ? 0 : random_.below(most));
        rows = make_id_set(options_.id_sets, rank, world_.size(), shape.rows, &common,
                           &contribution.ids);
      }
      const uint32_t dtype = contribution.dtype = draw_dtype(variable);
      if (ids(variable) && shape.rows_max >= shape.rows && random_.chance(options_.tied_percent)) {
        contribution.dense = true;
        contribution.rows = random_.chance(50);
        if (!contribution.rows) contribution.ids.clear();
        rows = contribution.ids.size();
        contribution.dense_values.resize(shape.rows * shape.row_elements);
        for (double& value : contribution.dense_values) value = number(dtype);
      }
      contribution.values.resize(rows * shape.row_elements);
      for (double& value : contribution.values) value = number(dtype);
    }
  }
}

std::string Script::play() {
  for (const Status& status : world_.commit(options_.variables)) {
    if (!status.ok()) return "commit: " + status.message();
  }
  for (uint32_t t = 1; t <= options_.steps + 1; ++t) {
    const bool last = t == options_.steps + 1;
    Played& step = steps_.emplace_back();
    step.number = t;
    step.ranks.resize(world_.size());
    if (!last) {
      step.end.learning_rate = static_cast<float>(0.01 + random_.unit());
      if (options_.clip && random_.chance(40))
        step.end.clip_norm = static_cast<float>(0.1 + 10 * random_.unit());
      step.end.found_inf = random_.chance(10);
      // By chances of their own, so that a seed plays the rest as it does without.
      SeededRandom rates = SeededRandom(options_.world.seed).fork(900 + step.number);
      if (options_.rates > 0 && rates.chance(70)) {
        step.end.rates = draw_rates(rates, options_.rates, options_.clip);
      }
      for (RankStep& rank : step.ranks) rank.absent = random_.chance(12);
    }
    for (const RankStep& rank : step.ranks) step.end.contributors += rank.absent ? 0 : 1;
    draw_contributions(&step);
    std::string wrong = post(&step, last);
    while (wrong.empty() && steps_.size() > (options_.pipelined && !last ? 1 : 0)) {
      wrong = check(&steps_.front());
      steps_.pop_front();
    }
    if (!wrong.empty()) return "step " + std::to_string(t) + ": " + wrong;
  }
  for (const Status& status : world_.everywhere([this](uint32_t rank, Request**request) {
         return world_.engine(rank).job_calls().close(request);
       })) {
    if (!status.ok()) return "close: " + status.message();
  }
  return "";
}

std::string Script::post(Played* step, bool read_all) {
  std::vector<uint32_t> order(world_.size());
  for (uint32_t rank = 0; rank < order.size(); ++rank) order[rank] = rank;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
  for (const uint32_t rank : order) {
    std::string wrong = post_rank(step, rank, read_all);
    if (!wrong.empty()) return "rank " + std::to_string(rank) + ": " + wrong;
  }
  return "";
}

std::string Script::post_rank(Played* step, uint32_t rank, bool read_all) {
  Engine& engine = world_.engine(rank);
  uint64_t number = 0;
  Status begun = engine.step_calls().begin(&number);
  if (begun.code() == PARALLAX_STATE) {
    // Two steps are ending: the older one must be over first.
    if (!world_.run_until([&] { return engine.window().finished() + 2 >= step->number; })) {
      return "step_begin waits for ever: " + begun.message();
    }
    begun = engine.step_calls().begin(&number);
  }
  if (!begun.ok()) return "step_begin: " + begun.message();
  if (number != step->number) return "step_begin gave another number";
  RankStep& mine = step->ranks[rank];
  std::string wrong;
  const bool contributions_first = random_.chance(30);
  if (contributions_first) wrong = post_contributions(step, rank, true);
  if (read_all && wrong.empty()) wrong = post_read_all(step, rank);
  for (uint64_t i = read_all ? 0 : random_.below(4); i > 0 && wrong.empty(); --i) {
    Pull& pull = mine.pulls.emplace_back();
    for (uint32_t variable = 0; variable < options_.variables.size(); ++variable) {
      if (!managed(variable) || random_.chance(35)) continue;
      const uint64_t rows_max = options_.variables[variable].rows_max;
      add_pull_slice(&pull, variable, draw_dtype(variable),
                     draw_ids(variable, random_.below(rows_max + 1)));
    }
    wrong = post_pull(step, rank, &pull);
  }
  if (!contributions_first && wrong.empty()) wrong = post_contributions(step, rank, true);
  if (wrong.empty()) wrong = post_contributions(step, rank, false);
  if (!wrong.empty()) return wrong;
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  options.rates = step->end.rates.data();
  options.rates_count = static_cast<uint32_t>(step->end.rates.size());
  options.learning_rate = options.rates_count > 0 ? 0 : step->end.learning_rate;
  options.clip_norm = step->end.clip_norm;
  options.absent = mine.absent;
  options.found_inf = step->end.found_inf && (rank == step->number % world_.size());
  const Status ended = engine.step_calls().end(number, options, &mine.end);
  world_.shuffle(random_.below(6));
  return ended.ok() ? "" : "step_end: " + ended.message();
}

parallax_slice_t Script::slice_of(uint32_t variable, const std::vector<int64_t>& row_ids,
                                  std::deque<std::vector<int32_t>>* narrow, Numbers* values,
                                  bool dense) {
  parallax_slice_t slice = {};
  slice.size = sizeof slice;
  slice.variable = variable;
  slice.values = values->data();
  const bool own = values->dtype() == options_.variables[variable].dtype;
  slice.as_dtype = own && random_.chance(50) ? 0 : PARALLAX_AS(values->dtype());
  if (dense || !ids(variable)) return slice;
  slice.form = PARALLAX_FORM_ROWS;
  slice.row_count = row_ids.size();
  slice.ids = row_ids.data();
  if (random_.chance(30)) {
    slice.ids_i32 = narrow->emplace_back(row_ids.begin(), row_ids.end()).data();
    slice.ids = nullptr;
  }
  return slice;
}

void Script::add_pull_slice(Pull* pull, uint32_t variable, uint32_t dtype,
                            std::vector<int64_t> row_ids) {
  const parallax_variable_t& shape = options_.variables[variable];
  pull->ids.push_back(ids(variable) ? std::move(row_ids) : std::vector<int64_t>());
  const uint64_t rows = ids(variable) ? pull->ids.back().size() : shape.rows;
  pull->values.emplace_back(dtype, rows * shape.row_elements, -77);
  pull->slices.push_back(
      slice_of(variable, pull->ids.back(), &pull->narrow_ids, &pull->values.back()));
}

std::string Script::post_pull(Played* step, uint32_t rank, Pull* pull) {
  const Status status =
      world_.engine(rank).step_calls().pull(step->number, pull->slices, &pull->request);
  world_.shuffle(random_.below(6));
  return status.ok() ? "" : "pull: " + status.message();
}

std::string Script::post_read_all(Played* step, uint32_t rank) {
  for (uint32_t variable = 0; variable < options_.variables.size(); ++variable) {
    if (!managed(variable)) continue;
    const parallax_variable_t& shape = options_.variables[variable];
    const uint64_t chunk = ids(variable) ? shape.rows_max : shape.rows;
    for (uint64_t row = 0; row < shape.rows; row += chunk) {
      std::vector<int64_t> row_ids;
      for (uint64_t i = row; i < std::min(shape.rows, row + chunk); ++i) {
        row_ids.push_back(static_cast<int64_t>(i));
      }
      Pull& pull = step->ranks[rank].pulls.emplace_back();
      // As the master has them.
      add_pull_slice(&pull, variable, dtype_of(sum_type_of(shape.dtype)), std::move(row_ids));
      const std::string wrong = post_pull(step, rank, &pull);
      if (!wrong.empty()) return wrong;
    }
  }
  return "";
}

// All pushes, or all reduces, in one call or several.
std::string Script::post_contributions(Played* step, uint32_t rank, bool pushes) {
  std::vector<std::vector<uint32_t>> calls(1);
  for (uint32_t variable = 0; variable < options_.variables.size(); ++variable) {
    if (managed(variable) != pushes || !step->contributions[variable][rank].contributed) continue;
    if (!calls.back().empty() && random_.chance(40) && !is_whole(*step, rank)) calls.emplace_back();
    calls.back().push_back(variable);
  }
  for (const std::vector<uint32_t>& variables : calls) {
    RankStep& mine = step->ranks[rank];
    Call& call = (pushes ? mine.pushes : mine.reduces).emplace_back();
    for (const uint32_t variable : variables) {
      Contribution& contribution = step->contributions[variable][rank];
      uint64_t first = 0;
      if (options_.variables[variable].accumulate != 0 && !contribution.dense &&
          random_.chance(60)) {
        const std::string wrong = post_parts(step, rank, variable, &first);
        if (!wrong.empty()) return wrong;
        // Some leave the last one to step_end.
        if (pushes && ids(variable) && first == contribution.ids.size() && random_.chance(50))
          continue;
      }
      const SeededRandom tied = SeededRandom(options_.world.seed).fork(800 + step->number);
      add_contribution(&call, variable, &contribution, first, tied.fork(rank).fork(variable));
    }
    if (call.slices.empty()) {
      (pushes ? mine.pushes : mine.reduces).pop_back();
      continue;
    }
    Engine& engine = world_.engine(rank);
    const Status status =
        pushes ? engine.step_calls().push(step->number, call.slices, &call.request)
               : engine.step_calls().reduce(step->number, call.slices, &call.request);
    if (!status.ok()) return (pushes ? "push: " : "reduce: ") + status.message();
    world_.shuffle(random_.below(6));
  }
  return "";
}

// The first rows of a contribution, in calls of their own; before a dense one, zeros.
std::string Script::post_parts(Played* step, uint32_t rank, uint32_t variable, uint64_t* first) {
  const Contribution& contribution = step->contributions[variable][rank];
  for (uint64_t i = 1 + random_.below(3); i > 0; --i) {
    Call& part = step->ranks[rank].parts.emplace_back();
    if (ids(variable)) {
      const uint64_t end = *first + random_.below(contribution.ids.size() - *first + 1);
      add_rows(&part, variable, contribution, *first, end);
      *first = end;
    } else {
      Numbers& zeros = part.values.emplace_back(contribution.dtype, contribution.values.size());
      part.slices.push_back(slice_of(variable, contribution.ids, &part.narrow_ids, &zeros));
    }
    part.slices.back().more = 1;
    Engine& engine = world_.engine(rank);
    const Status status =
        managed(variable) ? engine.step_calls().push(step->number, part.slices, &part.request)
                          : engine.step_calls().reduce(step->number, part.slices, &part.request);
    if (!status.ok()) return "part: " + status.message();
    world_.shuffle(random_.below(4));
  }
  return "";
}

void Script::add_rows(Call* call, uint32_t variable, const Contribution& contribution,
                      uint64_t first, uint64_t end) {
  const uint64_t width = options_.variables[variable].row_elements;
  const auto begin = contribution.ids.begin();
  call->variables.push_back(variable);
  call->ids.emplace_back(begin + static_cast<ptrdiff_t>(first),
                         begin + static_cast<ptrdiff_t>(end));
  Numbers& values = call->values.emplace_back(
      contribution.dtype,
      std::span(contribution.values).subspan(first * width, (end - first) * width));
  call->slices.push_back(slice_of(variable, call->ids.back(), &call->narrow_ids, &values));
}

// In one slice of each form; or in several, which `tied` draws, by chances of its own, so that a
// seed plays the rest as it does without.
void Script::add_contribution(Call* call, uint32_t variable, Contribution* contribution,
                              uint64_t first, SeededRandom tied) {
  const bool several = tied.chance(options_.tied_percent);
  const auto add_dense = [&](std::span<const double> numbers) {
    call->variables.push_back(variable);
    Numbers& values = call->values.emplace_back(contribution->dtype, numbers);
    call->slices.push_back(slice_of(variable, contribution->ids, &call->narrow_ids, &values, true));
  };
  const auto add_all_rows = [&] {
    while (several && tied.chance(60)) {
      const uint64_t end = first + tied.below(contribution->ids.size() - first + 1);
      add_rows(call, variable, *contribution, first, end);
      first = end;
    }
    add_rows(call, variable, *contribution, first, contribution->ids.size());
  };
  if (!ids(variable)) add_dense(contribution->values);
  if (!ids(variable) && several) add_dense(std::vector<double>(contribution->values.size()));
  if (!ids(variable)) return;
  contribution->rows_first = random_.chance(50);
  if (contribution->rows && contribution->rows_first) add_all_rows();
  if (contribution->dense) add_dense(contribution->dense_values);
  if (contribution->rows && !contribution->rows_first) add_all_rows();
}

// ---- checks

std::string Script::check(Played* step) {
  for (uint32_t rank = 0; rank < world_.size(); ++rank) {
    const std::vector<Request*> requests = step->ranks[rank].requests();
    if (!world_.run_until_done(requests)) {
      std::string missing;
      for (const Request* request : requests) {
        if (!request->done()) missing = world_.engine(rank).reports().missing(*request).message();
      }
      return "rank " + std::to_string(rank) + " waits for ever: " + missing;
    }
    for (const Request* request : requests) {
      if (!request->status.ok()) return "request: " + request->status.message();
    }
    const std::string wrong = check_rank(*step, rank);
    if (!wrong.empty()) {
      return "result of step " + std::to_string(step->number) + ", rank " + std::to_string(rank) +
             ": " + wrong;
    }
  }
  naive_.commit(step->contributions, step->end);
  for (uint32_t rank = 0; rank < world_.size(); ++rank) {
    const std::string wrong = check_info(*step, step->ranks[rank].end->info);
    if (!wrong.empty()) return wrong;
    for (Request* request : step->ranks[rank].requests()) {
      const Status released = world_.engine(rank).release(request);
      if (!released.ok()) return "release: " + released.message();
    }
    for (const VariablePlan& plan : world_.engine(rank).group().plan()) {
      plans_seen_.insert(placement_name(plan.placement) + " " + method_name(plan.method));
    }
  }
  return "";
}

std::string Script::check_rank(const Played& step, uint32_t rank) {
  for (const Pull& pull : step.ranks[rank].pulls) {
    const std::string wrong = check_pull(pull);
    if (!wrong.empty()) return wrong;
  }
  for (const Call& reduce : step.ranks[rank].reduces) {
    const std::string wrong = check_reduce(step, reduce);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string Script::compare(std::span<const double> got, std::span<const double> want) {
  for (const double number : got) add_to_digest(std::bit_cast<uint64_t>(number));
  return differ(got, want);
}

std::string Script::check_pull(const Pull& pull) {
  for (size_t i = 0; i < pull.slices.size(); ++i) {
    const uint32_t variable = pull.slices[i].variable;
    const uint64_t width = options_.variables[variable].row_elements;
    const std::vector<double>& value = naive_.value(variable);
    std::vector<double> want;
    if (!ids(variable)) want = value;
    for (const int64_t id : pull.ids[i]) {
      for (uint64_t column = 0; column < width; ++column) {
        want.push_back(id < 0 ? 0.0 : value[static_cast<uint64_t>(id) * width + column]);
      }
    }
    for (double& number : want) number = rounded(pull.values[i].dtype(), number);
    const std::string wrong = compare(pull.values[i].all(), want);
    if (wrong.empty()) continue;
    return "pull of '" + std::string(options_.variables[variable].name) + "' as " +
           dtype_name(pull.values[i].dtype()) + ": " + wrong;
  }
  return "";
}

std::string Script::check_reduce(const Played& step, const Call& reduce) {
  for (size_t i = 0; i < reduce.variables.size(); ++i) {
    const uint32_t variable = reduce.variables[i];
    const std::vector<Contribution>& contributions = step.contributions[variable];
    const uint32_t dtype = reduce.values[i].dtype();
    std::vector<double> sum = naive_.reduced(variable, contributions);
    for (double& number : sum) number = rounded(dtype, number);
    const std::string name = "reduce of '" + std::string(options_.variables[variable].name) +
                             "' as " + dtype_name(dtype) + ": ";
    if (reduce.slices[i].form == PARALLAX_FORM_DENSE) {
      const std::string wrong = compare(reduce.values[i].all(), sum);
      if (!wrong.empty()) return name + wrong;
      continue;
    }
    const RowsResult& got = reduce.request->rows[i];
    const std::vector<uint32_t> ranks = naive_.ranks_of_rows(variable, contributions);
    std::vector<int64_t> rows;
    for (size_t row = 0; row < ranks.size(); ++row) {
      if (ranks[row] > 0) rows.push_back(static_cast<int64_t>(row));
    }
    if (got.ids != rows) {
      return name + std::to_string(got.ids.size()) + " rows, the union has " +
             std::to_string(rows.size());
    }
    std::vector<double> want;
    const uint64_t width = options_.variables[variable].row_elements;
    for (const int64_t id : rows) {
      const auto row = sum.begin() + static_cast<ptrdiff_t>(id * width);
      want.insert(want.end(), row, row + static_cast<ptrdiff_t>(width));
    }
    const std::string wrong =
        compare(Numbers::read_all(dtype, got.values.data(), rows.size() * width), want);
    if (!wrong.empty()) return name + wrong;
    if (got.values.size() != want.size() * bytes_of_dtype(dtype)) return name + "more bytes";
  }
  return "";
}

std::string Script::check_info(const Played& step, const parallax_step_info_t& info) {
  add_to_digest(std::bit_cast<uint64_t>(info.gradient_norm));
  add_to_digest(std::bit_cast<uint64_t>(info.clip_scale));
  if (info.size == sizeof info && info.step == step.number &&
      info.committed == (step.end.found_inf ? 0u : 1u) &&
      info.contributors == step.end.contributors && info.gradient_norm == naive_.gradient_norm() &&
      info.clip_scale == naive_.clip_scale()) {
    return "";
  }
  char text[256];
  std::snprintf(text, sizeof text,
                "step %llu: committed %u contributors %u norm %a scale %a, not %u %a %a",
                static_cast<unsigned long long>(info.step), info.committed, info.contributors,
                info.gradient_norm, info.clip_scale, step.end.contributors, naive_.gradient_norm(),
                naive_.clip_scale());
  return text;
}

}  // namespace parallax::testkit
