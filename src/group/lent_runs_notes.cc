// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other of runs, in notes and in sections. See lent_runs.h.
#include <cstring>

#include "group/lent_runs.h"

namespace parallax {

// ---- what this rank says

// To all others, with loans_.
void LentRuns::say(uint64_t step, const RunNote& note) {
  if (notes_.say(step, note, loans_)) return;
  const bool lends = note.kind == RunNote::Kind::kLent;
  for (uint32_t i = 1; i < columns_.world(); ++i) {
    // Not all of them to the same one first.
    const uint32_t to = (columns_.rank() + i) % columns_.world();
    SectionHeader header = {.kind = SectionKind::kLentRun, .tag = note.first, .step = step};
    if (lends) {
      header.first = note.count;
      const LentRunPart part = {.part = {.place = note.place,
                                         .bytes = note.bytes,
                                         .loan = loans_[to],
                                         .returns = {.first = 0, .end = note.bytes}},
                                .alignment_bits = note.alignment_bits};
      outbox_.send_bytes(to, header, std::as_bytes(std::span(&part, 1)));
    } else {
      header.kind = SectionKind::kRunSummed;
      header.first = loans_[to];
      outbox_.send_bytes(to, header, std::as_bytes(std::span(&note.count, 1)));
    }
  }
}

// ---- what comes from others

bool LentRuns::on_section(uint32_t from, const Section& section) {
  if (!usable_ || from == columns_.rank() || section.header.encoding != Encoding::kBytes) {
    return false;
  }
  const SectionHeader& header = section.header;
  RunNote said;
  said.first = header.tag;
  if (header.kind == SectionKind::kLentRun) {
    LentRunPart run;
    if (section.payload.size() != sizeof run || header.first > UINT32_MAX) return false;
    std::memcpy(&run, section.payload.data(), sizeof run);
    if (run.alignment_bits > kRunAlignmentBits) return false;
    said.kind = RunNote::Kind::kLent;
    said.count = static_cast<uint32_t>(header.first);
    said.alignment_bits = static_cast<uint32_t>(run.alignment_bits);
    said.place = run.part.place;
    said.bytes = run.part.bytes;
    said.loan = run.part.loan;
  } else {
    if (section.payload.size() != sizeof said.count) return false;
    std::memcpy(&said.count, section.payload.data(), sizeof said.count);
    said.kind = RunNote::Kind::kSummed;
    said.loan = header.first;
  }
  return take(from, header.step, said);
}

bool LentRuns::take(uint32_t from, uint64_t step, const RunNote& said) {
  if (said.first >= runtimes_.size() || said.count == 0 ||
      said.count > runtimes_.size() - said.first) {
    return false;
  }
  for (uint32_t variable = said.first; variable < said.first + said.count; ++variable) {
    if (member(step, variable) == nullptr) return false;
  }
  switch (said.kind) {
    case RunNote::Kind::kLent:
      return take_run(from, step, said);
    case RunNote::Kind::kSummed:
      return take_summed(from, step, said);
  }
  return false;
}

bool LentRuns::take_run(uint32_t from, uint64_t step, const RunNote& said) {
  if (said.alignment_bits > kRunAlignmentBits) return false;
  const Run run = {.first = said.first,
                   .end = said.first + said.count,
                   .alignment = said.alignment_bits,
                   .place = said.place,
                   .loan = said.loan};
  if (said.bytes != bytes_of(run.alignment, run.first, run.end)) return false;
  Step& taken = at(step);
  for (const Run& earlier : taken.runs[from]) {
    if (run.first < earlier.end && earlier.first < run.end) return false;
  }
  Lending& lending = outbox_.lending();
  if (lending.find_writable(from, run.place, said.bytes) == nullptr) {
    // It is gone, or else it lies.
    taken_back_ = !lending.was_meant(from);
    return taken_back_;
  }
  taken.runs[from].push_back(run);
  taken.any = true;
  for (uint32_t variable = run.first; variable < run.end; ++variable) {
    if (taken.ways[variable] == Way::kAlone && !hand_over(taken, from, run, variable)) return false;
  }
  if (!taken.own.empty()) lending.wake(this, taken.own[0].priority);
  return true;
}

bool LentRuns::take_summed(uint32_t from, uint64_t step, const RunNote& said) {
  for (uint32_t variable = said.first; variable < said.first + said.count; ++variable) {
    RunMember& summed = *member(step, variable);
    if (!summed.is_held(step) || !summed.brought(step, from)) return false;
  }
  return outbox_.lending().returned(from, said.loan, said.count);
}

// ---- notes

// From now on. What was said before is read by the next look.
void LentRuns::read_notes(Step& step) {
  step.reads_notes = notes_.usable();
  if (step.reads_notes) entries_.await_unseen(this);
}

bool LentRuns::read_notes(uint32_t from, Step& step) {
  bool any = false;
  for (RunNote said; notes_.read(from, step.step, &said);) {
    any = true;
    if (!take(from, step.step, said)) {
      outbox_.lending().misfit(from);
      break;
    }
  }
  return any;
}

// Of what this rank has given in runs others tell until it is delivered, and of what goes alone
// they may have lent what this rank sums.
bool LentRuns::awaits_notes(Step& step) const {
  bool any = step.any_alone;
  for (OwnRun& own : step.own) {
    while (own.told < own.end &&
           runtimes_[own.told]->exchange_at(step.step).state(step.step).delivered) {
      ++own.told;
    }
    any |= own.told < own.end;
  }
  return any;
}

EntryReader::News LentRuns::read_entries() {
  News news;
  for (Step& step : steps_) {
    if (!step.reads_notes) continue;
    for (uint32_t from = 0; from < columns_.world(); ++from) {
      news.moved |= read_notes(from, step);
    }
    step.reads_notes = awaits_notes(step);
    news.awaits |= step.reads_notes;
  }
  return news;
}

}  // namespace parallax
