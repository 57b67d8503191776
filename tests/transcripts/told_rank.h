// SPDX-License-Identifier: Apache-2.0
// ToldRank: a real engine on a simulated world, and its caller, who makes the calls that a script
// tells it and says what comes of each: a refusal at once, or how its request completed. One
// thread.
#ifndef PARALLAX_TESTS_TRANSCRIPTS_TOLD_RANK_H_
#define PARALLAX_TESTS_TRANSCRIPTS_TOLD_RANK_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "sim/sim_compute.h"
#include "transcripts/recorded_transport.h"
#include "transcripts/story.h"
#include "transcripts/words.h"
#include "transport/sim/sim_world.h"

namespace parallax::transcripts {

class ToldRank final : public Actor {
 public:
  // All outlive the rank. `variables`: those of the scenario; a registration adds one that is new.
  ToldRank(SimWorld& world, const EngineOptions& options, Story& story,
           std::vector<NamedVariable>& variables);
  ToldRank(const ToldRank&) = delete;
  ToldRank& operator=(const ToldRank&) = delete;

  void run(int64_t now_ns) override;
  int64_t next_deadline_ns() const override;

  // One call: README.md lists them. Throws ScriptError.
  void tell(const Words& words);

  // Requests that did not complete yet, and what each waits for.
  bool waits() const { return !calls_.empty(); }
  void say_waits();
  Engine& engine() { return engine_; }

 private:
  // A call under way with the buffers it borrows.
  struct Call {
    std::string text;
    Request* request = nullptr;
    std::vector<parallax_slice_t> slices;
    std::deque<std::vector<int64_t>> ids;
    std::deque<std::vector<float>> values;
  };
  struct CallRow;
  static const CallRow kCalls[];

  Status do_register(const Words& words, Call* call);
  Status do_commit(const Words& words, Call* call);
  Status do_begin(const Words& words, Call* call);
  Status do_pull(const Words& words, Call* call);
  Status do_push(const Words& words, Call* call);
  Status do_reduce(const Words& words, Call* call);
  Status do_end(const Words& words, Call* call);
  Status do_barrier(const Words& words, Call* call);
  Status do_abort(const Words& words, Call* call);
  Status do_close(const Words& words, Call* call);

  uint32_t variable(const std::string& name) const;
  const Partition& partition_of(const std::string& name) const;
  void add_slices(const Words& words, Call* call) const;
  bool reap();
  std::string result(const Call& call) const;
  std::string values_text(const Call& call) const;
  void say(const std::string& what);

  SimWorld& world_;
  Story& story_;
  std::vector<NamedVariable>& variables_;
  std::vector<std::string> names_;  // by id
  uint32_t commits_ = 0;            // called
  const uint32_t rank_;
  const HostMap hosts_;
  RecordedTransport transport_;
  simtest::SimCompute compute_;
  Engine engine_;
  uint64_t step_ = 0;  // last begun
  std::deque<Call> calls_;
};

}  // namespace parallax::transcripts

#endif  // PARALLAX_TESTS_TRANSCRIPTS_TOLD_RANK_H_
