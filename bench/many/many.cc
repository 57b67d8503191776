// SPDX-License-Identifier: Apache-2.0
// A job of many small variables: what a step costs by the number of variables, not by their bytes.
// Each rank is a process, through parallax.h alone, so that the same program measures any build of
// the library that the loader finds; every value of the first and the last step is checked. Times
// are rank 0's. Start it by `parallax run`; bench/many/compare.py compares two builds.
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "../calls.h"
#include "meter.h"
#include "numbers.h"
#include "parallax/parallax.h"

namespace parallax::many {
namespace {

constexpr size_t kSlicesPerCall = PARALLAX_SLICES_MAX;
constexpr double kMessageBytes = 60 << 10;  // that a message between hosts may have

struct Shape {
  uint32_t variables = 1000;
  uint32_t rows = 1000;  // of a sparse variable
  uint32_t given = 8;    // rows of them that a rank gives in a step; a dense one has so many
  uint32_t width = 8;    // elements of a row
  uint32_t steps = 30;
  uint32_t warmups = 12;  // more than the 8 after which plans are made by what was measured
  uint32_t batch = kSlicesPerCall;  // variables in one call
  bool sparse = true;
  bool managed = false;    // push and pull, not reduce
  bool is_bf16 = false;    // else f32
  bool written = false;    // commit writes the tables' zeros
  bool wait_each = false;  // for every call, before the next
};

using bench::expect;
using bench::fail;

// What parallax_commit took of a rank.
struct CommitCost {
  int64_t wall_us = 0, cpu_us = 0;
  int64_t before_kib = 0, after_kib = 0;  // of memory
};

// Waits for all, and releases them.
void finish(std::vector<parallax_request_t*>* requests) {
  expect(parallax_wait(requests->data(), requests->size(), PARALLAX_WAIT_DEFAULT), "wait");
  for (parallax_request_t* each : *requests) expect(parallax_request_release(each), "release");
  requests->clear();
}

class Ranks {
 public:
  explicit Ranks(const Shape& shape)
      : shape_(shape), values_(shape.is_bf16), pulled_(shape.is_bf16) {
    parallax_options_t options = {};
    options.size = sizeof options;
    options.rendezvous = "env";
    expect(parallax_open(&options, &job_), "open");
    register_all();
    commit();
    parallax_job_info_t info = {};
    // What every version fills; the struct has grown since.
    info.size = offsetof(parallax_job_info_t, hosts) + sizeof info.hosts;
    expect(parallax_query(job_, &info), "query");
    rank_ = info.rank;
    world_ = info.world;
    hosts_ = info.hosts;
    // While all ranks are here, since what others map meanwhile changes this one's share.
    all(0);
    cost_.after_kib = resident_kib();
    costs_ = all(cost_);
    prepare();
  }

  // A step of which this rank waits for everything; its time in us.
  int64_t step(bool check) {
    const int64_t start_us = now_us();
    expect(parallax_step_begin(job_, &step_), "step_begin");
    if (shape_.managed) {
      for_calls(pulls_, parallax_pull, "pull");
      finish(&requests_);
      if (check) check_pulled();
    }
    for_calls(gradients_, shape_.managed ? parallax_push : parallax_reduce, "push or reduce");
    parallax_step_end_options_t options = {};
    options.size = sizeof options;
    options.learning_rate = 1;
    requests_.emplace_back();
    expect(parallax_step_end(job_, step_, &options, &requests_.back()), "step_end");
    expect(parallax_wait(requests_.data(), requests_.size(), PARALLAX_WAIT_DEFAULT), "wait");
    const int64_t took_us = now_us() - start_us;
    if (check && !shape_.managed) check_reduced();
    finish(&requests_);
    if (!shape_.managed && !shape_.sparse) fill_gradients();  // the sums lie where they were
    return took_us;
  }

  Sent sent() const { return sent_by(job_); }
  template <typename T>
  std::vector<T> all(const T& mine) const {
    return of_all_ranks(job_, world_, mine);
  }

  void close() { expect(parallax_close(job_), "close"); }
  uint32_t rank() const { return rank_; }
  uint32_t world() const { return world_; }
  uint32_t hosts() const { return hosts_; }
  // Of managed variables, which alone have memory; one copy.
  int64_t tables_kib() const {
    if (!shape_.managed) return 0;
    const uint64_t numbers =
        uint64_t{shape_.variables} * shape_.width * (shape_.sparse ? shape_.rows : shape_.given);
    return static_cast<int64_t>(numbers * (shape_.is_bf16 ? 2 : 4) >> 10);
  }
  // Of all ranks.
  const std::vector<CommitCost>& commit_costs() const { return costs_; }

 private:
  using Call = decltype(&parallax_push);

  static int64_t now_us() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  }

