// SPDX-License-Identifier: Apache-2.0
// LedVariable: one sharded variable as the leader of a column sees it: what each rank of its host
// wants of it, what its owners were asked for, and what they have answered.
//
// A rank's list is taken once all of it is here: of each of its rows, one that is held is given,
// one that is on its way is waited for, and of the others the owners are asked, in the rank's name.
// So no rank waits for what another one has yet to do. It knows what is wanted and due, but sends
// nothing (PullLeader does). All memory is sized at commit from rows_max and the partition; what a
// peer sends beyond it does not fit. Engine's owner only.
#ifndef PARALLAX_SERVER_LED_VARIABLE_H_
#define PARALLAX_SERVER_LED_VARIABLE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "aggregate/pulled_keys.h"
#include "aggregate/row_scratch.h"
#include "base/arena.h"
#include "base/byte_range.h"
#include "base/number.h"
#include "message/section_coding.h"
#include "message/wire.h"
#include "server/answer_progress.h"
#include "server/held_rows.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

// So many rows of an owner may a host ask for before all that it asked for is answered: it bounds
// the list that the owner keeps of them.
inline uint64_t asked_rows_max(const Columns& columns, const Partition& partition,
                               uint64_t rows_max, uint32_t owner, uint32_t host) {
  return std::min<uint64_t>(partition.rows_owned(owner),
                            rows_max * columns.map().ranks_of[host].size());
}

// So many of a step are kept for pushes of the same rows (PulledKeys), between hosts that are few:
// with many, most ask for little, and lists of all would be most of what an owner holds.
uint64_t kept_keys_max(const Columns& columns, const Partition& partition, uint64_t rows_max,
                       uint32_t owner, uint32_t host);

// An owner has places offered for so many asks of a host at once; what is beyond is copied.
inline constexpr uint32_t kPullPlacesMax = 4;

class LedVariable {
 public:
  // The values of a step are held in the type that they were first asked for in, and what that does
  // not serve in the master's.
  enum Form : uint8_t { kFirst, kMaster };

  // What a rank of the host wants in its pull under way.
  struct HostList {
    std::span<uint32_t> rows;   // row keys as they came, and slots of held rows once taken
    std::span<uint32_t> asked;  // row keys that owners are asked for in its name, by owner
    uint64_t pull = 0;          // which of the rank's
    uint64_t step = 0;
    uint32_t count = 0;
    uint32_t taken = 0;     // of `rows`: these are slots
    uint32_t here = 0;      // of those: the values of these are here
    uint32_t unpacked = 0;  // sends of its answer that read it, and the values
    uint32_t dtype = 0;
    Form form = kFirst;
    bool dense = false;  // wants the dense variable
    bool asked_for = false;
    bool complete = false;
    bool answered = true;
  };

  // `scratch`: by which what owners are asked for is put in the order of row keys where these are
  // coded. Null: it is not, and nothing is.
  LedVariable(const Columns& columns, const Partition& partition, uint64_t rows_max,
              uint32_t master, RowScratch* scratch = nullptr, const RowCodings* codings = nullptr);
  void lay_out(Arena& memory);

  // This rank leads a column that has an owner of it.
  bool led() const { return !owners_.empty(); }
  const std::vector<uint32_t>& owners() const { return owners_; }
  HostList& list(uint32_t local) { return lists_[local]; }
  std::span<HostList> lists() { return lists_; }

  // A piece of what a rank wants in a pull, in the order of the pieces. False: it does not fit.
  [[nodiscard]] bool add(uint32_t local, uint64_t pull, const Section& section);
  // All that this rank itself wants: distinct rows, or, without row ids, the variable.
  void add_own(uint64_t pull, uint64_t step, uint32_t dtype, std::span<const uint32_t> row_keys);

  // All of a rank's list is here. False: what is under way must be answered first; call again.
  // `together`: what one owner is asked for lies together in memory, where that can be.
  [[nodiscard]] bool take(HostList& list, uint64_t step, bool together = false);
  // What an owner is now asked for, of those who have any of it; and then that all were.
  struct Ask {
    uint32_t first = 0, count = 0;  // of HostList::asked; dense: count 1 for all that it has
    uint64_t before = 0;            // rows, or asks, of this step that went before
    ByteRange place = {};           // where all of its values will lie, one after the other; or
                                    // none: not together
  };
  Ask ask(const HostList& list, uint32_t owner);
  void end_asking(HostList& list);

