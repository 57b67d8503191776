// SPDX-License-Identifier: Apache-2.0
// Holding, lending and giving up. See held_pushes.h.
#include "engine/held_pushes.h"

#include <utility>

namespace parallax {

// ---- which

uint64_t HeldPushes::bytes_of(const Request& call) const {
  if (call.kind != RequestKind::kPush || group_.columns().host_count() > 1 ||
      !outbox_.lending().may_be_written()) {
    return 0;
  }
  uint64_t bytes = 0;
  for (const PullSlice& slice : call.slices) {
    const Variable& variable = *group_.runtime(slice.variable).variable;
    if (!variable.ids_declared() || slice.every_row || !variable.fused.empty()) continue;
    bytes += slice.count * variable.row_elements * bytes_of_dtype(slice.dtype);
  }
  return bytes;
}

// A rule of the caller's own gets no row that is not a sum yet.
bool HeldPushes::may_stay(const PullSlice& slice, uint64_t call_bytes) const {
  const Variable& variable = *group_.runtime(slice.variable).variable;
  const uint64_t row_bytes = variable.row_elements * bytes_of_dtype(slice.dtype);
  return row_bytes >= (call_bytes <= kShortBytes ? kShortRowBytes : kRowBytes) &&
         outbox_.lending().place_of(slice.values, 1).buffer != 0 && !variable.traits().calls_back &&
         group_.pulls().reads_tables(slice.variable);
}

// ---- holding

void HeldPushes::hold(Request& call, int64_t now_ns) {
  call.rows_given = RowsGiven::kHeld;
  calls_.push_back({.push = &call, .until_ns = now_ns + kHeldNsMax});
}

int64_t HeldPushes::until_ns() const {
  int64_t until_ns = kNever;
  for (const Call& each : calls_) {
    // What its step still waits for ends the hold, too.
    if (pipeline_.window().is_ending(each.push->step)) continue;
    until_ns = std::min(until_ns, each.until_ns);
  }
  return until_ns;
}

void HeldPushes::advance(int64_t now_ns) {
  std::erase_if(loans_, [this](const Loan& loan) {
    if (!group_.pulls().has_applied(loan.to, loan.step)) return false;
    // Unless it was taken back.
    static_cast<void>(outbox_.lending().returned(loan.to, loan.number));
    return true;
  });
  std::erase_if(calls_, [&](Call& each) {
    const bool copies = gives_up(each, now_ns);
    if (copies) settle(*each.push, false);
    return copies;
  });
}

bool HeldPushes::gives_up(Call& call, int64_t now_ns) const {
  if (pipeline_.window().is_ending(call.push->step)) return false;
  if (call.push->waiter.there.load(std::memory_order_acquire)) return true;
  if (now_ns < call.until_ns) return false;
  // The pass in which they were coalesced may have taken as long: it does not count.
  if (std::exchange(call.again, true)) return true;
  call.until_ns = now_ns + kHeldNsMax;
  return false;
}

void HeldPushes::end(uint64_t step) {
  std::erase_if(calls_, [&](Call& each) {
    if (each.push->step != step) return false;
    if (settle(*each.push, true)) {
      each.push->rows_given = RowsGiven::kStay;
      // The step is applied before they are free, and waits for them no more.
      --pipeline_.state(step).contributions_open;
    }
    return true;
  });
}

// True: some stay.
bool HeldPushes::settle(Request& push, bool stay) {
  push.rows_given = RowsGiven::kAtOnce;
  bool any = false;
  for (const PullSlice& slice : push.slices) {
    Exchange& exchange = group_.runtime(slice.variable).exchange_at(push.step);
    if (!exchange.holds(push.step) || !exchange.settle(push.step, stay)) continue;
    lend(slice, push);
    any = true;
  }
  return any;
}

// ---- lending

// To the other owners of this host, which is the only one.
void HeldPushes::lend(const PullSlice& slice, Request& push) {
  const VariableRuntime& runtime = group_.runtime(slice.variable);
  const Partition& partition = runtime.partition;
  Lending& lending = outbox_.lending();
  const uint64_t bytes = slice.count * runtime.variable->row_elements * bytes_of_dtype(slice.dtype);
  const BufferPlace place = lending.place_of(slice.values, bytes);
  const ByteRange pages = lending.pages_of(place, slice.values, {.first = 0, .end = bytes});
  for (const uint32_t rank : group_.columns().locals()) {
    if (rank == group_.columns().rank() || partition.rows_owned(rank) == 0) continue;
    const uint64_t number = lending.lend(rank, bytes, &push.pending, pages);
    loans_.push_back({.step = push.step, .to = rank, .number = number});
  }
}

}  // namespace parallax
