// SPDX-License-Identifier: Apache-2.0
// The steps of one line: fill, barrier, step_begin, the operation, step_end.
#include "tool/bench/measure.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "tool/bench/check.h"
#include "tool/bench/rule_model.h"
#include "tool/bench/workload.h"
#include "tool/bench/zipf.h"

namespace parallax::tool::bench {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// Of all threads of this process.
double processor_us() {
  timespec now = {};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) != 0) {
    throw std::system_error(errno, std::generic_category(), "the process's processor time");
  }
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// The plan by form stays for as long as any run lasts.
constexpr uint32_t kNeverSettled = uint32_t{1} << 30;
// Whole numbers up to here are exact in float, which is what half and bfloat16 are summed in, too.
constexpr double kExactMax = 1 << 24;
constexpr uint32_t kStepsToSettle = 4;
// Steps until a settled plan is announced and in force, with room.
constexpr uint32_t kStepsUntilSettled = 3 * kStepsToSettle;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// What a rank tells the others of its measurement.
struct Figures {
  uint64_t wrong = 0;
  uint64_t wire_bytes = 0, local_bytes = 0;
};

// A variable of the job and what a step does with it.
struct Operand {
  uint64_t shift = 0;  // which one it is
  uint32_t variable = 0;
  // What goes in and comes out; what is given; pushpull: the negative of that.
  std::vector<std::byte> values, given, taken;
  std::optional<RuleModel> model;  // pushpull, if it is checked
};

class Run {
 public:
  Run(const Options& options, const Point& point, Group& group)
      : options_(options),
        point_(point),
        group_(group),
        sparse_(is_sparse(options.operation)),
        divisor_(point.kind.reduction == PARALLAX_SUM ? 1 : group.world()),
        job_(job_options()),
        operands_(options.operations) {}

  Line run() {
    try {
      return measured();
    } catch (const Unsupported&) {
      job_.close();  // every rank finds so, and none is to take the others for dead
      throw;
    }
  }

 private:
  Line measured() {
    prepare();
    for (uint32_t i = 0; i < options_.warmups; ++i) step(false);
    run_until_settled();
    job_.barrier();
    const Figures before = figures();
    for (uint32_t i = 0; i < options_.iterations; ++i) {
      const Times times = step(false);
      times_us_.push_back(times.time / options_.operations);
      steps_us_.push_back(times.whole / options_.operations);
      cpu_us_.push_back(times.cpu / options_.operations);
    }
    job_.barrier();
    const Figures after = figures();
    for (uint32_t i = 0; i < options_.checks; ++i) step(true);
    own_ = {.wrong = wrong_,
            .wire_bytes = after.wire_bytes - before.wire_bytes,
            .local_bytes = after.local_bytes - before.local_bytes};
    Line line;
    line.method = method();
    job_.barrier();
    job_.close();
    summarize(&line);
    return line;
  }

  parallax_options_t job_options() const {
    parallax_options_t options = group_.job_options();
    options.plan_after_steps = settles() ? kStepsToSettle : kNeverSettled;
    if (options_.operation == Operation::kPushPull) options.plan_mode = options_.plan;
    return options;
  }

  // What is measured then is the plan that the planner ends with.
  bool settles() const {
    return options_.operation == Operation::kPushPull &&
           (options_.plan == PARALLAX_PLAN_AUTO || options_.plan == PARALLAX_PLAN_AR);
  }

  void prepare() {
    if (sparse_) exchange_ids();
    for (size_t i = 0; i < operands_.size(); ++i) {
      operands_[i].shift = i;
      fill(operands_[i]);
      operands_[i].variable = register_variable(i);
    }
    job_.commit();
  }

