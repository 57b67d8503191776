// SPDX-License-Identifier: Apache-2.0
// PullSource: the pull of this rank itself, one at a time. It tells each leader of its host which
// distinct rows of its column it wants, and gives out to the caller's buffers what they answer:
// each the next piece of its own answer, and at last its end. The caller's ids and buffers are
// borrowed from start() to finish(). Part of PullExchange.
#ifndef PARALLAX_SERVER_PULL_SOURCE_H_
#define PARALLAX_SERVER_PULL_SOURCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "message/outbox.h"
#include "server/pulled_variable.h"
#include "world/patterns.h"

namespace parallax {

class PullSource {
 public:
  // All outlive this object.
  PullSource(const Columns& columns, Outbox& outbox, const PulledVariables& variables);

  // As PullExchange has them.
  void start(uint64_t step, uint32_t round, std::span<const PullSlice> slices);
  bool finished() const { return active_ && answers_left_ == 0; }
  void finish();
  bool active() const { return active_; }

  [[nodiscard]] bool on_values_local(uint32_t from, const Section& section);

 private:
  void send_local(uint64_t step, uint32_t number, PulledVariable& variable);
  [[nodiscard]] bool take_rows(PulledVariable& variable, uint32_t column, const Section& section);
  [[nodiscard]] bool take_elements(PulledVariable& variable, uint32_t column,
                                   const Section& section);
  [[nodiscard]] bool end_answer(uint32_t column, const Section& section);

  const Columns& columns_;
  Outbox& outbox_;
  const PulledVariables& variables_;
  bool active_ = false;
  uint64_t active_step_ = 0;
  uint32_t active_round_ = 0;
  uint32_t answers_left_ = 0;          // leaders that have not said that the round is over
  std::vector<uint8_t> answer_ended_;  // by column: its leader has
  std::vector<uint32_t> active_variables_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_SOURCE_H_
