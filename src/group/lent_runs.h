// SPDX-License-Identifier: Apache-2.0
// LentRuns: variables that one call reduces in place, and whose slices lie one behind the other in
// a buffer that all ranks of the host read and write, go together: in a run. Each begins where the
// one before it ends, or at the next multiple of what the program aligns them to; nobody reads or
// writes what lies between. Who gives them lends them to each other rank by one note
// (run_notes.h), or section, which says from which variable on, how many, how they are aligned, and
// where the first lies. A rank to which all others have lent a variable, and that has lent it
// itself, sums its part of it (RunMember::part) where it lies, writes the total to all others, and
// tells of all variables that it has summed in a turn by one note, which ends that much of the
// loan. So what is said, looked up and checked is said, looked up and checked for a run; for each
// variable there is little more than its bytes.
//
// Design notes. A run is how a rank gives variables, and nothing that ranks have to agree on: each
// calls in what groups it likes, and every variable is still an exchange of its own. A variable is
// *alone* at a rank, for a step, as soon as it has come there in another way than in a run: this
// rank or another gives it by itself, or not at all. Then this rank's own slice is released to its
// exchange, and what others have lent of it in runs, before or after, is given to the exchange as
// the section that would have come for it alone, so that all that such a section may bring is
// settled there. At a rank where it is not alone, all have lent it in runs in the end: then it is
// alone nowhere, since a rank gives a variable to all others in one way. So either all ranks sum
// their parts here or none does, and nobody waits for what nobody says.
//
// Variables are summed in any order in which they become complete, lowest first (of several runs
// that with the most urgent variable: Variable::priority), in bounded turns (LentReader). Sums
// begin with a rank's own addend, over which they are made, and go on in the order of ranks; where
// ranks are to be added in their order, or numbers are narrower than their sums, totals are made
// beside the addends, a piece at a time that stays in the first cache.
//
// Slices that lie in memory of the caller alone are copied into a slab of the step that the ranks
// of the host map (HostStaging), side by side, and go in a run there, as far as it has room: the
// total is copied from there to the caller. That is a copy more than a message takes, and some
// thousand instructions less.
//
// Slices of which a part shares a page with something else than the call's own slices go alone: see
// message/lending.h. Notes are read from when this rank gives a variable of a step, until it is
// delivered, or hears that one goes alone, until it has finished the step, which it does not before
// it has read all that it needs; and before it is heard that their rank has ended the step. What
// comes from others is checked before it is used. Owned by the StepPipeline; engine's owner only;
// nothing blocks.
#ifndef PARALLAX_GROUP_LENT_RUNS_H_
#define PARALLAX_GROUP_LENT_RUNS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/byte_range.h"
#include "collectives/entries.h"
#include "collectives/exchange.h"
#include "collectives/host_staging.h"
#include "collectives/run_member.h"
#include "group/run_notes.h"
#include "group/variable_runtime.h"
#include "message/outbox.h"
#include "server/pulled_variable.h"
#include "world/patterns.h"

namespace parallax {

// Slices that lie apart by less than that lie in one run: what aligned them left the gap.
inline constexpr uint32_t kRunAlignmentBits = 8;
inline constexpr uint64_t kRunGapEnd = uint64_t{1} << kRunAlignmentBits;

// By which powers of two the slices of a run may be aligned, so that each begins at the first
// multiple behind the one before it.
class RunAlignment {
 public:
  explicit RunAlignment(const void* first) : most_(zeros(first)) {}
  // The next slice, and the end of the one before it. False, and nothing changes: by none.
  bool take(const void* end, const void* next) {
    const uint64_t gap = reinterpret_cast<uintptr_t>(next) - reinterpret_cast<uintptr_t>(end);
    if (gap >= kRunGapEnd) return false;
    const uint32_t least = std::max(least_, static_cast<uint32_t>(std::bit_width(gap)));
    const uint32_t most = std::min(most_, zeros(next));
    if (least > most) return false;
    least_ = least;
    most_ = most;
    return true;
  }
  uint32_t bits() const { return least_; }