  void fill(Operand& operand) {
    operand.values.resize(point_.bytes);
    if (!sparse_) {
      operand.given.resize(point_.bytes);
      fill_dense({.dtype = point_.kind.dtype,
                  .rank = group_.rank(),
                  .count = point_.count,
                  .shift = operand.shift},
                 operand.given.data());
      return;
    }
    RowsFill rows = {.dtype = point_.kind.dtype,
                     .rank = group_.rank(),
                     .ids = ids_,
                     .width = options_.width,
                     .shift = operand.shift};
    if (options_.operation != Operation::kPushPull) {
      fill_rows(rows, operand.values.data());
      return;
    }
    operand.given.resize(point_.bytes);
    fill_rows(rows, operand.given.data());
    rows.sign = -1;
    operand.taken.resize(point_.bytes);
    fill_rows(rows, operand.taken.data());
    if (options_.checks == 0) return;
    const RuleModelOptions model = {.rule = options_.rule,
                                    .dtype = point_.kind.dtype,
                                    .width = options_.width,
                                    .divisor = divisor_,
                                    .shift = operand.shift};
    operand.model.emplace(model, ids_, union_[0]);
  }

  // Every rank has to know all rows to check, and rank 0 to count; drawn by each, so that they
  // cannot differ by a machine's libm.
  void exchange_ids() {
    ids_ = draw_ids(options_.table_rows, options_.skew, options_.seed, group_.rank(), point_.rows);
    std::vector<int64_t> all(point_.rows * group_.world());
    group_.allgather(ids_.data(), all.data(), point_.rows * sizeof(int64_t));
    std::vector<std::vector<int64_t>> by_rank;
    for (auto at = all.begin(); at != all.end(); at += static_cast<ptrdiff_t>(point_.rows)) {
      by_rank.emplace_back(at, at + static_cast<ptrdiff_t>(point_.rows));
    }
    union_.emplace_back(by_rank);
    if (options_.checks == 0) return;
    const double largest = union_[0].largest_sum();
    if (largest > kExactMax) {
      throw Unsupported(
          "ranks give one row so often that its sums are not exact and cannot be "
          "checked; lower --skew or the size, or leave the check out with -c 0");
    }
  }

  uint32_t register_variable(size_t number) {
    const std::string name = "bench." + std::to_string(number);
    parallax_variable_t variable = {};
    variable.size = sizeof variable;
    variable.name = name.c_str();
    variable.dtype = point_.kind.dtype;
    variable.reduction = point_.kind.reduction;
    variable.tag = sparse_ ? PARALLAX_SPARSE : PARALLAX_DENSE;
    variable.rows = sparse_ ? options_.table_rows : point_.count;
    variable.row_elements = sparse_ ? options_.width : 1;
    variable.rows_max = point_.rows;
    if (options_.operation == Operation::kReduceRows) variable.method = PARALLAX_METHOD_REDUCE_ROWS;
    if (options_.operation == Operation::kPushPull) {
      variable.rule = options_.rule;
      if (options_.rule == PARALLAX_RULE_MOMENTUM) variable.momentum = kMomentum;
      // As the model begins.
      if (options_.rule == PARALLAX_RULE_FTRL) variable.initial_accumulator_value = PARALLAX_ZERO;
    }
    return job_.add(variable);
  }

  // Of every operand, one call's.
  const parallax_slice_t* slices(std::vector<std::byte> Operand::*buffer) {
    slices_.clear();
    for (Operand& operand : operands_) {
      parallax_slice_t& slice = slices_.emplace_back();
      slice.size = sizeof slice;
      slice.variable = operand.variable;
      slice.values = (operand.*buffer).data();
      if (!sparse_) continue;
      slice.form = PARALLAX_FORM_ROWS;
      slice.ids = ids_.data();
      slice.row_count = ids_.size();
    }
    return slices_.data();
  }

  // Of all operations of a step.
  struct Times {
    double time, whole, cpu;
  };

  Times step(bool check) {
    if (!sparse_) {  // in place: the gradient goes in, the aggregate comes out
      for (Operand& operand : operands_) operand.values = operand.given;
    }
    job_.barrier();
    return options_.operation == Operation::kPushPull ? push_pull_step(check) : reduce_step(check);
  }

