// SPDX-License-Identifier: Apache-2.0
// An exchange whose slice has gone in a run. See run_member.h.
#include "base/check.h"
#include "collectives/dense_exchange.h"

namespace parallax {

namespace {

// Where every rank sums one part in one sum, gets addends of all others for it, and gives each of
// them the total back, and everything is read and written where it lies.
bool sums_a_part(const ScheduleWiring& wiring, uint32_t others) {
  const Schedule& schedule = wiring.schedule();
  if (wiring.sum_cells() != 1 || schedule.pairwise || schedule.owned.count == 0 ||
      schedule.owned.count > UINT32_MAX || !wiring.alone_reads_input(wiring.owned_cell())) {
    return false;
  }
  uint32_t sends = 0, addends = 0, results = 0;
  for (uint32_t i = 0; i < schedule.ops.size(); ++i) {
    const Op& op = schedule.ops[i];
    const uint32_t counted = wiring.returned_by(i) != ScheduleWiring::kNone ? 1 : others + 1;
    if (op.kind == OpKind::kSend && op.from == kInput) sends += counted;
    if (op.kind == OpKind::kReceiveSum) addends += counted;
    if (op.kind == OpKind::kReceiveCopy) ++results;
  }
  return sends == others && addends == others && results == others;
}

}  // namespace

DenseExchange::InRuns::InRuns(DenseExchange& exchange)
    : whole(exchange),
      suits(!exchange.beside_ && exchange.finishes_ && exchange.columns_.host_count() == 1 &&
            exchange.columns_.world() > 1 &&
            sums_a_part(exchange.wiring_, exchange.columns_.world() - 1)) {}

void DenseExchange::InRuns::hold(uint64_t step, const Contribution& slice, uint32_t* pending) {
  StepBuffer& buffer = whole.step_buffer(step);
  PARALLAX_CHECK(!buffer.ended && slice.lasting && slice.result.values == slice.elements.rows &&
                 slice.result.dtype == whole.numbers_.narrow);
  buffer.held = buffer.ended = buffer.contributed = true;
  buffer.input = slice.elements;
  buffer.borrowed = slice.borrowed;
  buffer.result = ResultPlace::at(slice.result.values, slice.result.dtype, true);
  buffer.pending = pending;
}

void DenseExchange::InRuns::release(uint64_t step) {
  StepBuffer& buffer = whole.step_buffer(step);
  PARALLAX_CHECK(buffer.held);
  buffer.held = false;
  buffer.lent = true;
  whole.contribute(step,
                   {.elements = buffer.input,
                    .lasting = true,
                    .borrowed = buffer.borrowed,
                    .result = {buffer.result.values, buffer.input.dtype}},
                   buffer.pending);
}

bool DenseExchange::InRuns::brought(uint64_t step, uint32_t by) {
  StepBuffer& buffer = whole.step_buffer(step);
  const bool own = by == whole.columns_.rank();
  if (own && buffer.part_summed) return false;
  for (const uint32_t i : whole.wiring_.receives()) {
    const Op& op = whole.wiring_.ops()[i];
    const bool copies = op.kind == OpKind::kReceiveCopy;
    // All addends of the own part, or the one result of another rank's.
    if (own == copies || (!own && op.peer != by)) continue;
    OpState& state = buffer.ops[i];
    if (state.done != 0) return false;
    state.done = op.range.count;
  }
  buffer.part_summed |= own;
  buffer.has_values = true;
  --buffer.results_left;
  return true;
}

}  // namespace parallax