 private:
  static uint32_t zeros(const void* address) {
    const auto all = reinterpret_cast<uintptr_t>(address);
    return std::min(kRunAlignmentBits, static_cast<uint32_t>(std::countr_zero(all)));
  }

  uint32_t least_ = 0, most_;
};

// The payload of a section of SectionKind::kLentRun.
struct LentRunPart {
  LentPart part;
  uint64_t alignment_bits = 0;
};

// Of a run, of two ranks: a variable beyond goes faster in messages, which spare it two copies. Of
// more ranks a run has as much as the slab has room for.
inline constexpr uint64_t kStagedOfTwoBytesMax = 256 * 1024;

class LentRuns final : private LentReader, private EntryReader {
 public:
  using Runtimes = std::vector<std::unique_ptr<VariableRuntime>>;

  // All outlive this.
  LentRuns(const Columns& columns, const Runtimes& runtimes, Outbox& outbox, Entries& entries,
           const HostStaging& staging);
  LentRuns(const LentRuns&) = delete;
  LentRuns& operator=(const LentRuns&) = delete;
  ~LentRuns() {
    outbox_.lending().forget(this);
    entries_.forget(this);
  }

  // Between steps: there are more variables.
  void add_variables();
  // Gives what step - 2 had to `step`.
  void open(uint64_t step);

  struct Given {
    size_t count = 0;  // of the first slices: it is settled how they go; at least one
    bool together = false;
  };
  // The first of these slices of a reduce, which lie one behind the other, less than kRunGapEnd
  // apart, in `borrowed`, memory of the call: gives as many as go in a run, or says of how many
  // that each goes alone. *pending counts the loans.
  Given give(uint64_t step, std::span<const PullSlice> slices, const ByteRange& borrowed,
             uint32_t* pending);

  // The same of slices that lie where nobody else reads: copies as many as go together, and as
  // there is room for, side by side to where all do, which `staged` of each says then. Returns how
  // many.
  size_t stage(uint64_t step, std::span<PullSlice> slices, uint32_t* pending);

  // It comes, or goes, otherwise than in a run. False: what was lent of it does not fit.
  [[nodiscard]] bool goes_alone(uint64_t step, uint32_t variable) {
    Step& at = this->at(step);
    if (!usable_ || at.ways[variable] != Way::kOpen) return true;
    return leave(at, variable);
  }
  // It is sure to, whatever comes.
  bool is_alone(uint64_t step, uint32_t variable) const {
    return !usable_ || at(step).ways[variable] == Way::kAlone;
  }
  // A rank has ended the step: what it has given in no run it gives in none. False: as above.
  [[nodiscard]] bool ended(uint32_t rank, uint64_t step);
  // That rank has given it in a run, which its exchange has heard nothing of.
  bool awaits(uint32_t rank, uint64_t step, uint32_t variable) const;

  // kLentRun, kRunSummed, of a step that is open. False: not what that rank may send now.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

 private:
  enum class Way : uint8_t { kOpen, kAlone, kSummed };
  // Of another rank.
  struct Run {
    uint32_t first = 0, end = 0;  // variables
    uint32_t alignment = 0;       // in bits
    BufferPlace place;            // of the first one's first byte
    uint64_t loan = 0;
  };
  // Of this rank.
  struct OwnRun {
    uint32_t first = 0, end = 0;
    uint32_t alignment = 0;
    uint32_t next = 0;     // all before it are summed, or alone
    uint32_t told = 0;     // all before it are delivered: no note of them is to come
    int32_t priority = 0;  // of its most urgent variable
    std::byte* values = nullptr;
  };
  struct Step {
    uint64_t step = 0;
    std::vector<Way> ways;               // by variable
    std::vector<uint64_t> done;          // by variable: elements of this rank's part, summed
    std::vector<std::vector<Run>> runs;  // by rank
    std::vector<OwnRun> own;             // the most urgent first, of one priority ascending
    bool any = false;                    // of either
    bool reads_notes = false;
    bool any_alone = false;     // of what may go in runs
    uint64_t staged_bytes = 0;  // of the slab, in use
  };