  Times reduce_step(bool check) {
    Waitable reduce("reduce");
    const double cpu = processor_us();
    const auto start = Clock::now();
    const uint64_t number = begin_step();
    expect(parallax_reduce(job_.get(), number, slices(&Operand::values), operands_.size(),
                           reduce.out()),
           "reduce");
    reduce.wait();
    const auto reduced = Clock::now();
    const double cpu_reduced = processor_us();
    if (check) check_reduced(reduce.get());
    const auto checked = Clock::now();
    end_step(number);
    const auto end = Clock::now();
    reduce.release();
    return {microseconds(reduced - start), microseconds(end - checked + (reduced - start)),
            cpu_reduced - cpu};
  }

  Times push_pull_step(bool check) {
    Waitable pull("pull"), push("push");
    const size_t count = operands_.size();
    const double cpu = processor_us();
    const auto start = Clock::now();
    const uint64_t number = begin_step();
    expect(parallax_pull(job_.get(), number, slices(&Operand::values), count, pull.out()), "pull");
    pull.wait();
    // Steps take turns to add and to take away, so that values stay small.
    const parallax_slice_t* const given =
        slices(number % 2 == 1 ? &Operand::given : &Operand::taken);
    expect(parallax_push(job_.get(), number, given, count, push.out()), "push");
    end_step(number);
    push.wait();
    const double time = microseconds(Clock::now() - start);
    const double cpu_time = processor_us() - cpu;
    if (check) {
      for (Operand& operand : operands_) check_pulled(operand, number);
    }
    return {time, time, cpu_time};
  }

  uint64_t begin_step() {
    uint64_t number = 0;
    expect(parallax_step_begin(job_.get(), &number), "step_begin");
    return number;
  }

  void end_step(uint64_t number) {
    Waitable end("step_end");
    parallax_step_end_options_t with = {};
    with.size = sizeof with;
    with.learning_rate = kLearningRate;
    expect(parallax_step_end(job_.get(), number, &with, end.out()), "step_end");
    end.wait();
  }

  void check_pulled(Operand& operand, uint64_t number) {
    operand.model->advance(number - 1);
    wrong_ += count_wrong_pulled(point_.kind.dtype, ids_, operand.values.data(), options_.width,
                                 *operand.model);
  }

  void check_reduced(parallax_request_t* request) {
    for (const Operand& operand : operands_) {
      if (sparse_) {
        check_rows(request, operand);
        continue;
      }
      const DenseSum sum(group_.world());
      const auto expected = [&](uint64_t element) { return sum(element + operand.shift); };
      wrong_ +=
          count_wrong(point_.kind.dtype, operand.values.data(), point_.count, divisor_, expected);
    }
  }

  void check_rows(parallax_request_t* request, const Operand& operand) {
    ReducedRows rows = {.dtype = point_.kind.dtype,
                        .width = options_.width,
                        .divisor = divisor_,
                        .shift = operand.shift};
    const void* values = nullptr;
    expect(parallax_request_rows(request, operand.shift, &rows.ids, &values, &rows.count),
           "rows of the reduce");
    rows.values = static_cast<const std::byte*>(values);
    wrong_ += count_wrong_rows(rows, union_[0]);
  }

  void run_until_settled() {
    if (!settles()) return;
    for (uint32_t i = 0; i < kStepsUntilSettled; ++i) step(false);
    job_.barrier();  // no rank ends the job while another is in a step
  }

  // The variables are alike; were they moved in different ways, all are named.
  std::string method() {
    const nlohmann::json report = job_.report(PARALLAX_REPORT_PLAN);
    std::string methods;
    for (const nlohmann::json& plan : report["variables"]) {
      const std::string method = plan["method"];
      if (methods.find(method) != std::string::npos) continue;
      methods += (methods.empty() ? "" : "+") + method;
    }
    return methods;
  }

  Figures figures() {
    const nlohmann::json stats = job_.report(PARALLAX_REPORT_STATS);
    return {.wrong = 0,
            .wire_bytes = stats["wire"]["sent_bytes"],
            .local_bytes = stats["local"]["sent_bytes"]};
  }

