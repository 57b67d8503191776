// SPDX-License-Identifier: Apache-2.0
// What goes in runs, and the sums of it. See lent_runs.h.
#include "group/lent_runs.h"

#include <algorithm>
#include <cstring>

#include "aggregate/row_kernels.h"
#include "aggregate/scaled_numbers.h"
#include "base/check.h"
#include "base/sealed_memory.h"

namespace parallax {

namespace {

// Of each addend: a block of all of them stays in a core's cache, and a turn is some 50 us.
constexpr uint64_t kBlockBytes = 64 * 1024;
constexpr uint64_t kTurnBytes = 16 * kBlockBytes;
// Copies and sums take an eighth longer from within a line on: what lies before the first one in a
// part is a block of its own.
constexpr uint64_t kLineBytes = 64;
// Of a rank and step, without more memory.
constexpr size_t kRunsReserved = 64;

// Of totals that are made beside their addends.
constexpr uint64_t kPieceElements = 1024;

// The total of a block, over this rank's own addend: +0, that, and the others in their order.
template <typename Sum>
void sum_over(std::byte* own, std::span<std::byte* const> others, uint64_t offset, uint64_t count) {
  Sum* const total = reinterpret_cast<Sum*>(own);
  bool first = true;
  for (const std::byte* const each : others) {
    if (each == nullptr) continue;
    if (first) {
      add_to_first<Sum, Sum>(total, each + offset, count);
    } else {
      add_to_sum<Sum, Sum>(total, each + offset, count);
    }
    first = false;
  }
}

// The total of a block, times a factor, where this rank's own addend was: +0 and all in the order
// of ranks.
template <typename In>
void sum_beside(std::byte* own, std::span<std::byte* const> others, uint64_t offset, uint64_t count,
                double factor, uint32_t dtype) {
  using Sum = sum_of_t<In>;
  std::array<Sum, kPieceElements> sums;
  for (uint64_t at = 0; at < count; at += kPieceElements) {
    const uint64_t piece = std::min(kPieceElements, count - at);
    const uint64_t bytes = at * sizeof(In);
    bool first = true;
    for (const std::byte* const each : others) {
      const std::byte* const addend = (each == nullptr ? own : each + offset) + bytes;
      if (first) {
        start_sum<In, Sum>(sums.data(), addend, piece);
      } else {
        add_to_sum<In, Sum>(sums.data(), addend, piece);
      }
      first = false;
    }
    give_numbers(reinterpret_cast<const std::byte*>(sums.data()), piece, factor,
                 {.values = own + bytes, .dtype = dtype, .sum = sum_type_of(dtype)});
  }
}

}  // namespace

LentRuns::LentRuns(const Columns& columns, const Runtimes& runtimes, Outbox& outbox,
                   Entries& entries, const HostStaging& staging)
    : columns_(columns),
      runtimes_(runtimes),
      outbox_(outbox),
      entries_(entries),
      staging_(staging),
      notes_(columns, entries),
      usable_(columns.host_count() == 1 && columns.world() > 1 && outbox.lending().may_share()),
      others_(columns.world()),
      loans_(columns.world()),
      bases_(columns.world()),
      addends_(columns.world()) {
  for (Step& each : steps_) each.runs.resize(columns.world());
}

void LentRuns::add_variables() {
  for (uint32_t bits = 0; bits < offsets_.size(); ++bits) {
    std::vector<uint64_t>& offsets = offsets_[bits];
    const uint64_t unit = uint64_t{1} << bits;
    if (offsets.empty()) offsets.push_back(0);
    while (offsets.size() <= runtimes_.size()) {
      const Variable& variable = *runtimes_[offsets.size() - 1]->variable;
      const bool rows = variable.ids_declared();
      const uint64_t bytes = rows ? 0 : variable.elements() * bytes_of_dtype(variable.dtype);
      offsets.push_back(offsets.back() + (bytes + unit - 1) / unit * unit);
    }
  }
  for (Step& each : steps_) {
    each.ways.resize(runtimes_.size());
    each.done.resize(runtimes_.size());
    if (!usable_) continue;
    each.own.reserve(kRunsReserved);
    for (std::vector<Run>& runs : each.runs) runs.reserve(kRunsReserved);
  }
}

void LentRuns::open(uint64_t step) {
  Step& opened = at(step);
  opened.step = step;
  opened.reads_notes = opened.any_alone = false;
  opened.staged_bytes = 0;
  notes_.open(step);
  std::fill(opened.ways.begin(), opened.ways.end(), Way::kOpen);
  if (!opened.any) return;
  opened.any = false;
  std::fill(opened.done.begin(), opened.done.end(), uint64_t{0});
  opened.own.clear();
  for (std::vector<Run>& runs : opened.runs) runs.clear();
}

RunMember* LentRuns::member(uint64_t step, uint32_t variable) const {
  return runtimes_[variable]->exchange_at(step).run_member();
}

// ---- what this rank gives

int32_t LentRuns::most_urgent(uint32_t first, uint32_t end) const {
  int32_t priority = runtimes_[first]->variable->priority;
  for (uint32_t variable = first + 1; variable < end; ++variable) {
    priority = std::max(priority, runtimes_[variable]->variable->priority);
  }
  return priority;
}

bool LentRuns::goes_in_run(uint64_t step, const PullSlice& slice) const {
  if (slice.more || slice.way != SliceWay::kItself || slice.into != slice.values) return false;
  if (slice.arriving != nullptr) return false;
  if (at(step).ways[slice.variable] != Way::kOpen) return false;
  return slice.dtype == runtimes_[slice.variable]->variable->dtype &&
         member(step, slice.variable) != nullptr;
}

// How many of the slices go in one run that has so many bytes at most, and how they are aligned.
size_t LentRuns::count_run(uint64_t step, std::span<const PullSlice> slices, uint64_t bytes_max,
                           RunAlignment* alignment) const {
  const std::byte* const values = slices[0].values;
  const std::byte* end = values;
  size_t count = 0;
  for (; count < slices.size(); ++count) {
    const PullSlice& next = slices[count];
    if (next.variable != slices[0].variable + count || !goes_in_run(step, next)) break;
    const uint64_t bytes = offset_in(0, next.variable, next.variable + 1);
    const uint64_t until = static_cast<uint64_t>(next.values - values) + bytes;
    if (until > bytes_max || !alignment->take(end, next.values)) break;
    end = next.values + bytes;
  }
  return count;
}

LentRuns::Given LentRuns::give(uint64_t step, std::span<const PullSlice> slices,
                               const ByteRange& borrowed, uint32_t* pending) {
  if (!usable_ || borrowed.bytes == 0) return {.count = slices.size()};
  if (!goes_in_run(step, slices[0])) return {.count = 1};
  Lending& lending = outbox_.lending();
  const std::byte* const values = slices[0].values;
  const BufferPlace start = lending.place_of(values, 1);
  if (start.buffer == 0) return {.count = 1};
  // Whole pages of what the call borrows there.
  const uint64_t before = reinterpret_cast<uintptr_t>(values) - borrowed.first;
  const WholePages whole =
      lending.whole_pages(start, borrowed.bytes - before, {.before = before, .behind = 0});
  const uint32_t first = slices[0].variable;
  RunAlignment alignment(values);
  const size_t count = whole.first > 0 ? 0 : count_run(step, slices, whole.end, &alignment);
  if (count == 0) return {.count = 1};
  const uint64_t bytes = bytes_of(alignment.bits(), first, first + static_cast<uint32_t>(count));
  if (!reaches_all(values, bytes)) return {.count = count};
  lend(step, slices.first(count),
       {.values = slices[0].values, .alignment = alignment.bits(), .borrowed = borrowed}, pending);
  return {.count = count, .together = true};
}

// All others read and write there.
bool LentRuns::reaches_all(const std::byte* values, uint64_t bytes) const {
  for (uint32_t rank = 0; rank < columns_.world(); ++rank) {
    if (rank == columns_.rank()) continue;
    if (outbox_.lending().place_for(rank, values, bytes).buffer == 0) return false;
  }
  return true;
}

void LentRuns::lend(uint64_t step, std::span<const PullSlice> slices, const Place& place,
                    uint32_t* pending) {
  Lending& lending = outbox_.lending();
  const uint32_t first = slices[0].variable;
  const auto parts = static_cast<uint32_t>(slices.size());
  const uint64_t bytes = bytes_of(place.alignment, first, first + parts);
  const BufferPlace start = lending.place_of(place.values, bytes);
  const ByteRange pages = lending.pages_of(start, place.values, {.first = 0, .end = bytes});
  const RunNote note = {.kind = RunNote::Kind::kLent,
                        .first = first,
                        .count = parts,
                        .alignment_bits = place.alignment,
                        .place = start,
                        .bytes = bytes};
  for (uint32_t to = 0; to < columns_.world(); ++to) {
    if (to != columns_.rank()) loans_[to] = lending.lend(to, bytes, pending, pages, parts);
  }
  say(step, note);
  Step& given = at(step);
  given.any = true;
  read_notes(given);
  const OwnRun own = {.first = first,
                      .end = first + parts,
                      .alignment = place.alignment,
                      .next = first,
                      .told = first,
                      .priority = most_urgent(first, first + parts),
                      .values = place.values};
  const auto behind = std::find_if(given.own.begin(), given.own.end(), [&own](const OwnRun& each) {
    return each.priority < own.priority ||
           (each.priority == own.priority && each.first > own.first);
  });
  given.own.insert(behind, own);
  for (const PullSlice& slice : slices) {
    std::byte* const values = place.values + offset_in(place.alignment, first, slice.variable);
    member(step, slice.variable)
        ->hold(step,
               {.elements = {values, slice.dtype},
                .lasting = true,
                .borrowed = place.borrowed,
                .result = {values, slice.dtype}},
               pending);
  }
  lending.wake(this, own.priority);
}

bool LentRuns::goes_staged(uint64_t step, const PullSlice& slice) const {
  if (slice.more || slice.way != SliceWay::kItself || slice.arriving != nullptr) return false;
  if (slice.leaving != nullptr || at(step).ways[slice.variable] != Way::kOpen) return false;
  if (slice.dtype != runtimes_[slice.variable]->variable->dtype) return false;
  if (member(step, slice.variable) == nullptr) return false;
  return slice.into != slice.values || outbox_.lending().place_of(slice.values, 1).buffer == 0;
}

size_t LentRuns::stage(uint64_t step, std::span<PullSlice> slices, uint32_t* pending) {
  constexpr uint32_t kAlignmentBits = std::bit_width(kLineBytes) - 1;
  const std::span<std::byte> slab = usable_ ? staging_.slab(step) : std::span<std::byte>();
  if (slab.empty() || !notes_.usable() || !outbox_.lending().may_be_written()) return 0;
  Step& given = at(step);
  const uint64_t most = columns_.world() == 2 ? kStagedOfTwoBytesMax : slab.size();
  const uint64_t room = std::min(slab.size() - given.staged_bytes, most);
  const uint32_t first = slices[0].variable;
  uint32_t count = 0;
  while (count < slices.size() && slices[count].variable == first + count &&
         goes_staged(step, slices[count]) &&
         bytes_of(kAlignmentBits, first, first + count + 1) <= room) {
    ++count;
  }
  if (count == 0) return 0;
  const uint64_t bytes = bytes_of(kAlignmentBits, first, first + count);
  const auto at_slab = slab.subspan(given.staged_bytes, bytes);
  if (!reaches_all(at_slab.data(), bytes)) return 0;
  const auto staged = slices.first(count);
  for (PullSlice& slice : staged) {
    slice.staged = at_slab.data() + offset_in(kAlignmentBits, first, slice.variable);
    std::memcpy(slice.staged, slice.values, offset_in(0, slice.variable, slice.variable + 1));
  }
  // Others may write to whole pages.
  const uint64_t page = bytes_of_page();
  const uint64_t used =
      std::min((bytes + page - 1) / page * page, slab.size() - given.staged_bytes);
  given.staged_bytes += used;
  lend(step, staged,
       {.values = at_slab.data(),
        .alignment = kAlignmentBits,
        .borrowed = ByteRange::at(at_slab.data(), used)},
       pending);
  return count;
}

// ---- what goes alone

const LentRuns::Run* LentRuns::find(const std::vector<Run>& runs, uint32_t variable) {
  for (const Run& run : runs) {
    if (variable >= run.first && variable < run.end) return &run;
  }
  return nullptr;
}

bool LentRuns::gave(const Step& step, uint32_t variable) const {
  return std::any_of(step.own.begin(), step.own.end(), [variable](const OwnRun& run) {
    return variable >= run.first && variable < run.end;
  });
}

bool LentRuns::awaits(uint32_t rank, uint64_t step, uint32_t variable) const {
  const Step& asked = at(step);
  return asked.any && asked.ways[variable] == Way::kOpen &&
         (rank == columns_.rank() ? gave(asked, variable)
                                  : find(asked.runs[rank], variable) != nullptr);
}

bool LentRuns::leave(Step& step, uint32_t variable) {
  step.ways[variable] = Way::kAlone;
  RunMember* const left = member(step.step, variable);
  if (left == nullptr) return true;
  step.any_alone = true;
  read_notes(step);
  if (!step.any) return true;
  if (left->is_held(step.step)) left->release(step.step);
  for (uint32_t rank = 0; rank < columns_.world(); ++rank) {
    const Run* const run = find(step.runs[rank], variable);
    if (run != nullptr && !hand_over(step, rank, *run, variable)) return false;
  }
  return true;
}

// As the section that it would be alone.
bool LentRuns::hand_over(const Step& step, uint32_t from, const Run& run, uint32_t variable) {
  const Range part = member(step.step, variable)->part();
  const size_t element_bytes = bytes_of_dtype(runtimes_[variable]->variable->dtype);
  LentPart lent = {.place = run.place,
                   .bytes = part.count * element_bytes,
                   .loan = run.loan,
                   .returns = {.first = 0, .end = part.count * element_bytes}};
  lent.place.offset += offset_in(run.alignment, run.first, variable) + part.first * element_bytes;
  const Section section = {.header = {.kind = SectionKind::kDenseReduce,
                                      .encoding = Encoding::kLent,
                                      .tag = variable,
                                      .step = step.step,
                                      .first = part.first,
                                      .count = static_cast<uint32_t>(part.count),
                                      .payload_bytes = sizeof lent},
                           .payload = std::as_bytes(std::span(&lent, 1))};
  return runtimes_[variable]->exchange_at(step.step).on_section(from, section);
}

bool LentRuns::ended(uint32_t rank, uint64_t step) {
  if (!usable_) return true;
  Step& ending = at(step);
  // What it has said before.
  if (rank != columns_.rank()) read_notes(rank, ending);
  for (uint32_t variable = 0; variable < ending.ways.size(); ++variable) {
    if (ending.ways[variable] != Way::kOpen || awaits(rank, step, variable)) continue;
    if (!leave(ending, variable)) return false;
  }
  return true;
}

// ---- sums

// The older step first, and of a step the run with the most urgent variable, then the variables
// that were registered first: they are needed first. What is left of a large one waits for those
// before it that are ready by the next turn.
bool LentRuns::read_lent() {
  uint64_t bytes_left = kTurnBytes;
  const size_t older = steps_[0].step < steps_[1].step ? 0 : 1;
  for (const size_t i : {older, 1 - older}) {
    for (OwnRun& own : steps_[i].own) {
      sum(steps_[i], own, &bytes_left);
      if (taken_back_) return false;
      if (bytes_left == 0) return true;
    }
  }
  return false;
}

// What is ready of a run, as far as the turn goes.
void LentRuns::sum(Step& step, OwnRun& own, uint64_t* bytes_left) {
  while (own.next < own.end && step.ways[own.next] != Way::kOpen) ++own.next;
  uint32_t variable = own.next;
  while (variable<own.end&& * bytes_left> 0 && !taken_back_) {
    const uint32_t end = find_others(step, own, variable);
    variable = end == variable ? variable + 1 : sum_ready(step, own, variable, end, bytes_left);
  }
}

// Up to which variable all others have lent the same, by one run each; `variable`: it is not to be
// summed, or not yet.
uint32_t LentRuns::find_others(const Step& step, const OwnRun& own, uint32_t variable) {
  if (step.ways[variable] != Way::kOpen) return variable;
  uint32_t end = own.end;
  for (uint32_t rank = 0; rank < columns_.world(); ++rank) {
    if (rank == columns_.rank()) continue;
    others_[rank] = find(step.runs[rank], variable);
    if (others_[rank] == nullptr) return variable;
    end = std::min(end, others_[rank]->end);
  }
  return end;
}

// Of variables that all others have lent by `others_`. Returns the first that is left of them.
uint32_t LentRuns::sum_ready(Step& step, const OwnRun& own, uint32_t first, uint32_t end,
                             uint64_t* bytes_left) {
  // Where those lie, until messages are read again.
  for (uint32_t rank = 0; rank < columns_.world(); ++rank) {
    bases_[rank] = nullptr;
    if (rank == columns_.rank()) continue;
    const Run& run = *others_[rank];
    BufferPlace place = run.place;
    place.offset += offset_in(run.alignment, run.first, first);
    bases_[rank] =
        outbox_.lending().find_writable(rank, place, bytes_of(run.alignment, first, end));
    taken_back_ |= bases_[rank] == nullptr;  // unmapped: its owner is gone
  }
  uint32_t variable = first;
  uint32_t summed_from = first;  // of which nobody was told
  while (variable<end&& * bytes_left> 0 && !taken_back_) {
    if (step.ways[variable] != Way::kOpen) {
      tell(step, summed_from, variable);
      summed_from = ++variable;
      continue;
    }
    RunMember& summed = *member(step.step, variable);
    for (uint32_t rank = 0; rank < columns_.world(); ++rank) {
      if (rank == columns_.rank()) continue;
      addends_[rank] = bases_[rank] + offset_in(others_[rank]->alignment, first, variable);
    }
    const Part part = {.values = own.values + offset_in(own.alignment, own.first, variable),
                       .range = summed.part(),
                       .dtype = runtimes_[variable]->variable->dtype,
                       .factor = summed.factor(),
                       .in_order = summed.in_order()};
    if (!sum_part(part, &step.done[variable], bytes_left)) break;
    PARALLAX_CHECK(summed.brought(step.step, columns_.rank()));
    step.ways[variable++] = Way::kSummed;
  }
  if (!taken_back_) tell(step, summed_from, variable);
  return variable;
}

// Where this rank's own addend lies; it is in the cache then.
void LentRuns::sum_block(const Part& part, uint64_t offset, uint64_t count) {
  std::byte* const own = part.values + offset;
  with_dtype(part.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if constexpr (!kNarrow<In>) {
      if (!part.in_order) {
        sum_over<In>(own, addends_, offset, count);
        if (part.factor != 1) scale_numbers(own, count, part.factor, sum_type_of(part.dtype));
        return;
      }
    }
    sum_beside<In>(own, addends_, offset, count, part.factor, part.dtype);
  });
}