  void commit() {
    cost_.before_kib = resident_kib();
    const int64_t start_us = now_us(), start_cpu_us = cpu_us();
    expect(parallax_commit(job_), "commit");
    cost_.wall_us = now_us() - start_us;
    cost_.cpu_us = cpu_us() - start_cpu_us;
  }

  void register_all() {
    for (uint32_t at = 0; at < shape_.variables; ++at) {
      const std::string name = "variable" + std::to_string(at);
      parallax_variable_t variable = {};
      variable.size = sizeof variable;
      variable.name = name.c_str();
      variable.rows = shape_.sparse ? shape_.rows : shape_.given;
      variable.row_elements = shape_.width;
      variable.dtype = shape_.is_bf16 ? PARALLAX_BF16 : PARALLAX_F32;
      if (shape_.is_bf16) variable.storage_dtype = PARALLAX_AS(PARALLAX_BF16);
      variable.tag = shape_.sparse ? PARALLAX_SPARSE : PARALLAX_DENSE;
      variable.reduction = PARALLAX_SUM;
      if (shape_.managed && shape_.written) variable.init = PARALLAX_INIT_UNIFORM;  // 0 to 0
      variable.rule = shape_.managed ? PARALLAX_RULE_SUM : PARALLAX_RULE_NONE;
      variable.rows_max = shape_.sparse ? shape_.given : 0;
      uint32_t id = 0;
      expect(parallax_register(job_, &variable, &id), "register");
    }
  }

  size_t elements() const { return size_t{shape_.given} * shape_.width; }

  // Row `at` of those that a rank gives of a variable: half are every rank's, half its own.
  int64_t id_of(uint32_t variable, uint32_t at, uint32_t rank) const {
    const uint32_t own = at % 2 == 0 ? 0 : rank + 1;
    return (at * 31 + variable + own * 257) % shape_.rows;
  }

  float value_of(uint32_t variable, uint32_t rank) const {
    return static_cast<float>(rank + 1 + variable % 7);
  }

  void prepare() {
    values_.resize(shape_.variables * elements());
    pulled_.resize(shape_.managed ? values_.size() : 0);
    if (shape_.sparse) ids_.resize(size_t{shape_.variables} * shape_.given);
    for (uint32_t each = 0; each < shape_.variables; ++each) {
      parallax_slice_t slice = {};
      slice.size = sizeof slice;
      slice.variable = each;
      slice.form = shape_.sparse ? PARALLAX_FORM_ROWS : PARALLAX_FORM_DENSE;
      if (shape_.sparse) {
        int64_t* const ids = ids_.data() + size_t{each} * shape_.given;
        for (uint32_t at = 0; at < shape_.given; ++at) ids[at] = id_of(each, at, rank_);
        slice.ids = ids;
        slice.row_count = shape_.given;
      }
      slice.values = values_.from(each * elements());
      gradients_.push_back(slice);
      if (!shape_.managed) continue;
      slice.values = pulled_.from(each * elements());
      pulls_.push_back(slice);
    }
    fill_gradients();
  }

  void fill_gradients() {
    for (uint32_t each = 0; each < shape_.variables; ++each) {
      values_.fill(each * elements(), elements(), value_of(each, rank_));
    }
  }

  void for_calls(const std::vector<parallax_slice_t>& slices, Call call, const char* name) {
    for (size_t at = 0; at < slices.size(); at += shape_.batch) {
      requests_.emplace_back();
      expect(call(job_, step_, slices.data() + at,
                  std::min<size_t>(shape_.batch, slices.size() - at), &requests_.back()),
             name);
      if (shape_.wait_each) {
        expect(parallax_wait(&requests_.back(), 1, PARALLAX_WAIT_DEFAULT), "wait");
      }
    }
  }

  // What all ranks give to row `id` of a variable in a step.
  float sum_of(uint32_t variable, int64_t id) const {
    float sum = 0;
    for (uint32_t rank = 0; rank < world_; ++rank) {
      if (!shape_.sparse) sum += value_of(variable, rank);
      for (uint32_t at = 0; shape_.sparse && at < shape_.given; ++at) {
        if (id_of(variable, at, rank) == id) sum += value_of(variable, rank);
      }
    }
    return sum;
  }

  // What a managed variable has of a row after so many steps: it is rounded after each.
  float held(float sum, uint64_t steps) const {
    float value = 0;
    for (uint64_t at = 0; at < steps; ++at) value = values_.rounded(value + sum);
    return value;
  }

  // `numbers`: a row's begin at `first`.
  template <typename Row>
  void check_row(uint32_t variable, int64_t id, const Row& numbers, size_t first,
                 float want) const {
    for (size_t at = first; at < first + shape_.width; ++at) {
      if (numbers[at] == want) continue;
      fail("variable " + std::to_string(variable) + ", row " + std::to_string(id) + ": " +
           std::to_string(numbers[at]) + " instead of " + std::to_string(want) + " in step " +
           std::to_string(step_));
    }
  }

