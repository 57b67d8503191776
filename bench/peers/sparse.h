// SPDX-License-Identifier: Apache-2.0
// Steps of row ids in bench/peers. Every rank draws ids of each table, by Zipf's law or by classes
// of rows of which each is drawn half as often as the one before, looks their rows up, a row for
// each id, and gives a gradient for each; all of a row's gradients, of all ranks, are summed, and
// the rule updates it once. The same ids, gradients and rules for all contenders, and a serial
// oracle that each is compared with.
//
// WORDS of a command: RULE/EXPONENT/TYPE/COMPUTE_US/TABLE,TABLE..., a table ROWSxWIDTHxIDS:
// sgd/1/f32/0/793470x512x2560. Of a table with classes ROWS is ROWS:ROWS..., at most 32 of them,
// the hottest first, and so by their ids. A rank computes for so long in each step, asleep.
#ifndef PARALLAX_BENCH_PEERS_SPARSE_H_
#define PARALLAX_BENCH_PEERS_SPARSE_H_

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "contender.h"

namespace parallax::peers {

inline constexpr float kLearningRate = 0.5F;
// So large that an update tells how large the sum was: s begins as 0.
inline constexpr float kEpsilon = 1;

enum class Rule : uint8_t { kSgd, kAdagrad };

struct Table {
  uint64_t rows, width, ids;           // ids: of a rank and a step
  uint64_t first_id;                   // of all tables' ids side by side
  uint64_t first_value;                // of their rows
  std::vector<uint64_t> classes = {};  // rows of each; none: Zipf's law
};

struct SparseStep {
  Rule rule = Rule::kSgd;
  double exponent = 1;
  bool is_bf16 = false;  // else f32
  uint32_t compute_us = 0;
  std::vector<Table> tables;
  uint64_t ids = 0, values = 0;  // of a rank, of all tables

  static SparseStep read(const std::string& words);
};

// What a rank computes in a step of this kind.
void compute(const SparseStep& step);

// Updates `row`, and `state` where the rule keeps any, by the sum of its gradients.
inline void update(Rule rule, float* row, float* state, const float* gradient, uint64_t width) {
  if (rule == Rule::kSgd) {
    for (uint64_t at = 0; at < width; ++at) row[at] -= kLearningRate * gradient[at];
    return;
  }
  for (uint64_t at = 0; at < width; ++at) {
    state[at] += gradient[at] * gradient[at];
    row[at] -= kLearningRate * gradient[at] / (std::sqrt(state[at]) + kEpsilon);
  }
}

// How many steps have ids of their own.
uint64_t batch_count(const SparseStep& step);

// Ids of a rank in some steps, after which they come again.
class Batches {
 public:
  Batches(const SparseStep& step, uint32_t rank, uint64_t count);
  uint64_t count() const { return count_; }
  // Of all tables.
  const int64_t* ids(uint64_t batch) const { return &ids_[batch * step_ids_]; }

 private:
  uint64_t count_, step_ids_;
  std::vector<int64_t> ids_;
};

// What a serial program has of the rows that a rank looks up in batch 0.
class Oracle {
 public:
  Oracle(const SparseStep& step, uint32_t rank, uint32_t world);
  // What was looked up for batch 0 before anything was given, of SGD: any numbers, but the same for
  // the same row. How many are not.
  uint64_t take(std::span<const float> values);
  // All ranks give what fill_gradients() wrote, for batch 0.
  void apply();
  // How many of the numbers that were looked up for batch 0 are wrong: of SGD, by more than so much
  // of themselves.
  uint64_t count_wrong(std::span<const float> values, float sgd_tolerance) const;

 private:
  struct Row {
    uint64_t width, first;  // in sums_, rows_, state_
  };

  const SparseStep step_;
  std::vector<Row> all_;
  std::vector<uint32_t> row_of_;  // of each id of this rank
  std::vector<float> sums_, rows_, state_;
};

// What a rank gives and what it looked up: of each table, its ids' rows side by side.
struct Buffers {
  std::span<float> gradients, values;
};

class Sparse : public Contender {
 public:
  Sparse(uint32_t rank, uint32_t world) : rank_(rank), world_(world) {}

  uint64_t check(const std::string& variant, const std::string& words) final;
  // All batches where this variant comes for the first time with these tables: pages are had then.
  uint64_t warm_ups() const final { return is_new_ ? batches_->count() : 1; }
  void refill() final;
  Took iterate() final;

 protected:
  // Begins with a kind of step: its tables are zeros.
  virtual void open(const SparseStep& step) = 0;
  // Where gradients and the rows that are looked up lie. Good until the next call.
  virtual Buffers choose(const std::string& variant) = 0;
  // Variants of one name here have the same tables.
  virtual std::string tables_of(const std::string& /*variant*/) const { return ""; }
  // A step with these ids; the step after it, if there is one before settle(), has `next`.
  virtual Took run(const int64_t* ids, const int64_t* next) = 0;
  // Gradients are about to be written again.
  virtual void free_gradients() {}
  // Of numbers updated by SGD, relative. None: a row is updated once, by the sum of all ranks.
  virtual float sgd_tolerance() const { return 0; }
  // The rows that it looked up.
  virtual std::span<const float> looked_up() const { return buffers_.values; }

  const uint32_t rank_, world_;

 private:
  std::string words_;
  SparseStep step_;
  std::unique_ptr<Batches> batches_;
  std::map<std::string, std::unique_ptr<Oracle>> oracles_;  // by tables_of()
  std::set<std::string> known_;  // variants that have come with these tables
  bool is_new_ = false;
  Buffers buffers_;
  std::vector<float> noise_;
  uint64_t steps_ = 0;
};

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_SPARSE_H_
