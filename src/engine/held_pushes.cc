// SPDX-License-Identifier: Apache-2.0
// Holding, lending and giving up. See held_pushes.h.
#include "engine/held_pushes.h"

#include <utility>

namespace parallax {

// ---- which

uint64_t HeldPushes::bytes_of(const PullSlice& slice) const {
  const Variable& variable = *group_.runtime(slice.variable).variable;
  return slice.count * variable.row_elements * bytes_of_dtype(slice.dtype);
}

bool HeldPushes::may_stay(const Request& call) const {
  if (call.kind != RequestKind::kPush || !outbox_.lending().may_be_written()) return false;
  uint64_t bytes = 0;
  return std::all_of(call.slices.begin(), call.slices.end(), [&](const PullSlice& slice) {
    const uint64_t row_elements = group_.runtime(slice.variable).variable->row_elements;
    const uint64_t row_bytes = row_elements * bytes_of_dtype(slice.dtype);
    bytes += bytes_of(slice);
    return row_bytes >= kRowBytes || (row_bytes >= kShortRowBytes && bytes <= kShortBytes);
  });
}

// A rule of the caller's own gets no row that is not a sum yet.
bool HeldPushes::may_stay(const VariableRuntime& runtime) const {
  return !runtime.variable->traits().calls_back && group_.pulls().reads_tables(runtime.id);
}

// ---- holding

void HeldPushes::started(Request& call, int64_t now_ns) {
  const bool any = std::any_of(call.slices.begin(), call.slices.end(), [&](const PullSlice& slice) {
    return group_.runtime(slice.variable).exchange_at(call.step).holds(call.step);
  });
  if (any) calls_.push_back({.push = &call, .until_ns = now_ns + kHeldNsMax});
}

HeldPushes::Rows HeldPushes::rows_of(const Request& call) const {
  const auto found = std::find_if(calls_.begin(), calls_.end(),
                                  [&call](const Call& each) { return each.push == &call; });
  return found == calls_.end() ? Rows::kGiven : found->rows;
}

void HeldPushes::forget(const Request& call) {
  std::erase_if(calls_, [&call](const Call& each) { return each.push == &call; });
}

int64_t HeldPushes::until_ns() const {
  int64_t until_ns = kNever;
  for (const Call& each : calls_) {
    if (each.rows == Rows::kHeld) until_ns = std::min(until_ns, each.until_ns);
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
    const bool copies = each.rows == Rows::kHeld && gives_up(each, now_ns);
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
  for (Call& each : calls_) {
    if (each.push->step != step || each.rows != Rows::kHeld) continue;
    each.rows = Rows::kStay;
    settle(*each.push, true);
    // The step is applied before they are free, and waits for them no more.
    --pipeline_.state(step).contributions_open;
  }
}

void HeldPushes::settle(Request& push, bool stay) {
  for (const PullSlice& slice : push.slices) {
    Exchange& exchange = group_.runtime(slice.variable).exchange_at(push.step);
    if (!exchange.holds(push.step)) continue;
    exchange.settle(push.step, stay);
    if (stay) lend(slice, push);
  }
}

// ---- lending

// To the other owners of this host, which is the only one.
void HeldPushes::lend(const PullSlice& slice, Request& push) {
  const Partition& partition = group_.runtime(slice.variable).partition;
  Lending& lending = outbox_.lending();
  const uint64_t bytes = bytes_of(slice);
  const BufferPlace place = lending.place_of(slice.values, bytes);
  const ByteRange pages = lending.pages_of(place, slice.values, {.first = 0, .end = bytes});
  for (const uint32_t rank : group_.columns().locals()) {
    if (rank == group_.columns().rank() || partition.rows_owned(rank) == 0) continue;
    const uint64_t number = lending.lend(rank, bytes, &push.pending, pages);
    loans_.push_back({.step = push.step, .to = rank, .number = number});
  }
}

}  // namespace parallax
