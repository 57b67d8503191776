// SPDX-License-Identifier: Apache-2.0
// What goes in runs, and the sums of it. See lent_runs.h.
#include "group/lent_runs.h"

#include <algorithm>
#include <cstring>

#include "aggregate/row_kernels.h"
#include "base/check.h"

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

// The total of a block, over this rank's own addend: +0, that, and the others in their order.
template <typename Sum>
void sum_block(std::byte* own, std::span<std::byte* const> others, uint64_t offset,
               uint64_t count) {
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

}  // namespace

LentRuns::LentRuns(const Columns& columns, const Runtimes& runtimes, Outbox& outbox)
    : columns_(columns),
      runtimes_(runtimes),
      outbox_(outbox),
      usable_(columns.host_count() == 1 && columns.world() > 1 && outbox.lending().may_share()),
      others_(columns.world()),
      addends_(columns.world()) {
  for (Step& each : steps_) each.runs.resize(columns.world());
}

void LentRuns::add_variables() {
  while (offsets_.size() <= runtimes_.size()) {
    if (offsets_.empty()) {
      offsets_.push_back(0);
      continue;
    }
    const Variable& variable = *runtimes_[offsets_.size() - 1]->variable;
    const bool rows = variable.ids_declared();
    const uint64_t bytes = rows ? 0 : variable.elements() * bytes_of_sum(variable.sum_type());
    offsets_.push_back(offsets_.back() + bytes);
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

bool LentRuns::goes_in_run(uint64_t step, const PullSlice& slice) const {
  if (slice.more || slice.way != SliceWay::kItself || slice.into != slice.values) return false;
  if (slice.arriving != nullptr) return false;
  if (at(step).ways[slice.variable] != Way::kOpen) return false;
  return slice.dtype == dtype_of(runtimes_[slice.variable]->variable->sum_type()) &&
         member(step, slice.variable) != nullptr;
}

LentRuns::Given LentRuns::give(uint64_t step, std::span<const PullSlice> slices,
                               const ByteRange& borrowed, uint32_t* pending) {
  if (!usable_ || borrowed.bytes == 0) return {.count = slices.size()};
  Lending& lending = outbox_.lending();
  const std::byte* const values = slices[0].values;
  const BufferPlace start = lending.place_of(values, 1);
  if (start.buffer == 0) return {.count = 1};
  // Whole pages of what the call borrows there.
  const uint64_t before = reinterpret_cast<uintptr_t>(values) - borrowed.first;
  const WholePages whole =
      lending.whole_pages(start, borrowed.bytes - before, {.before = before, .behind = 0});
  if (whole.first > 0) return {.count = 1};
  const uint32_t first = slices[0].variable;
  size_t count = 0;
  while (count < slices.size() && slices[count].variable == first + count &&
         goes_in_run(step, slices[count]) &&
         offsets_[first + count + 1] - offsets_[first] <= whole.end) {
    ++count;
  }
  if (count == 0) return {.count = 1};
  const uint64_t bytes = offsets_[first + count] - offsets_[first];
  for (uint32_t rank = 0; rank < columns_.world(); ++rank) {
    if (rank == columns_.rank()) continue;
    if (lending.place_for(rank, values, bytes).buffer == 0) return {.count = count};
  }
  const auto parts = static_cast<uint32_t>(count);
  const ByteRange pages = lending.pages_of(start, values, {.first = 0, .end = bytes});
  for (uint32_t i = 1; i < columns_.world(); ++i) {
    // Not all of them to the same one first.
    const uint32_t to = (columns_.rank() + i) % columns_.world();
    const LentPart part = {.place = start,
                           .bytes = bytes,
                           .loan = lending.lend(to, bytes, pending, pages, parts),
                           .returns = {.first = 0, .end = bytes}};
    outbox_.send_bytes(to,
                       {.kind = SectionKind::kLentRun, .tag = first, .step = step, .first = count},
                       std::as_bytes(std::span(&part, 1)));
  }
  Step& given = at(step);
  given.any = true;
  const OwnRun own = {
      .first = first, .end = first + parts, .next = first, .values = slices[0].values};
  const auto behind = std::find_if(given.own.begin(), given.own.end(),
                                   [first](const OwnRun& each) { return each.first > first; });
  given.own.insert(behind, own);
  for (const PullSlice& slice : slices.first(count)) {
    member(step, slice.variable)
        ->hold(step,
               {.elements = {slice.values, slice.dtype},
                .lasting = true,
                .borrowed = borrowed,
                .result = {slice.values, slice.dtype}},
               pending);
  }
  lending.wake(this);
  return {.count = count, .together = true};
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
  if (!step.any) return true;
  RunMember* const left = member(step.step, variable);
  if (left == nullptr) return true;
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
  const size_t element_bytes = bytes_of_sum(runtimes_[variable]->variable->sum_type());
  LentPart lent = {.place = run.place,
                   .bytes = part.count * element_bytes,
                   .loan = run.loan,
                   .returns = {.first = 0, .end = part.count * element_bytes}};
  lent.place.offset += offsets_[variable] - offsets_[run.first] + part.first * element_bytes;
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
  for (uint32_t variable = 0; variable < ending.ways.size(); ++variable) {
    if (ending.ways[variable] != Way::kOpen || awaits(rank, step, variable)) continue;
    if (!leave(ending, variable)) return false;
  }
  return true;
}

// ---- what comes from others

bool LentRuns::on_section(uint32_t from, const Section& section) {
  if (!usable_ || from == columns_.rank() || section.header.encoding != Encoding::kBytes) {
    return false;
  }
  return section.header.kind == SectionKind::kLentRun ? take_run(from, section)
                                                      : take_summed(from, section);
}

bool LentRuns::take_run(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  LentPart part;
  if (section.payload.size() != sizeof part || header.tag >= runtimes_.size() ||
      header.first == 0 || header.first > runtimes_.size() - header.tag) {
    return false;
  }
  std::memcpy(&part, section.payload.data(), sizeof part);
  const Run run = {.first = header.tag,
                   .end = static_cast<uint32_t>(header.tag + header.first),
                   .place = part.place,
                   .loan = part.loan};
  if (part.bytes != offsets_[run.end] - offsets_[run.first]) return false;
  Step& taken = at(header.step);
  for (uint32_t variable = run.first; variable < run.end; ++variable) {
    if (member(header.step, variable) == nullptr) return false;
  }
  for (const Run& earlier : taken.runs[from]) {
    if (run.first < earlier.end && earlier.first < run.end) return false;
  }
  Lending& lending = outbox_.lending();
  if (lending.find_writable(from, run.place, part.bytes) == nullptr) {
    // It is gone, or else it lies.
    taken_back_ = !lending.was_meant(from);
    return taken_back_;
  }
  taken.runs[from].push_back(run);
  taken.any = true;
  for (uint32_t variable = run.first; variable < run.end; ++variable) {
    if (taken.ways[variable] == Way::kAlone && !hand_over(taken, from, run, variable)) return false;
  }
  if (!taken.own.empty()) lending.wake(this);
  return true;
}

bool LentRuns::take_summed(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  uint32_t count = 0;
  if (section.payload.size() != sizeof count) return false;
  std::memcpy(&count, section.payload.data(), sizeof count);
  if (header.tag >= runtimes_.size() || count == 0 || count > runtimes_.size() - header.tag) {
    return false;
  }
  for (uint32_t variable = header.tag; variable < header.tag + count; ++variable) {
    RunMember* const summed = member(header.step, variable);
    if (summed == nullptr || !summed->is_held(header.step) || !summed->brought(header.step, from)) {
      return false;
    }
  }
  return outbox_.lending().returned(from, header.first, count);
}

// ---- sums

// The older step first, and of a step the variables that were registered first: they are needed
// first. What is left of a large one waits for those before it that are ready by the next turn.
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
  const uint64_t bytes = offsets_[end] - offsets_[first];
  for (uint32_t rank = 0; rank < columns_.world(); ++rank) {
    addends_[rank] = nullptr;
    if (rank == columns_.rank()) continue;
    BufferPlace place = others_[rank]->place;
    place.offset += offsets_[first] - offsets_[others_[rank]->first];
    addends_[rank] = outbox_.lending().find_writable(rank, place, bytes);
    taken_back_ |= addends_[rank] == nullptr;  // unmapped: its owner is gone
  }
  std::byte* const values = own.values + (offsets_[first] - offsets_[own.first]);
  uint32_t variable = first;
  uint32_t summed_from = first;  // of which nobody was told
  while (variable<end&& * bytes_left> 0 && !taken_back_) {
    if (step.ways[variable] != Way::kOpen) {
      tell(step, summed_from, variable);
      summed_from = ++variable;
      continue;
    }
    RunMember& summed = *member(step.step, variable);
    const SumType type = runtimes_[variable]->variable->sum_type();
    const Part part = {.values = values,
                       .offset = offsets_[variable] - offsets_[first],
                       .range = summed.part(),
                       .type = type};
    if (!sum_part(part, &step.done[variable], bytes_left)) break;
    PARALLAX_CHECK(summed.brought(step.step, columns_.rank()));
    step.ways[variable++] = Way::kSummed;
  }
  if (!taken_back_) tell(step, summed_from, variable);
  return variable;
}

// The next blocks of a part, from `*done` of its elements on. True: it is complete.
bool LentRuns::sum_part(const Part& part, uint64_t* done, uint64_t* bytes_left) {
  Lending& lending = outbox_.lending();
  const uint64_t element_bytes = bytes_of_sum(part.type);
  while (*done<part.range.count&& * bytes_left> 0) {
    const uint64_t offset = part.offset + (part.range.first + *done) * element_bytes;
    const uint64_t into_line = reinterpret_cast<uintptr_t>(part.values + offset) % kLineBytes;
    const uint64_t bytes = std::min((part.range.count - *done) * element_bytes,
                                    into_line == 0 ? kBlockBytes : kLineBytes - into_line);
    with_sum_type(part.type, [&](auto tag) {
      using Sum = typename decltype(tag)::type;
      sum_block<Sum>(part.values + offset, addends_, offset, bytes / element_bytes);
    });
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
  const uint32_t count = end - first;
  for (uint32_t i = 1; i < columns_.world(); ++i) {
    const uint32_t to = (columns_.rank() + i) % columns_.world();
    outbox_.send_bytes(to,
                       {.kind = SectionKind::kRunSummed,
                        .tag = first,
                        .step = step.step,
                        .first = others_[to]->loan},
                       std::as_bytes(std::span(&count, 1)));
  }
}

}  // namespace parallax
