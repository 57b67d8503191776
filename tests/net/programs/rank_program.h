// SPDX-License-Identifier: Apache-2.0
// A program of the net tests that is one rank of a job through parallax.hpp: who it is by --rank,
// --hosts and --rendezvous, and a main() that answers a failed call by a line. Tests only.
#ifndef PARALLAX_TESTS_NET_PROGRAMS_RANK_PROGRAM_H_
#define PARALLAX_TESTS_NET_PROGRAMS_RANK_PROGRAM_H_

#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"
#include "program.h"

namespace program {

inline std::vector<uint32_t> numbers_of(const std::string& list) {
  std::vector<uint32_t> numbers;
  std::istringstream rest(list);
  for (std::string each; std::getline(rest, each, ',');) {
    numbers.push_back(static_cast<uint32_t>(std::stoul(each)));
  }
  return numbers;
}

class Rank {
 public:
  explicit Rank(const Settings& settings)
      : number(static_cast<uint32_t>(settings.number("rank"))),
        hosts(numbers_of(settings.text("hosts"))),
        host_("host" + std::to_string(hosts.at(number))),
        rendezvous_(settings.text("rendezvous")) {}

  uint32_t world() const { return static_cast<uint32_t>(hosts.size()); }
  // The folder of a file rendezvous gets `suffix` behind it. As long as this lives.
  parallax_options_t options(const std::string& suffix = "") {
    auto options = parallax::sized<parallax_options_t>();
    options.rank = number;
    options.world = world();
    options.host = host_.c_str();
    place_ = rendezvous_ + suffix;
    options.rendezvous = place_.c_str();
    return options;
  }

  const uint32_t number;
  const std::vector<uint32_t> hosts;  // by rank

 private:
  const std::string host_, rendezvous_;
  std::string place_;
};

// main(): 2 for wrong usage; 3, after a line "refused SENTENCE", for a call that failed; else what
// `run` returns.
template <typename Run>
int run_rank(int count, char** arguments, const char* usage, Run run) {
  Settings settings;
  if (!parse(count, arguments, usage, &settings)) {
    std::fputs(usage, stderr);
    return 2;
  }
  try {
    return run(settings);
  } catch (const parallax::Error& error) {
    say("refused %s", error.what());
    return 3;
  }
}

}  // namespace program

#endif  // PARALLAX_TESTS_NET_PROGRAMS_RANK_PROGRAM_H_
