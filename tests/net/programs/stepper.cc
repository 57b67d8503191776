// SPDX-License-Identifier: Apache-2.0
// One rank's program: steps of one dense variable that the framework holds, without a pause,
// between two marks for who traces its system calls: getppid, which the library never calls. Linked
// with libparallax.so alone.
//
// Lines: "elapsed N", milliseconds between the marks; "waiting JSON", what the library counted of
// its waits meanwhile, less what it had before; "stats JSON". Exit statuses: 0, 1 for a wrong sum,
// 2 for wrong usage, 3 for a call that failed.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_stepper [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --steps N        between the marks   --warm-ups N   before them; 100\n"
    "  --elements N     of the variable; 2\n";

nlohmann::json waiting_of(const parallax::Job& job) {
  return nlohmann::json::parse(job.report(PARALLAX_REPORT_STATS))["waiting"];
}

float value_of(uint32_t factor, size_t i) { return static_cast<float>(factor * (1 + i % 1000)); }

bool step(parallax::Job& job, parallax_slice_t* slice, std::vector<float>& values,
          const program::Rank& rank) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = value_of(rank.number + 1, i);
  const uint64_t number = job.step_begin();
  job.reduce(number, slice, 1).wait();
  job.step_end(number, parallax::sized<parallax_step_end_options_t>()).wait();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != value_of(rank.world() * (rank.world() + 1) / 2, i)) return false;
  }
  return true;
}

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  parallax::Job job(rank.options());
  auto variable = parallax::sized<parallax_variable_t>();
  variable.name = "v";
  variable.rows = 1;
  variable.row_elements = settings.number("elements", 2);
  variable.dtype = PARALLAX_F32;
  variable.tag = PARALLAX_DENSE;
  variable.reduction = PARALLAX_SUM;
  variable.rule = PARALLAX_RULE_NONE;
  std::vector<float> values(variable.row_elements);
  auto slice = parallax::sized<parallax_slice_t>();
  parallax::check(parallax_register(job.get(), &variable, &slice.variable));
  slice.values = values.data();
  job.commit();
  bool right = true;
  for (uint64_t i = settings.number("warm-ups", 100); i > 0; --i)
    right &= step(job, &slice, values, rank);
  nlohmann::json before = waiting_of(job);
  // Reports take their time: none of them between the marks, and nobody waits for one.
  right &= step(job, &slice, values, rank);
  syscall(SYS_getppid);
  const long long start_ms = program::clock_ms();
  for (uint64_t i = settings.number("steps"); i > 0; --i) right &= step(job, &slice, values, rank);
  const long long end_ms = program::clock_ms();
  syscall(SYS_getppid);
  nlohmann::json after = waiting_of(job);
  for (auto& [name, count] : after.items()) {
    count = count.get<uint64_t>() - before[name].get<uint64_t>();
  }
  say("elapsed %lld", end_ms - start_ms);
  say("waiting %s", after.dump().c_str());
  say("stats %s", job.report(PARALLAX_REPORT_STATS).c_str());
  job.close();
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
