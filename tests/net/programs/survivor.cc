// SPDX-License-Identifier: Apache-2.0
// One rank's program, of job after job in one process: each is opened, summed in, and ended by the
// loss of a rank. One of a single job may be the rank that is lost. Linked with libparallax.so
// alone.
//
// Lines, with the number of the job: "job I" before open; "lost I MS STATUS: sentence", with
// milliseconds of the monotonic clock; "held I DESCRIPTORS THREADS BYTES PAGES" once the job is
// closed: what the process holds then, bytes by malloc, pages resident. Exit statuses: 0, 1 for a
// wrong sum, 2 for wrong usage.
#include <malloc.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_survivor [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --first I  --jobs N       jobs I to I + N - 1, each in the folder DIR.number\n"
    "  --lease-ms N  --timeout-ms N\n"
    "  --die-at rendezvous:0  --die-after-us N    killed so long after it has said that it is "
    "there\n";

constexpr uint64_t kElements = 3000;

long entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<long>(std::distance(begin(all), end(all)));
}

void say_what_is_held(uint64_t number) {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  say("held %llu %ld %ld %zu %ld", static_cast<unsigned long long>(number),
      entries_of("/proc/self/fd"), entries_of("/proc/self/task"), mallinfo2().uordblks, resident);
}

void step(parallax::Job& job, parallax_slice_t* slice, std::vector<float>& values,
          const program::Rank& rank) {
  for (float& value : values) value = static_cast<float>(rank.number + 1);
  const uint64_t number = job.step_begin();
  job.reduce(number, slice, 1).wait();
  job.step_end(number, parallax::sized<parallax_step_end_options_t>()).wait();
  const auto sum = static_cast<float>(rank.world() * (rank.world() + 1) / 2);
  for (const float value : values) {
    if (value == sum) continue;
    say("wrong value %g for %g", static_cast<double>(value), static_cast<double>(sum));
    _exit(1);
  }
}

// Until a call fails; *failed_ms is when, if it was one behind open.
void live(const parallax_options_t& options, const program::Rank& rank, long long* failed_ms) {
  parallax::Job job(options);
  auto variable = parallax::sized<parallax_variable_t>();
  variable.name = "v";
  variable.rows = 1;
  variable.row_elements = kElements;
  variable.dtype = PARALLAX_F32;
  variable.tag = PARALLAX_DENSE;
  variable.reduction = PARALLAX_SUM;
  variable.rule = PARALLAX_RULE_NONE;
  std::vector<float> values(kElements);
  auto slice = parallax::sized<parallax_slice_t>();
  slice.values = values.data();
  try {
    parallax::check(parallax_register(job.get(), &variable, &slice.variable));
    job.commit();
    for (;;) step(job, &slice, values, rank);
  } catch (const parallax::Error&) {
    *failed_ms = program::clock_ms();  // before the job is closed
    throw;
  }
}

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  const program::Fate fate(settings);
  const uint64_t first = settings.number("first");
  for (uint64_t number = first; number < first + settings.number("jobs", 1); ++number) {
    const std::string suffix = "." + std::to_string(number);
    parallax_options_t options = rank.options(suffix);
    options.lease_ms = static_cast<uint32_t>(settings.number("lease-ms"));
    options.timeout_ms = static_cast<uint32_t>(settings.number("timeout-ms"));
    say("job %llu", static_cast<unsigned long long>(number));
    fate.watch_rendezvous(settings.text("rendezvous") + suffix, rank.number);
    long long failed_ms = 0;
    try {
      live(options, rank, &failed_ms);
    } catch (const parallax::Error& error) {
      if (failed_ms == 0) failed_ms = program::clock_ms();
      say("lost %llu %lld %s", static_cast<unsigned long long>(number), failed_ms, error.what());
    }
    say_what_is_held(number);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
