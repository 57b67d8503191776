// SPDX-License-Identifier: Apache-2.0
// RunNotes: what LentRuns of the ranks of a host tell each other, on their boards
// (collectives/entries.h): one store for all of them, where a message goes to each. A note is what
// would be that message's section. A step has room for a few, which is what a program gives that
// lays its variables out in one buffer; the others go as messages, in any order with these.
//
// What lies on another board is input: it is copied, and the copy is checked by who takes it.
// Owned by LentRuns; engine's owner only; nothing blocks.
#ifndef PARALLAX_GROUP_RUN_NOTES_H_
#define PARALLAX_GROUP_RUN_NOTES_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "collectives/entries.h"
#include "transport/peer_memory.h"
#include "world/patterns.h"

namespace parallax {

struct RunNote {
  enum class Kind : uint32_t { kLent = 1, kSummed = 2 };
  Kind kind = Kind::kLent;
  uint32_t first = 0;           // of the variables
  uint32_t count = 0;           // of them
  uint32_t alignment_bits = 0;  // kLent
  BufferPlace place = {};       // kLent: of the first one's first byte
  uint64_t bytes = 0;           // kLent
  uint64_t loan = 0;            // for who reads it: kLent the one to him, kSummed his own
};

class RunNotes {
 public:
  static constexpr size_t kOfStepMax = 8;

  // The entries outlive this. Before the group has variables: the same room on all ranks' boards.
  RunNotes(const Columns& columns, Entries& entries)
      : rank_(columns.rank()), world_(columns.world()), entries_(entries) {
    for (EntryPlace& place : places_) place = entries.reserve_note(sizeof(Said));
    for (Step& each : steps_) each.read.resize(world_);
  }

  // Gives what step - 2 had to `step`.
  void open(uint64_t step) {
    Step& opened = at(step);
    opened.said = 0;
    std::fill(opened.read.begin(), opened.read.end(), size_t{0});
  }

  // To all others; `loans`: by rank. False: there is no room, and nothing was said.
  [[nodiscard]] bool say(uint64_t step, const RunNote& note, std::span<const uint64_t> loans) {
    size_t& said = at(step).said;
    if (said == kOfStepMax || !usable()) return false;
    const EntryPlace& place = places_[said++];
    Said all = {.note = note, .loans = {}};
    std::copy(loans.begin(), loans.end(), all.loans.begin());
    std::memcpy(entries_.own(place, step), &all, sizeof all);
    entries_.publish(place, step, EntryKind::kValues);
    return true;
  }

  // The next one that a rank has said of an open step. False: there is none.
  [[nodiscard]] bool read(uint32_t from, uint64_t step, RunNote* note) {
    if (from == rank_ || !usable()) return false;
    size_t& next = at(step).read[from];
    if (next == kOfStepMax) return false;
    if (entries_.kind(from, places_[next], step) == EntryKind::kNone) return false;
    Said all;
    std::memcpy(&all, entries_.of(from, places_[next++], step), sizeof all);
    *note = all.note;
    note->loan = all.loans[rank_];
    return true;
  }

  bool usable() const { return places_.back().exists() && entries_.usable(); }

 private:
  struct Said {
    RunNote note;
    std::array<uint64_t, kEntryRanksMax> loans;
  };
  struct Step {
    size_t said = 0;           // of places_, by this rank
    std::vector<size_t> read;  // by rank
  };
  Step& at(uint64_t step) { return steps_[step & 1]; }

  const uint32_t rank_, world_;
  Entries& entries_;
  std::array<EntryPlace, kOfStepMax> places_;
  std::array<Step, 2> steps_;
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_RUN_NOTES_H_
