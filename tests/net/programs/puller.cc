// SPDX-License-Identifier: Apache-2.0
// One rank's program: pulls rows of a managed variable as often as it is told, waits for each, then
// for a reduce of all ranks, and ends the step: no rank ends it before all have pulled what they
// like. Linked with libparallax.so alone.
//
// Lines: "pulled N" behind the N-th; "read N", bytes of others that it read where they lay. Exit
// statuses: 0, 1 for wrong values, 2 for wrong usage, 3 for a call that failed.
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using parallax::sized;
using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_puller [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --pulls P0,P1,...     of each rank, in a step\n";

constexpr uint64_t kRows = 1000, kWidth = 3, kRowsMax = 100, kSteps = 12;

struct Variables {
  parallax_slice_t table = sized<parallax_slice_t>();
  parallax_slice_t held = sized<parallax_slice_t>();
};

Variables register_variables(parallax::Job& job) {
  Variables variables;
  auto table = sized<parallax_variable_t>();
  table.name = "table";
  table.rows = kRows;
  table.row_elements = kWidth;
  table.rows_max = kRowsMax;
  table.tag = PARALLAX_SPARSE;
  table.rule = PARALLAX_RULE_SGD;
  table.init_low = 1;
  variables.table.variable = job.register_variable(table);
  auto held = sized<parallax_variable_t>();
  held.name = "held";
  held.rows = 1;
  held.row_elements = 1;
  variables.held.variable = job.register_variable(held);
  job.commit();
  return variables;
}

// True if every row is what rank 0's pushes made of it: those below kRowsMax lost 1 in each step.
bool pull_once(parallax::Job& job, parallax_slice_t slice, uint64_t step, uint64_t first) {
  std::vector<float> values(kRowsMax * kWidth, -99);
  std::vector<int64_t> ids(kRowsMax);
  for (uint64_t i = 0; i < kRowsMax; ++i) ids[i] = static_cast<int64_t>((i * 3 + first) % kRows);
  slice.ids = ids.data();
  slice.row_count = kRowsMax;
  slice.form = PARALLAX_FORM_ROWS;
  slice.values = values.data();
  job.pull(step, {slice}).wait();
  bool right = true;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool pushed = ids[i / kWidth] < static_cast<int64_t>(kRowsMax);
    right &= values[i] == 1 - (pushed ? static_cast<float>(step - 1) : 0);
  }
  return right;
}

bool run_step(parallax::Job& job, const Variables& variables, uint32_t rank, uint32_t world,
              uint32_t pulls) {
  const uint64_t step = job.step_begin();
  bool right = true;
  for (uint32_t pull = 0; pull < pulls; ++pull) {
    right &= pull_once(job, variables.table, step, 40 * pull + rank);
    say("pulled %u", pull + 1);
  }
  // Given by every rank behind its pulls, and waited for: nobody ends the step before.
  float sum = 1;
  parallax_slice_t held = variables.held;
  held.values = &sum;
  job.reduce(step, {held}).wait();
  right &= sum == static_cast<float>(world);
  std::vector<int64_t> ids(kRowsMax);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> gradient(kRowsMax * kWidth, 1);
  parallax_slice_t slice = variables.table;
  slice.ids = ids.data();
  slice.row_count = kRowsMax;
  slice.form = PARALLAX_FORM_ROWS;
  slice.values = gradient.data();
  parallax::Request push;
  if (rank == 0) push = job.push(step, {slice});
  auto end = sized<parallax_step_end_options_t>();
  end.learning_rate = 1;
  job.step_end(step, end).wait();
  return right;
}

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  const std::vector<uint32_t> pulls = program::numbers_of(settings.text("pulls"));
  parallax::Job job(rank.options());
  const Variables variables = register_variables(job);
  bool right = true;
  for (uint64_t step = 0; step < kSteps; ++step) {
    right &= run_step(job, variables, rank.number, rank.world(), pulls.at(rank.number));
  }
  const auto stats = nlohmann::json::parse(job.report(PARALLAX_REPORT_STATS));
  say("read %llu", stats["local"]["read_bytes"].get<unsigned long long>());
  job.close();
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
