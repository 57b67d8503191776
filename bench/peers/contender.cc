// SPDX-License-Identifier: Apache-2.0
// Serving commands, checking and timing. See contender.h.
#include "contender.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

namespace parallax::peers {
namespace {

uint64_t count_wrong(const float* sums, uint64_t count, uint32_t world) {
  uint64_t wrong = 0;
  for (uint64_t at = 0; at < count; ++at) {
    float want = 0;
    for (uint32_t rank = 0; rank < world; ++rank) want += value_of(rank, at);
    if (sums[at] != want) ++wrong;
  }
  return wrong;
}

}  // namespace

int64_t quantile(const std::vector<int64_t>& sorted, double share) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(std::lround(last * share))];
}

void serve(Contender& contender, uint32_t rank, uint32_t world, const std::string& folder) {
  const std::string own = folder + "/" + std::to_string(rank);
  std::ifstream commands(own + ".in");
  std::ofstream answers(own + ".out");
  std::string line;
  while (std::getline(commands, line)) {
    std::istringstream words(line);
    std::string variant;
    uint64_t bytes = 0, iterations = 0;
    if (!(words >> variant >> bytes >> iterations) || bytes % sizeof(float) != 0) {
      fail("not a command: " + line);
    }
    float* const values = contender.buffer(variant, bytes);
    const uint64_t count = bytes / sizeof(float);
    for (uint64_t at = 0; at < count; ++at) values[at] = value_of(rank, at);
    contender.allreduce();
    const uint64_t wrong = count_wrong(values, count, world);
    // Zeros stay zeros however often they are summed in place.
    std::memset(values, 0, bytes);
    for (uint64_t warm_up = 0; warm_up < iterations / 10 + 2; ++warm_up) contender.allreduce();
    std::vector<int64_t> reduces(iterations), steps(iterations);
    for (uint64_t at = 0; at < iterations; ++at) {
      const Took took = contender.allreduce();
      reduces[at] = took.reduce_ns;
      steps[at] = took.step_ns;
    }
    std::sort(reduces.begin(), reduces.end());
    std::sort(steps.begin(), steps.end());
    answers << quantile(reduces, 0.5) << ' ' << quantile(reduces, 0.99) << ' '
            << quantile(steps, 0.5) << ' ' << quantile(steps, 0.99) << ' ' << wrong << std::endl;
  }
}

std::string argument(int count, char** all, int at) {
  if (at >= count) fail(std::string(all[0]) + " is started by bench/peers/run");
  return all[at];
}

}  // namespace parallax::peers
