// SPDX-License-Identifier: Apache-2.0
// SmallJob: a few ranks on a simulated world, driven by the commands of one script. README.md lists
// the commands. One thread.
#ifndef PARALLAX_TESTS_TRANSCRIPTS_SMALL_JOB_H_
#define PARALLAX_TESTS_TRANSCRIPTS_SMALL_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transcripts/told_rank.h"
#include "transport/sim/sim_world.h"

namespace parallax::transcripts {

class SmallJob {
 public:
  // Obeys one command, and returns what happened meanwhile. Throws ScriptError.
  std::vector<std::string> obey(const std::string& command);

 private:
  void open(const Words& words);
  void say_job();
  void tell(const Words& words);
  void run(const Words& words);
  void run_until(const std::string& words);
  void settle(int64_t ns);
  void strike(FaultKind kind, uint32_t rank);
  void say_plan();
  bool over() const;
  ToldRank& rank(uint32_t rank);

  HostMap hosts_;
  std::unique_ptr<SimWorld> world_;
  std::vector<NamedVariable> variables_;
  MessageText text_{variables_};
  std::unique_ptr<Story> story_;
  std::vector<std::unique_ptr<ToldRank>> ranks_;  // null: it left
};

}  // namespace parallax::transcripts

#endif  // PARALLAX_TESTS_TRANSCRIPTS_SMALL_JOB_H_