// The next blocks of a part, from `*done` of its elements on. True: it is complete.
bool LentRuns::sum_part(const Part& part, uint64_t* done, uint64_t* bytes_left) {
  Lending& lending = outbox_.lending();
  const uint64_t element_bytes = bytes_of_dtype(part.dtype);
  while (*done<part.range.count&& * bytes_left> 0) {
    const uint64_t offset = (part.range.first + *done) * element_bytes;
    const uint64_t into_line = reinterpret_cast<uintptr_t>(part.values + offset) % kLineBytes;
    const uint64_t bytes = std::min((part.range.count - *done) * element_bytes,
                                    into_line == 0 ? kBlockBytes : kLineBytes - into_line);
    sum_block(part, offset, bytes / element_bytes);
    // All of them, before anything is made of what was read.
    for (uint32_t rank = 0; rank < columns_.world(); ++rank) {
      if (rank != columns_.rank()) taken_back_ |= !lending.was_meant(rank);
    }
    if (taken_back_) return false;
    for (std::byte* const each : addends_) {
      if (each == nullptr) continue;
      std::memcpy(each + offset, part.values + offset, bytes);
      lending.count_read(bytes);
      lending.count_written(bytes);
    }
    *done += bytes / element_bytes;
    *bytes_left -= std::min(bytes, *bytes_left);
  }
  return *done == part.range.count;
}

void LentRuns::tell(const Step& step, uint32_t first, uint32_t end) {
  if (first == end) return;
  const RunNote note = {.kind = RunNote::Kind::kSummed, .first = first, .count = end - first};
  for (uint32_t to = 0; to < columns_.world(); ++to) {
    if (to != columns_.rank()) loans_[to] = others_[to]->loan;
  }
  say(step.step, note);
}

}  // namespace parallax
