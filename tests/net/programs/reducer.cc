// SPDX-License-Identifier: Apache-2.0
// One rank's program: sums over all ranks, in place, again and again in the same two buffers of the
// library's; checks every number. Linked with libparallax.so alone.
//
// Lines: "right N" sums in the end, and "stats JSON". Exit statuses: 0, 1 for wrong numbers, 2 for
// wrong usage, 3 for a call that failed.
#include <array>

#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_reducer [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --rounds N       sums in each buffer   --count N   of 64-bit numbers\n";

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  parallax::Job job(rank.options());
  job.commit();
  const uint64_t rounds = settings.number("rounds", 4);
  const uint64_t count = settings.number("count", 1 << 17);
  std::array<parallax::Buffer, 2> buffers = {job.buffer(count * sizeof(int64_t)),
                                             job.buffer(count * sizeof(int64_t))};
  // The sum over ranks of (1 + rank) times i + round.
  const uint64_t factor = uint64_t{rank.world()} * (rank.world() + 1) / 2;
  uint64_t right = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    for (const parallax::Buffer& buffer : buffers) {
      auto* const numbers = buffer.as<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) numbers[i] = (1 + rank.number) * (i + round);
      auto call = parallax::sized<parallax_collective_t>();
      call.kind = PARALLAX_ALLREDUCE;
      call.dtype = PARALLAX_I64;
      call.op = PARALLAX_OP_SUM;
      call.count = count;
      call.send = call.recv = numbers;
      job.collective(call).wait();
      for (uint64_t i = 0; i < count; ++i) {
        if (numbers[i] == factor * (i + round)) continue;
        say("wrong: round %llu, number %llu", static_cast<unsigned long long>(round),
            static_cast<unsigned long long>(i));
        return 1;
      }
      ++right;
    }
  }
  say("right %llu", static_cast<unsigned long long>(right));
  say("stats %s", job.report(PARALLAX_REPORT_STATS).c_str());
  job.barrier();
  for (parallax::Buffer& buffer : buffers) buffer.free();
  job.close();
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