  void check_pulled() const {
    for (uint32_t each = 0; each < shape_.variables; ++each) {
      for (uint32_t at = 0; at < shape_.given; ++at) {
        const int64_t id = shape_.sparse ? id_of(each, at, rank_) : at;
        check_row(each, id, pulled_, each * elements() + at * shape_.width,
                  held(sum_of(each, id), step_ - 1));
      }
    }
  }

  void check_reduced() const {
    for (uint32_t each = 0; each < shape_.variables; ++each) {
      if (!shape_.sparse) {
        for (uint32_t at = 0; at < shape_.given; ++at) {
          check_row(each, at, values_, each * elements() + at * shape_.width, sum_of(each, at));
        }
        continue;
      }
      const int64_t* ids = nullptr;
      const void* values = nullptr;
      uint64_t rows = 0;
      expect(parallax_request_rows(requests_[each / shape_.batch], each % shape_.batch, &ids,
                                   &values, &rows),
             "request_rows");
      std::vector<int64_t> want;
      for (uint32_t rank = 0; rank < world_; ++rank) {
        for (uint32_t at = 0; at < shape_.given; ++at) want.push_back(id_of(each, at, rank));
      }
      std::sort(want.begin(), want.end());
      want.erase(std::unique(want.begin(), want.end()), want.end());
      if (!std::equal(want.begin(), want.end(), ids, ids + rows)) {
        fail("variable " + std::to_string(each) + ": other rows than were given");
      }
      for (uint64_t row = 0; row < rows; ++row) {
        check_row(each, ids[row], static_cast<const float*>(values), row * shape_.width,
                  sum_of(each, ids[row]));
      }
    }
  }

  Shape shape_;
  parallax_job_t* job_ = nullptr;
  uint32_t rank_ = 0, world_ = 0, hosts_ = 0;
  uint64_t step_ = 0;
  CommitCost cost_;
  std::vector<CommitCost> costs_;
  std::vector<int64_t> ids_;
  Numbers values_, pulled_;
  std::vector<parallax_slice_t> gradients_, pulls_;
  std::vector<parallax_request_t*> requests_;
};

constexpr const char* kUsage =
    "usage: parallax run -n 2 -- parallax_many [options]\n"
    "  --variables N   variables of the job (1000)\n"
    "  --form F        sparse, by row ids, or dense (sparse)\n"
    "  --call C        reduce, or pushpull of managed variables (reduce)\n"
    "  --dtype T       f32, or bf16, of sparse managed variables (f32)\n"
    "  --init I        zeros, or written: zeros that commit writes, as a model's values (zeros)\n"
    "  --rows N        rows of a sparse variable (1000)\n"
    "  --given N       rows that a rank gives; a dense variable has so many (8)\n"
    "  --width N       elements of a row (8)\n"
    "  --batch N       variables in one call, at most 4096 (4096)\n"
    "  --wait W        each: for every call before the next; all: at the end (all)\n"
    "  --steps N       timed steps (30); --warmups N before them (12)\n";

uint32_t parse_count(const std::string& flag, const std::string& text) {
  uint32_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || value == 0) fail(flag + " " + text + "\n" + kUsage);
  return value;
}

Shape parse(int count, char** words) {
  Shape shape;
  for (int at = 1; at < count; at += 2) {
    const std::string flag = words[at];
    if (flag == "--help" || at + 1 == count) fail(kUsage);
    const std::string value = words[at + 1];
    if (flag == "--form" && (value == "sparse" || value == "dense")) {
      shape.sparse = value == "sparse";
    } else if (flag == "--call" && (value == "reduce" || value == "pushpull")) {
      shape.managed = value == "pushpull";
    } else if (flag == "--dtype" && (value == "f32" || value == "bf16")) {
      shape.is_bf16 = value == "bf16";
    } else if (flag == "--init" && (value == "zeros" || value == "written")) {
      shape.written = value == "written";
    } else if (flag == "--wait" && (value == "each" || value == "all")) {
      shape.wait_each = value == "each";
    } else if (flag == "--variables") {
      shape.variables = parse_count(flag, value);
    } else if (flag == "--rows") {
      shape.rows = parse_count(flag, value);
    } else if (flag == "--given") {
      shape.given = parse_count(flag, value);
    } else if (flag == "--width") {
      shape.width = parse_count(flag, value);
    } else if (flag == "--batch") {
      shape.batch = parse_count(flag, value);
    } else if (flag == "--steps") {
      shape.steps = parse_count(flag, value);
    } else if (flag == "--warmups") {
      shape.warmups = parse_count(flag, value);
    } else {
      fail(flag + " " + value + "\n" + kUsage);
    }
  }
  // Where sums of others are rounded on their way is not known here, and the check is exact.
  if (shape.is_bf16 && !(shape.sparse && shape.managed)) {
    fail("--dtype bf16: with --form sparse --call pushpull");
  }
  if (shape.batch > kSlicesPerCall) fail("--batch: at most " + std::to_string(kSlicesPerCall));
  return shape;
}

