// SPDX-License-Identifier: Apache-2.0
// What is checked and noted of fused tables. See fused_calls.h.
#include "engine/fused_calls.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

namespace parallax {

namespace {

// Those of a table behind each other. Stable, and in place.
void sort_by_table(std::span<RowSlice> parts) {
  for (auto each = parts.begin(); each != parts.end(); ++each) {
    const auto place = std::upper_bound(
        parts.begin(), each, *each,
        [](const RowSlice& a, const RowSlice& b) { return a.ids.first < b.ids.first; });
    std::rotate(place, each, each + 1);
  }
}

}  // namespace

// ---- the call

Status FusedCalls::check(std::span<const parallax_slice_t> slices, const SliceTies& ties,
                         uint64_t step, const char* call) {
  if (!any()) return {};
  for (FusedSlices::Set& set : slices_.all()) {
    PARALLAX_RETURN_IF_ERROR(check_set(set, step, call));
  }
  for (size_t at = 0; at < slices.size(); ++at) {
    const bool fused = checks_.member_of(slices[at]) != Registry::kNotFused;
    if (!fused || ties.again(at)) continue;
    PARALLAX_RETURN_IF_ERROR(check_rows(slices, at, ties, step, call));
  }
  return {};
}

Status FusedCalls::check_set(FusedSlices::Set& set, uint64_t step, const char* call) {
  VariableRuntime& runtime = group_.runtime(set.number);
  const bool nothing_before =
      pipeline_.state(step).contributed[set.number] == Contributed::kNothing;
  const bool in_one_call =
      nothing_before && !set.tied && !set.more && set.count == runtime.variable->fused.size();
  set.as_parts = in_one_call || takes_several_calls(runtime);
  if (set.as_parts) return {};
  const Status there = group_.reserve_sum(runtime, pipeline_.window().calls_slot(step));
  if (there.ok()) return {};
  return limit(std::string(call) + ": variable '" + runtime.variable->name +
               "': the slices of several calls need a sum of their own: " + there.message() +
               "; nothing of this call was added")
      .about_variable(runtime.variable->id);
}

// One slice alone has never too many. Of all tables of a set there is room for as many as each may
// have.
Status FusedCalls::check_rows(std::span<const parallax_slice_t> slices, size_t at,
                              const SliceTies& ties, uint64_t step, const char* call) {
  const StepState& state = pipeline_.state(step);
  const Variable& variable = checks_.variable_of(slices[at]);
  uint64_t given = state.member_rows[checks_.member_of(slices[at])];
  const bool before = given > 0;
  for (size_t i = at;;) {
    given += checks_.rows_of(slices[i]);
    i = ties.next(i);
    if (i == 0) break;
  }
  if (given <= variable.rows_max || variable.rows <= variable.rows_max) return {};
  // Then those that differ are counted.
  std::unordered_set<int64_t> rows;
  const auto add = [&rows](const RowIds& ids, uint64_t count, int64_t first, int64_t end) {
    for (uint64_t i = 0; i < count; ++i) {
      const int64_t id = ids.at(i);
      if (id >= first && id < end) rows.insert(id);
    }
  };
  const auto first = static_cast<int64_t>(checks_.slice_of(slices[at]).ids.first);
  const int64_t end = first + static_cast<int64_t>(variable.rows);
  if (before) {
    const RowSlice summed = sum_of(group_.runtime(checks_.number_of(slices[at])), step).rows();
    add(summed.ids, summed.count, first, end);
  }
  for (size_t i = at;;) {
    const PullSlice slice = checks_.slice_of(slices[i]);
    add(slice.ids, slice.count, first, end);
    i = ties.next(i);
    if (i == 0) break;
  }
  if (rows.size() <= variable.rows_max) return {};
  return limit(std::string(call) + ": variable '" + variable.name + "': the slices of step " +
               std::to_string(step) +
               " have more than rows_max = " + std::to_string(variable.rows_max) +
               " distinct rows together; nothing of this call was added; register a larger "
               "rows_max")
      .about_variable(variable.id)
      .about_field("rows_max");
}

SliceWay FusedCalls::take(size_t at, const PullSlice& slice, StepState& state) {
  const VariableRuntime& runtime = group_.runtime(slice.variable);
  const FusedSlices::Set& set = slices_.of(slice.variable);
  uint32_t& given = state.members_given[slice.variable];
  state.member_rows[slice.member] += slice.count;
  const Contributed came = slice.more ? Contributed::kPart : Contributed::kAll;
  const Contributed before = std::exchange(state.contributed_members[slice.member], came);
  if (came == Contributed::kAll && before != Contributed::kAll) ++given;
  Contributed& contributed = state.contributed[slice.variable];
  const bool first = contributed == Contributed::kNothing;
  if (first) {
    contributed = Contributed::kPart;
    ++state.parts_left;
  }
  if (!set.as_parts) {
    StepSum& sum = sum_of(runtime, state.step);
    if (first) sum.clear(state.step);
    sum.add_rows(slice.rows());
  }
  if (at != set.last) return set.as_parts ? SliceWay::kWithAnother : SliceWay::kInSumYet;
  const bool all = given == runtime.variable->fused.size();
  if (all) {
    contributed = Contributed::kAll;
    --state.parts_left;
  }
  if (!set.as_parts) return all ? SliceWay::kInSum : SliceWay::kInSumYet;
  if (!all) return SliceWay::kSomeParts;
  return set.count == given && !set.tied ? SliceWay::kAllParts : SliceWay::kLastParts;
}

Status FusedCalls::check_wait(uint32_t number, uint32_t member, uint64_t step,
                              const std::function<bool(uint32_t id)>& is_called) const {
  const Variable& whole = *group_.runtime(number).variable;
  const StepState& state = pipeline_.state(step);
  if (state.members_given[number] == whole.fused.size()) return {};
  const Variable* missing = nullptr;
  size_t count = 0;
  for (size_t i = 0; i < whole.fused.size(); ++i) {
    const Variable& table = *whole.fused[i].variable;
    const bool given = state.contributed_members[whole.first_member + i] == Contributed::kAll;
    if (given || is_called(table.id)) continue;
    if (count++ == 0) missing = &table;
  }
  if (count == 0) return {};
  const Variable& waited = *whole.fused[member - whole.first_member].variable;
  return bad_state("the reduce of variable '" + waited.name + "' goes with that of '" +
                   missing->name + "'" +
                   (count > 1 ? " and " + std::to_string(count - 1) + " more" : "") +
                   ", still to be called in step " + std::to_string(step) +
                   ": wait once all are, or after step_end; or set fuse_tables to on")
      .about_variable(waited.id);
}

// ---- contributing

// The slices of its set, of which it is the last.
Contribution FusedCalls::parts_until(const PullSlice& last, Request& request) const {
  std::vector<RowSlice>& parts = request.parts;
  const size_t before = parts.size();
  bool tied = false;
  for (const PullSlice& each : std::span(std::as_const(request.slices).data(), &last + 1)) {
    if (each.variable != last.variable) continue;
    parts.push_back(each.rows());
    tied = tied || each.again;
  }
  if (tied) sort_by_table(std::span(parts).subspan(before));
  Contribution contribution;
  contribution.parts = std::span(parts).subspan(before);
  contribution.coalesced = group_.pulls().pulled_ids(last.variable);
  if (last.way == SliceWay::kSomeParts) contribution.which_parts = Contribution::Parts::kSome;
  if (last.way == SliceWay::kLastParts) contribution.which_parts = Contribution::Parts::kLast;
  return contribution;
}

bool FusedCalls::end_parts(const VariableRuntime& runtime, StepState& state) const {
  if (runtime.variable->fused.empty() || !takes_several_calls(runtime)) return false;
  // Those that have come were all.
  runtime.exchange_at(state.step)
      .contribute(state.step, {.which_parts = Contribution::Parts::kLast}, &state.sums_pending);
  return true;
}

}  // namespace parallax
