// SPDX-License-Identifier: Apache-2.0
// One rank's program: allocates buffers, waits until it has those of its host's other ranks mapped,
// frees its own and waits until theirs are gone. Linked with libparallax.so alone.
//
// Lines: "mapped N B", buffers and bytes; "left N" after all were freed. With --dies R that rank
// ends by SIGKILL where it would free; the others then say "lost N", what they have mapped of the
// rest, and stay. Exit statuses: 0, 1 if that did not come to be, 2 for wrong usage, 3 for a call
// that failed.
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_lender [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --buffers N      that each rank allocates\n"
    "  --dies R         one rank too many: none\n";

constexpr size_t kBufferBytes = 1 << 20;
constexpr int kLooksMax = 30000;

nlohmann::json buffers_of(const parallax::Job& job) {
  return nlohmann::json::parse(job.report(PARALLAX_REPORT_STATS))["buffers"];
}

// True once so many of others are mapped.
bool await_mapped(const parallax::Job& job, uint64_t count) {
  for (int look = 0; look < kLooksMax; ++look) {
    if (buffers_of(job)["mapped"] == count) return true;
    const timespec moment = {0, 1'000'000};
    nanosleep(&moment, nullptr);
  }
  return false;
}

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  parallax::Job job(rank.options());
  const auto hosts = program::numbers_of(settings.text("hosts"));
  const uint64_t each = settings.number("buffers");
  const uint64_t dies = settings.number("dies");
  uint64_t neighbours = 0, alive = 0;
  for (uint32_t other = 0; other < hosts.size(); ++other) {
    const bool near = other != rank.number && hosts[other] == hosts[rank.number];
    neighbours += near ? 1 : 0;
    alive += near && other != dies ? 1 : 0;
  }
  std::vector<parallax::Buffer> own;
  for (uint64_t i = 0; i < each; ++i) own.push_back(job.buffer(kBufferBytes));
  job.commit();
  if (!await_mapped(job, neighbours * each)) return 1;
  const nlohmann::json buffers = buffers_of(job);
  say("mapped %llu %llu", buffers["mapped"].get<unsigned long long>(),
      buffers["mapped_bytes"].get<unsigned long long>());
  job.barrier();
  if (rank.number == dies) raise(SIGKILL);
  if (dies < hosts.size()) {
    if (!await_mapped(job, alive * each)) return 1;
    say("lost %llu", buffers_of(job)["mapped"].get<unsigned long long>());
    pause();  // its own are there for the others to the end
  }
  for (parallax::Buffer& buffer : own) buffer.free();
  if (!await_mapped(job, 0)) return 1;
  say("left %llu", buffers_of(job)["mapped"].get<unsigned long long>());
  job.close();
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
