// SPDX-License-Identifier: Apache-2.0
// Steps of a world of exchanges: what each rank gives, drawn from a seed; what must come of it, by
// the naive sum of one process (NaiveTraining); and the drivers that take all ranks through them as
// engines do. One thread.
#ifndef PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_TRAINING_H_
#define PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_TRAINING_H_

#include <cstdint>
#include <vector>

#include "unit/collectives/exchange_world.h"

namespace parallax::exchange_conformance {

struct Draw {
  bool arbitrary = false;       // floats of any size, whose sum depends on the order
  uint32_t absent_percent = 0;  // of the ranks give nothing
  uint32_t empty_percent = 0;   // of the slices of rows have none
  uint32_t dtype = UINT32_MAX;  // of the slices; else the sum type's own
};

using Contributions = std::vector<Contribution>;  // by rank

// Unless `arbitrary`, all numbers are small multiples of 1/64: any order of adding gives one sum.
Contribution draw_gift(const Setting& setting, const Draw& draw, SeededRandom& random);
Contributions draw_contributions(const Setting& setting, const Draw& draw, SeededRandom& random);

// What one step's contributions add up to.
struct Expected {
  bool contributed = false;
  bool has_values = false;
  std::vector<std::byte> values;  // by row key (dense: by element), of the sum type; in a row that
                                  // nobody gave, what stands for none
  std::vector<uint32_t> givers;   // by row key: ranks that gave the row; dense: empty
  uint64_t touched_rows = 0;      // distinct rows of each host, added up
  uint64_t given_rows = 0;        // the same of each rank
  uint64_t union_rows = 0;
  double square = 0;  // of the norm
};

Expected expected_sum(const ExchangeWorld& world, const Contributions& contributions);

// Compares what the ranks of a world have of one step with what they must have.
class StepCheck {
 public:
  StepCheck(ExchangeWorld& world, const Candidate& candidate, uint64_t step,
            const Contributions& contributions, bool exact_norm = true);
  // Once the rank is delivered, and all are reduced.
  void check_rank(uint32_t rank);
  // After every rank was checked.
  void check_totals() const;

 private:
  void check_whole(const ReducedGradient& whole);
  void check_owned(uint32_t rank, const ReducedGradient& owned);
  void check_rows(const ReducedGradient& part) const;
  void check_elements(const ReducedGradient& part) const;
  std::vector<uint32_t> givers_in(const Range& range) const;
  size_t row_bytes() const;

  ExchangeWorld& world_;
  const Candidate& candidate_;
  const uint64_t step_;
  const bool exact_norm_;
  const Expected expected_;
  ExactSum square_;
  ExchangeCounts counts_;
  uint64_t owned_rows_ = 0;
  uint64_t owned_elements_ = 0;
};

// Step `step` of all ranks, in any order, until nothing moves; then checked. The step stays open.
void run_step(ExchangeWorld& world, uint64_t step, const Contributions& contributions);
void check_step(ExchangeWorld& world, const Candidate& candidate, uint64_t step,
                const Contributions& contributions);

// Steps 1, 2, ...: each rank as far ahead as the step's decision allows, two of them in flight.
void run_steps(ExchangeWorld& world, const Candidate& candidate,
               const std::vector<Contributions>& gifts_by_step, bool exact_norm = true);

}  // namespace parallax::exchange_conformance

#endif  // PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_TRAINING_H_