  // An owner may place the values of that ask in an area of this rank's; false: it has places
  // enough.
  [[nodiscard]] bool may_offer(uint32_t owner) const;
  void offered(uint32_t owner, const Ask& ask, uint32_t area);
  // The area of a place of that owner's that is over, as its values are here, or any where all end;
  // 0: none.
  uint32_t take_over(uint32_t owner, bool all = false);

  // Values of an owner. False: not what is due next.
  [[nodiscard]] bool on_values(uint32_t from, const Section& section);
  // Which of the rows that it was asked for an owner sends first, in messages. False: not of those
  // that it owes, or of those whose order it has said before.
  [[nodiscard]] bool on_early_rows(uint32_t from, const Section& section);
  // Moves on over what is here; true if that is all that the list waits for.
  bool complete(HostList& list);
  // What a list's values lie in: rows by slot, or the column's elements.
  const std::byte* values(const HostList& list) const;
  uint32_t dtype_of_values(const HostList& list) const { return dtypes_[list.form]; }

  // The memory of rows that owners may be let place values in, by form.
  ByteRange row_area(Form form) const {
    return ByteRange::at(rows_[form].values(), rows_[form].value_bytes());
  }

  // Of my column's elements, those of owners before this one.
  uint64_t elements_before(uint32_t owner) const;

  // Of what owners of another host are asked.
  SectionCoding coding() const { return codings_ == nullptr ? SectionCoding() : codings_->asked; }

  // What owners were asked for in a step, and have answered, by place in the column.
  const PulledKeys& asked_keys() const { return asked_keys_; }

  uint64_t step() const { return step_; }  // of what is held
  // A list waits for what is held, or an answer that reads it is not packed.
  bool gives() const;
  bool owes(uint32_t owner) const { return !asked_of(owner).answer.complete(); }

 private:
  // Rows [first, end) of the step that an owner may place.
  struct Place {
    uint64_t first = 0, end = 0;
    uint32_t area = 0;
  };
  // What an owner was asked for in the step that it was asked for last, and has answered.
  struct Asked {
    uint64_t step = 0;
    AnswerProgress answer;   // rows; elements of the dense variable
    uint64_t early_end = 0;  // the rows before it come in the order that was said
    uint32_t listed = 0;     // rows since all that was asked for had come
    HeldRows::Queue queue;   // on their way
    std::array<Place, kPullPlacesMax> places;
    uint32_t place_count = 0;
  };
  struct HeldElements {
    std::span<std::byte> values;  // of the column, owner by owner
    bool asked = false;
  };

  bool by_rows() const { return partition_.ids_declared(); }
  bool owned_by(uint32_t rank) const;
  Asked& asked_of(uint32_t owner) const { return asked_[columns_.place_in_column(owner)]; }
  [[nodiscard]] static bool begin_list(HostList& list, uint64_t pull, uint64_t step,
                                       uint32_t dtype);
  [[nodiscard]] bool add_rows(HostList& list, const Section& section);
  void begin(uint64_t step, uint32_t dtype);
  void take_rows(HostList& list, bool together);
  void find_fresh(HostList& list);
  void sort_asked(HostList& list);
  void gather_slots(HostList& list, uint32_t taken_before);
  [[nodiscard]] static bool may_be_placed(const Asked& asked, const Section& section);
  void forget_unneeded(Form form);
  bool has_room() const;

  const Columns& columns_;
  const Partition& partition_;
  const uint64_t rows_max_;
  const uint32_t master_;  // the dtype that its tables keep
  RowScratch* const scratch_;
  const RowCodings* const codings_;
  std::vector<uint32_t> owners_;  // of my column, those that have any of it
  std::vector<HostList> lists_;   // by local rank
  std::span<Asked> asked_;        // by place in the column
  PulledKeys asked_keys_;         // the same
  uint64_t step_ = 0;
  uint64_t due_ = 0;                     // rows or elements, of all owners
  std::array<uint32_t, 2> dtypes_ = {};  // by form
  Form form_under_way_ = kFirst;
  uint32_t dtype_wanted_ = 0;    // by the first list of the step
  bool several_dtypes_ = false;  // others by others: the next step holds all in the master's
  std::array<HeldRows, 2> rows_;
  std::array<HeldElements, 2> elements_;
  // Rows that the list being taken asks for: slots, and grouped by owner.
  std::span<uint32_t> fresh_, grouped_, offsets_;
  uint32_t fresh_count_ = 0;
  bool fresh_together_ = false;  // the slots of fresh_ follow each other, in the order of asking
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_LED_VARIABLE_H_