// Wall time of rank 0, CPU time of the rank that took the most, and the memory of all, there and
// after their steps; and how often what was added would hold the tables.
void print_commit(const std::vector<CommitCost>& all, const std::vector<int64_t>& after_steps_kib,
                  int64_t tables_kib) {
  CommitCost sum;
  for (const CommitCost& each : all) {
    sum.cpu_us = std::max(sum.cpu_us, each.cpu_us);
    sum.before_kib += each.before_kib;
    sum.after_kib += each.after_kib;
  }
  const int64_t stepped_kib =
      std::accumulate(after_steps_kib.begin(), after_steps_kib.end(), int64_t{0});
  std::printf(
      "\"commit_us\": %lld, \"commit_cpu_us\": %lld, \"opened_kib\": %lld, "
      "\"committed_kib\": %lld, \"stepped_kib\": %lld, \"tables_kib\": %lld, ",
      static_cast<long long>(all[0].wall_us), static_cast<long long>(sum.cpu_us),
      static_cast<long long>(sum.before_kib), static_cast<long long>(sum.after_kib),
      static_cast<long long>(stepped_kib), static_cast<long long>(tables_kib));
  if (tables_kib == 0) return;
  const auto copies = [&](int64_t kib) {
    return static_cast<double>(kib - sum.before_kib) / static_cast<double>(tables_kib);
  };
  std::printf("\"copies_committed\": %.2f, \"copies_stepped\": %.2f, ", copies(sum.after_kib),
              copies(stepped_kib));
}

// Of the rank that sends the most messages to other hosts, in each of so many steps.
void print_messages(const std::vector<Sent>& all, uint32_t hosts, double steps) {
  const Sent& most = *std::max_element(all.begin(), all.end(), [](const Sent& a, const Sent& b) {
    return a.wire_messages < b.wire_messages;
  });
  const double wire_bytes = static_cast<double>(most.wire_bytes) / steps;
  std::printf(
      "\"hosts\": %u, \"wire_messages\": %.1f, \"wire_bytes\": %.0f, \"messages_bound\": %.1f, "
      "\"local_messages\": %.1f, \"local_bytes\": %.0f",
      hosts, static_cast<double>(most.wire_messages) / steps, wire_bytes,
      4.0 * (hosts - 1) + wire_bytes / kMessageBytes,
      static_cast<double>(most.local_messages) / steps,
      static_cast<double>(most.local_bytes) / steps);
}

int run(const Shape& shape) {
  Ranks ranks(shape);
  Sent before;
  for (uint32_t at = 0; at < shape.warmups; ++at) {
    const bool is_last = at + 1 == shape.warmups;
    // Not behind it: ranks differ in how long they read, and the timed steps begin at once.
    if (is_last) before = ranks.sent();
    ranks.step(at == 0 || is_last);
  }
  std::vector<int64_t> times_us;
  for (uint32_t at = 0; at < shape.steps; ++at) times_us.push_back(ranks.step(false));
  const std::vector<Sent> sent = ranks.all(ranks.sent().since(before));
  ranks.step(true);
  ranks.all(0);  // nobody maps anything while others count what they share
  const std::vector<int64_t> after_steps_kib = ranks.all(resident_kib());
  ranks.close();
  if (ranks.rank() != 0) return 0;
  std::sort(times_us.begin(), times_us.end());
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "{\"variables\": %u, \"form\": \"%s\", \"call\": \"%s\", \"ranks\": %u, "
      "\"p50_us\": %lld, \"min_us\": %lld, \"max_us\": %lld, \"resident_kib\": %ld, ",
      shape.variables, shape.sparse ? "sparse" : "dense", shape.managed ? "pushpull" : "reduce",
      ranks.world(), static_cast<long long>(times_us[times_us.size() / 2]),
      static_cast<long long>(times_us.front()), static_cast<long long>(times_us.back()),
      usage.ru_maxrss);
  print_commit(ranks.commit_costs(), after_steps_kib, ranks.tables_kib());
  print_messages(sent, ranks.hosts(), shape.steps + 1);
  std::printf("}\n");
  return 0;
}

}  // namespace
}  // namespace parallax::many

int main(int count, char** words) {
  return parallax::many::run(parallax::many::parse(count, words));
}
