// SPDX-License-Identifier: Apache-2.0
// The conformance suite of exchanges: what each way of summing a gradient over the ranks of a job
// promises, asked of any of them, over every layout of hosts for worlds of 1 to 16 ranks. An
// exchange is done when one line passes:
//
//   CONFORM_EXCHANGE(reduce_rows, reduce_rows)
//
// where the second makes a Candidate (exchange_candidate.h). The oracle is the naive sum of one
// process, bit for bit (exchange_training.h); ranks and network are an ExchangeWorld. A failure
// prints the layout, the variable and the seed. Tests only; one thread.
#ifndef PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_CONFORMANCE_H_
#define PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "unit/collectives/exchange_candidate.h"
#include "unit/collectives/exchange_training.h"
#include "unit/collectives/exchange_world.h"

namespace parallax::exchange_conformance {

inline constexpr uint32_t kWorldMax = 16;
inline constexpr size_t kSmallMessageBytes = kMessageBytesMin;

// By rank its host, each way once: all on one host, a host each, even, uneven, interleaved.
std::vector<std::vector<uint32_t>> layouts_of(uint32_t world);

// The settings of a case, for every layout to which the candidate applies. Shapes, sum types and
// counting alternate; worlds above 8 take one order of adding for each layout, smaller ones both.
struct Sweep {
  std::vector<SumType> sums = {SumType::kF32};
  std::vector<bool> ordered = {false, true};
  uint32_t seeds = 1;
  size_t message_bytes_max = 16384;
  int shape = -1;  // of the candidate's; -1: all in turn
  uint32_t world_min = 1;
  bool all_counted = false;  // else every other one
  uint32_t thinned = 1;      // in worlds above 8 only every so many of the settings
};
using Body = std::function<void(const Setting& setting)>;
void for_each_setting(const Candidate& candidate, const Sweep& sweep, const Body& body);

// The cases. exchange_cases.cc:
void everyone_contributes(const Candidate& candidate);
void sums_in_every_type(const Candidate& candidate);
void ordered_sums_keep_their_order(const Candidate& candidate);
void narrow_slices_are_widened(const Candidate& candidate);
void rows_count_their_ranks(const Candidate& candidate);
void the_absent_count_as_nothing(const Candidate& candidate);
void nobody_contributes(const Candidate& candidate);
void slices_without_rows_are_given(const Candidate& candidate);
void one_slice_without_rows_is_known(const Candidate& candidate);
void steps_do_not_leak(const Candidate& candidate);
void small_messages_split_sections(const Candidate& candidate);
void the_last_to_contribute_is_waited_for(const Candidate& candidate);
void a_late_sender_is_named(const Candidate& candidate);
void the_next_step_may_come_early(const Candidate& candidate);
void memory_is_as_foretold(const Candidate& candidate);
// exchange_garbage_cases.cc:
void misfits_are_refused(const Candidate& candidate);
void strangers_are_refused(const Candidate& candidate);
void nothing_follows_the_last(const Candidate& candidate);
void too_much_is_refused(const Candidate& candidate);
void no_section_harms(const Candidate& candidate);

}  // namespace parallax::exchange_conformance

#define PARALLAX_CONFORM_EXCHANGE_CASE(name, case_name, make_candidate) \
  TEST(ConformExchange_##name, case_name) {                             \
    ::parallax::exchange_conformance::case_name(make_candidate());      \
  }

// One test per promise. `name` is an identifier; make_candidate() is a Candidate.
#define CONFORM_EXCHANGE(name, make_candidate)                                               \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, everyone_contributes, make_candidate)                 \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, sums_in_every_type, make_candidate)                   \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, ordered_sums_keep_their_order, make_candidate)        \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, narrow_slices_are_widened, make_candidate)            \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, rows_count_their_ranks, make_candidate)               \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, the_absent_count_as_nothing, make_candidate)          \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, nobody_contributes, make_candidate)                   \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, slices_without_rows_are_given, make_candidate)        \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, one_slice_without_rows_is_known, make_candidate)      \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, steps_do_not_leak, make_candidate)                    \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, small_messages_split_sections, make_candidate)        \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, the_last_to_contribute_is_waited_for, make_candidate) \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, a_late_sender_is_named, make_candidate)               \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, the_next_step_may_come_early, make_candidate)         \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, memory_is_as_foretold, make_candidate)                \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, misfits_are_refused, make_candidate)                  \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, strangers_are_refused, make_candidate)                \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, nothing_follows_the_last, make_candidate)             \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, too_much_is_refused, make_candidate)                  \
  PARALLAX_CONFORM_EXCHANGE_CASE(name, no_section_harms, make_candidate)

#endif  // PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_CONFORMANCE_H_
