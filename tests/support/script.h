// SPDX-License-Identifier: Apache-2.0
// Script: a whole job played on an EngineWorld by random calls, and compared bit for bit with
// NaiveTraining: every pull, every reduce, every outcome of a step, and at the end every value.
// Bits can be told when the engine is deterministic, or when the numbers are small multiples of
// 1/64, whose sums are exact in any order.
#ifndef PARALLAX_TESTS_SUPPORT_SCRIPT_H_
#define PARALLAX_TESTS_SUPPORT_SCRIPT_H_

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "support/engine_world.h"
#include "support/id_sets.h"
#include "support/naive_training.h"
#include "support/numbers.h"

namespace parallax::testkit {

struct ScriptOptions {
  WorldOptions world;
  std::vector<parallax_variable_t> variables;
  uint32_t steps = 6;
  bool exact_numbers = true;      // else any number: deterministic worlds only
  uint32_t tied_percent = 0;      // of contributions of variables whose slices may hold every row
  bool clip = true;               // else no step has a clip norm
  uint32_t rates = 0;             // groups of rates that steps may have, which variables name
  bool pipelined = false;         // a step is posted while the one before ends
  uint32_t density_percent = 40;  // of rows_max that a slice has at most
  IdSets id_sets = IdSets::kDrawn;
  // Of steps of a rank that is there: it gives all variables, in one call.
  uint32_t whole_percent = 0;
};

class Script {
 public:
  explicit Script(const ScriptOptions& options);
  // "" if all was right, else the first thing that was not.
  std::string play();
  // Every (placement, method) that some variable had, as "sharded push_pull".
  const std::set<std::string>& plans_seen() const { return plans_seen_; }
  EngineWorld& world() { return world_; }
  // Of every number that was compared, in an order that no timing changes: of two versions that
  // play the same job, the same if each bit is.
  uint64_t digest() const { return digest_; }

 private:
  struct Pull {
    std::vector<parallax_slice_t> slices;
    std::deque<std::vector<int64_t>> ids;
    std::deque<std::vector<int32_t>> narrow_ids;
    std::deque<Numbers> values;
    Request* request = nullptr;
  };
  struct Call {  // a push or a reduce
    std::vector<uint32_t> variables;
    std::deque<Numbers> values;
    std::deque<std::vector<int64_t>> ids;
    std::deque<std::vector<int32_t>> narrow_ids;
    std::vector<parallax_slice_t> slices;
    Request* request = nullptr;
  };
  struct RankStep {
    std::deque<Pull> pulls;
    std::deque<Call> parts;  // that more follows
    std::deque<Call> reduces, pushes;
    Request* end = nullptr;
    bool absent = false;
    std::vector<Request*> requests() const;
  };
  struct Played {
    uint64_t number = 0;
    StepEnd end;
    std::vector<RankStep> ranks;
    std::vector<std::vector<Contribution>> contributions;  // [variable][rank]
  };

  bool managed(uint32_t variable) const;
  bool ids(uint32_t variable) const { return options_.variables[variable].rows_max > 0; }
  bool floating(uint32_t variable) const { return is_floating(options_.variables[variable].dtype); }
  double number(uint32_t dtype);
  uint32_t draw_dtype(uint32_t variable);
  parallax_slice_t slice_of(uint32_t variable, const std::vector<int64_t>& row_ids,
                            std::deque<std::vector<int32_t>>* narrow, Numbers* values,
                            bool dense = false);
  void draw_contributions(Played* step);
  // By chances of its own, so that a seed plays the rest as it does without.
  bool is_whole(const Played& step, uint32_t rank) const {
    SeededRandom whole = SeededRandom(options_.world.seed).fork(1000 + step.number).fork(rank);
    return options_.whole_percent > 0 && whole.chance(options_.whole_percent);
  }
  std::vector<int64_t> draw_ids(uint32_t variable, uint64_t count);
  std::string post(Played* step, bool read_all);
  std::string post_rank(Played* step, uint32_t rank, bool read_all);
  std::string post_pull(Played* step, uint32_t rank, Pull* pull);
  void add_pull_slice(Pull* pull, uint32_t variable, uint32_t dtype, std::vector<int64_t> row_ids);
  std::string post_read_all(Played* step, uint32_t rank);
  std::string post_contributions(Played* step, uint32_t rank, bool pushes);
  std::string check(Played* step);
  std::string check_rank(const Played& step, uint32_t rank);
  // differ(), and the digest goes on.
  std::string compare(std::span<const double> got, std::span<const double> want);
  void add_to_digest(uint64_t bits) {
    constexpr uint64_t kPrime = 0x100000001b3;
    for (int shift = 0; shift < 64; shift += 8) {
      digest_ = (digest_ ^ (bits >> shift & 0xff)) * kPrime;
    }
  }
  std::string check_pull(const Pull& pull);
  // A contribution, or what is left of it from row `first` on.
  void add_contribution(Call* call, uint32_t variable, Contribution* contribution, uint64_t first,
                        SeededRandom tied);
  void add_rows(Call* call, uint32_t variable, const Contribution& contribution, uint64_t first,
                uint64_t end);
  std::string post_parts(Played* step, uint32_t rank, uint32_t variable, uint64_t* first);
  std::string check_reduce(const Played& step, const Call& reduce);
  std::string check_info(const Played& step, const parallax_step_info_t& info);

  const ScriptOptions options_;
  std::deque<Played> steps_;  // outlives the world, whose jobs read the slices of a step cut short
  EngineWorld world_;
  SeededRandom random_;
  NaiveTraining naive_;
  std::set<std::string> plans_seen_;
  uint64_t digest_ = 0xcbf29ce484222325;  // FNV-1a, 64 bits
};

// "" or where the first bits differ.
std::string differ(std::span<const double> got, std::span<const double> want);

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_SCRIPT_H_