  double time_of(const std::vector<double>& of_ranks) const {
    switch (options_.rank_time) {
      case RankTime::kRank0:
        return of_ranks[0];
      case RankTime::kLeast:
        return *std::min_element(of_ranks.begin(), of_ranks.end());
      case RankTime::kLargest:
        return *std::max_element(of_ranks.begin(), of_ranks.end());
      case RankTime::kAverage:
        break;
    }
    return mean(of_ranks);
  }

  // Mean over iterations of an iteration's time; *all gets every rank's, where it is not null.
  double gather_times(const std::vector<double>& mine, std::vector<double>* all) {
    std::vector<double> times(mine.size() * group_.world());
    group_.allgather(mine.data(), times.data(), mine.size() * sizeof(double));
    std::vector<double> iterations, of_ranks(group_.world());
    for (size_t i = 0; i < mine.size(); ++i) {
      for (uint32_t rank = 0; rank < group_.world(); ++rank) {
        of_ranks[rank] = times[rank * mine.size() + i];
      }
      iterations.push_back(time_of(of_ranks));
    }
    if (all != nullptr) *all = std::move(times);
    return mean(iterations);
  }

  void summarize(Line* line) {
    std::vector<Figures> figures(group_.world());
    group_.allgather(&own_, figures.data(), sizeof own_);
    for (const Figures& each : figures) {
      line->wrong += each.wrong;
      line->wire_bytes += each.wire_bytes;
      line->local_bytes += each.local_bytes;
    }
    const uint64_t operations = uint64_t{options_.iterations} * options_.operations;
    line->wire_bytes /= operations * group_.world();
    line->local_bytes /= operations * group_.world();
    line->point = point_;
    if (sparse_) {
      line->union_rows = union_[0].size();
      for (uint32_t rank = 0; rank < group_.world(); ++rank) {
        line->distinct_rows += union_[0].distinct_of(rank);
      }
      line->distinct_rows /= group_.world();
    }
    std::vector<double> all;
    line->time_us = gather_times(times_us_, &all);
    line->step_us = gather_times(steps_us_, nullptr);
    line->cpu_us = gather_times(cpu_us_, nullptr);
    line->p50_us = quantile(all, 0.5);
    line->p99_us = quantile(std::move(all), 0.99);
    line->algorithm_gb_s = static_cast<double>(point_.bytes) / (line->time_us * 1e3);
    line->bus_gb_s =
        line->algorithm_gb_s * received_share(options_.operation, group_.world(), *line);
  }

  const Options& options_;
  const Point& point_;
  Group& group_;
  bool sparse_;
  double divisor_;
  Job job_;
  std::vector<int64_t> ids_;
  std::vector<RowUnion> union_;  // one, for operations on rows
  std::vector<Operand> operands_;
  std::vector<parallax_slice_t> slices_;
  std::vector<double> times_us_, steps_us_, cpu_us_;
  uint64_t wrong_ = 0;
  Figures own_;
};

}  // namespace

// A dense reduce leaves the aggregate in the gradient's buffer; rows come back in another.
bool is_in_place(Operation operation) { return !is_sparse(operation); }

double received_share(Operation operation, uint32_t ranks, const Line& line) {
  const double n = ranks;
  if (operation == Operation::kAllreduce) return 2 * (n - 1) / n;
  const double rows = static_cast<double>(line.point.rows);
  const double own = static_cast<double>(line.distinct_rows) / rows;
  const double all = static_cast<double>(line.union_rows) / rows;
  switch (operation) {
    case Operation::kAllgatherv:
      return (n - 1) * own;
    case Operation::kReduceRows:
      return (n - 1) / n * (own + all);
    default:
      return (n - 1) / n * 2 * own;
  }
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

Line measure(const Options& options, const Point& point, Group& group) {
  return Run(options, point, group).run();
}

}  // namespace parallax::tool::bench