  // Of a variable: what this rank sums of it.
  struct Part {
    std::byte* values = nullptr;  // of this rank; those of others are addends_
    Range range;
    uint32_t dtype = PARALLAX_F32;
    double factor = 1;      // of the total
    bool in_order = false;  // addends are added in the order of ranks
  };

  Step& at(uint64_t step) { return steps_[step & 1]; }
  const Step& at(uint64_t step) const { return steps_[step & 1]; }
  RunMember* member(uint64_t step, uint32_t variable) const;
  int32_t most_urgent(uint32_t first, uint32_t end) const;
  bool goes_in_run(uint64_t step, const PullSlice& slice) const;
  bool goes_staged(uint64_t step, const PullSlice& slice) const;
  bool reaches_all(const std::byte* values, uint64_t bytes) const;
  // Where a run of this rank lies, and what the call borrows around it.
  struct Place {
    std::byte* values = nullptr;
    uint32_t alignment = 0;  // in bits
    ByteRange borrowed;
  };
  void lend(uint64_t step, std::span<const PullSlice> slices, const Place& place,
            uint32_t* pending);
  size_t count_run(uint64_t step, std::span<const PullSlice> slices, uint64_t bytes_max,
                   RunAlignment* alignment) const;
  // From the first variable of such a run to another one; and all bytes of it.
  uint64_t offset_in(uint32_t alignment, uint32_t first, uint32_t variable) const {
    return offsets_[alignment][variable] - offsets_[alignment][first];
  }
  uint64_t bytes_of(uint32_t alignment, uint32_t first, uint32_t end) const {
    return offset_in(alignment, first, end - 1) + offset_in(0, end - 1, end);
  }
  static const Run* find(const std::vector<Run>& runs, uint32_t variable);
  bool gave(const Step& step, uint32_t variable) const;
  bool leave(Step& step, uint32_t variable);
  bool hand_over(const Step& step, uint32_t from, const Run& run, uint32_t variable);
  void say(uint64_t step, const RunNote& note);
  bool take(uint32_t from, uint64_t step, const RunNote& said);
  bool take_run(uint32_t from, uint64_t step, const RunNote& said);
  bool take_summed(uint32_t from, uint64_t step, const RunNote& said);
  void read_notes(Step& step);
  bool read_notes(uint32_t from, Step& step);
  bool awaits_notes(Step& step) const;
  News read_entries() override;
  bool read_lent() override;
  void sum(Step& step, OwnRun& own, uint64_t* bytes_left);
  uint32_t find_others(const Step& step, const OwnRun& own, uint32_t variable);
  uint32_t sum_ready(Step& step, const OwnRun& own, uint32_t first, uint32_t end,
                     uint64_t* bytes_left);
  void sum_block(const Part& part, uint64_t offset, uint64_t count);
  bool sum_part(const Part& part, uint64_t* done, uint64_t* bytes_left);
  void tell(const Step& step, uint32_t first, uint32_t end);

  const Columns& columns_;
  const Runtimes& runtimes_;
  Outbox& outbox_;
  Entries& entries_;
  const HostStaging& staging_;
  RunNotes notes_;
  const bool usable_;
  // By alignment, in bits, and variable: bytes of all before it, each filled up to a multiple.
  std::array<std::vector<uint64_t>, kRunAlignmentBits + 1> offsets_;
  std::array<Step, 2> steps_;
  std::vector<const Run*> others_;   // by rank: of a variable being summed
  std::vector<uint64_t> loans_;      // by rank: of a note being said
  std::vector<std::byte*> bases_;    // by rank: where the first of some being summed lies
  std::vector<std::byte*> addends_;  // by rank: where that lies; of this rank null
  bool taken_back_ = false;          // what was read is worth nothing: the job is about to end
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_LENT_RUNS_H_
