// SPDX-License-Identifier: Apache-2.0
// Serving commands and timing. See contender.h.
#include "contender.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

namespace parallax::peers {

void serve(Contender& contender, uint32_t rank, const std::string& folder) {
  const std::string own = folder + "/" + std::to_string(rank);
  std::ifstream commands(own + ".in");
  std::ofstream answers(own + ".out");
  std::string line;
  while (std::getline(commands, line)) {
    std::istringstream parts(line);
    std::string variant, words, device;
    uint64_t iterations = 0;
    bool refill = false;
    parts >> variant >> words >> iterations >> refill >> device;
    if (!parts) fail("not a command: " + line);
    if (device == "-") device.clear();
    const uint64_t wrong = contender.check(variant, words);
    const uint64_t warm_ups = std::max(contender.warm_ups(), iterations / 10 + 1);
    for (uint64_t at = 0; at < warm_ups; ++at) contender.iterate();
    std::vector<Took> times(iterations);
    if (!device.empty()) contender.meet();
    const links::Bytes before = contender.carried(device);
    // Nobody sends what is counted before everybody has read.
    if (!device.empty()) contender.meet();
    for (auto& took : times) {
      if (refill) contender.refill();
      took = contender.iterate();
    }
    if (!device.empty()) contender.meet();
    const links::Bytes after = contender.carried(device);
    contender.settle();
    answers << wrong << ' ' << after.received - before.received << ' ' << after.sent - before.sent;
    for (const auto& took : times) answers << ' ' << took.result_ns << ' ' << took.step_ns;
    answers << std::endl;
  }
}

std::string argument(int count, char** all, int at) {
  if (at >= count) fail(std::string(all[0]) + " is started by bench/peers/run");
  return all[at];
}

StartedAs started_as(int count, char** all) {
  const auto number = [=](int at) {
    return static_cast<uint32_t>(std::stoul(argument(count, all, at)));
  };
  return {.folder = argument(count, all, 1), .rank = number(2), .world = number(3)};
}

}  // namespace parallax::peers
