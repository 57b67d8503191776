// SPDX-License-Identifier: Apache-2.0
// One rank's program: opens a job, trains a step and closes it, again and again, and says what
// stays behind of descriptors and memory. Linked with libparallax.so alone.
//
// Lines: "connections N", over IP when open returned; "descriptors N" and "resident N" (KiB), each
// after the warm-up and at the end; "refused STATUS sentence"; "child N", the exit status of a
// forked child, which says "child refused". Exit statuses: 0, 1 for wrong values, 2 for wrong
// usage, 3 for a call that failed.

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstdio>
#include <vector>

#include "../../support/own_process.h"
#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using parallax::sized;
using parallax::testkit::open_descriptors;
using parallax::testkit::resident_kib;
using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_opener [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --times N        jobs after one another\n"
    "  --warm-up N      of them, before what is held counts\n"
    "  --descriptors N  how many this process may open\n"
    "  --fork 0|1       with a job open, a forked child of each rank meets in a job of its own\n"
    "  --lease-ms N  --timeout-ms N\n";

parallax::Job open_job(const program::Settings& settings, program::Rank& rank,
                       const std::string& suffix) {
  auto options = rank.options(suffix);
  options.lease_ms = static_cast<uint32_t>(settings.number("lease-ms", 0));
  options.timeout_ms = static_cast<uint32_t>(settings.number("timeout-ms", 0));
  return parallax::Job(options);
}

// Every rank pushes 1 to a row of its own and to one that all share; true if the sums are right.
bool train(parallax::Job& job, program::Rank& rank) {
  auto variable = sized<parallax_variable_t>();
  variable.name = "rows";
  variable.rows = rank.world() + 1;
  variable.row_elements = 1;
  variable.tag = PARALLAX_SPARSE;
  variable.rows_max = rank.world() + 1;
  variable.rule = PARALLAX_RULE_SGD;
  auto slice = sized<parallax_slice_t>();
  slice.variable = job.register_variable(variable);
  job.commit();
  const int64_t own[] = {rank.number, rank.world()};
  float ones[] = {1, 1};
  slice.form = PARALLAX_FORM_ROWS;
  slice.ids = own;
  slice.row_count = 2;
  slice.values = ones;
  uint64_t step = job.step_begin();
  auto end = sized<parallax_step_end_options_t>();
  end.learning_rate = 1;
  job.push(step, {slice}).wait();
  job.step_end(step, end).wait();
  step = job.step_begin();
  job.pull(step, {slice}).wait();
  job.step_end(step, end).wait();
  return ones[0] == -1 && ones[1] == -static_cast<float>(rank.world());
}

int connections() {
  constexpr int kDescriptorsMax = 1024;
  int count = 0;
  for (int descriptor = 0; descriptor < kDescriptorsMax; ++descriptor) {
    sockaddr_storage peer = {};
    socklen_t bytes = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) ++count;
  }
  return count;
}

bool whole_job(const program::Settings& settings, program::Rank& rank, const std::string& suffix) {
  parallax::Job job = open_job(settings, rank, suffix);
  if (settings.number("times", 1) == 1) say("connections %d", connections());
  const bool right = train(job, rank);
  job.close();
  return right;
}

int run(const program::Settings& settings) {
  if (const rlim_t descriptors = settings.number("descriptors"); descriptors != 0) {
    const rlimit limit = {descriptors, descriptors};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  program::Rank rank(settings);
  if (settings.number("fork") == 1) {
    parallax::Job job = open_job(settings, rank, "-parents");
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      try {
        _exit(whole_job(settings, rank, "-children") ? 0 : 1);
      } catch (const parallax::Error& error) {
        say("child refused %s", error.what());
        _exit(3);
      }
    }
    int status = -1;
    waitpid(child, &status, 0);
    say("child %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    const bool right = train(job, rank);
    job.close();
    return right ? 0 : 1;
  }
  const uint64_t times = settings.number("times", 1);
  const uint64_t warm_up = settings.number("warm-up", times);
  bool right = true;
  for (uint64_t i = 0; i < times; ++i) {
    right &= whole_job(settings, rank, "-" + std::to_string(i));
    if (i + 1 == warm_up || i + 1 == times) {
      say("descriptors %d", open_descriptors());
      say("resident %ld", resident_kib());
    }
  }
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
