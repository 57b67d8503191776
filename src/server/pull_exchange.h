// SPDX-License-Identifier: Apache-2.0
// PullExchange: the values of sharded variables on their way from their owners. What the ranks of a
// host want goes by the leader of each column, so that a row crosses the wire once per host and
// step, as long as the leader holds it:
//
//   rank -> leader: distinct row keys     leader -> owner: those that it neither has nor asked for
//   owner -> leader: the rows' values     leader -> rank: those it asked for
//
// What a leader and its own rank have for each other is handed over without a message.
// A pull waits for owners alone, never for what another rank of its host does or does not call.
// Where the owners of the host let its ranks read their tables, none of this is sent of their rows:
// the rank copies them itself (TableReader).
//
// A rank can have a part at each end of these: as a source, a leader and an owner (PullSource,
// PullLeader, PullOwner). Owners answer as of step - 1 applied, and hold back the answer to what is
// asked earlier.
//
// With a staleness of s (StepWindow) they answer once step - 1 - s is applied. Then ranks of a host
// pull for several steps at a time, and tables change while pulls are under way. So a leader takes
// up another step's pull when what it holds of one is given out; tables are not read in place, and
// answers neither placed nor given early; and an update waits until no answer is read out of the
// tables, as answers wait until it is over (hold).
//
// A section is taken if it is the next one due of its sender: what it asks for is the sender's to
// ask for, what it answers is the sender's to answer for, was asked of it, and comes once. Pieces
// that are merely counted need not be the right ones, and one that comes twice would be found where
// another is missing, in the name of somebody else. Anything else returns false, and the engine
// names the sender.
//
// Memory is bounded by rows_max, and laid out when a variable is added (PulledVariable). Engine's
// owner only.
#ifndef PARALLAX_SERVER_PULL_EXCHANGE_H_
#define PARALLAX_SERVER_PULL_EXCHANGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "message/outbox.h"
#include "server/pull_leader.h"
#include "server/pull_owner.h"
#include "server/pull_sections.h"
#include "server/pull_source.h"
#include "server/pulled_variable.h"
#include "server/table.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

struct PullOptions {
  // From so many bytes of rows on owners answer early (PullOwner); kNeverEarly, or where the
  // transport has remote writes: this rank neither asks nor answers before the step before is
  // decided. A rank's own choice, as are in_place and push_listed.
  uint64_t early_bytes_min = PullOwner::kNeverEarly;
  uint32_t staleness = 0;
  bool in_place = true;     // tables of this host are read where they lie, where that can be
  bool push_listed = true;  // what is pushed refers to what was asked for
  // By which ids are coalesced, and which outlives the exchange; null: by an index for each
  // variable.
  RowScratch* scratch = nullptr;
};

class PullExchange final : public PulledLists {
 public:
  static constexpr uint64_t kNeverEarly = PullOwner::kNeverEarly;
  // All outlive this object.
  PullExchange(const Columns& columns, Outbox& outbox, const PullOptions& options = {});
  ~PullExchange();
  PullExchange(const PullExchange&) = delete;
  PullExchange& operator=(const PullExchange&) = delete;

  // Makes a variable pullable; its table is set once values lie here. `codings`: what of it is
  // coded on its way to other hosts, which outlives the variable here; null: nothing. LIMIT.
  Status add_variable(uint32_t id, const Variable& variable, const Partition& partition,
                      const RowCodings* codings = nullptr);
  void remove_variable(uint32_t variable);
  static size_t needed_bytes(const Columns& columns, const Variable& variable,
                             const Partition& partition) {
    return PulledVariable::needed_bytes(columns, variable, partition);
  }
  const Arena* arena_of(uint32_t variable) const;  // null: not sharded
  // The shard that this rank holds; null while it holds none.
  void set_table(uint32_t variable, const Table* table);

  // Source. Starts a pull of this rank; at most one under way. Several slices of a variable are of
  // one dtype, and have rows_max rows together.
  void start(uint64_t step, std::span<const PullSlice> slices) {
    source_.start(step, slices);
    leader_.take_own(step);  // which may give what it holds to the pull that has begun
  }
  // All that it wants is here.
  bool finished() const { return source_.finished(); }
  // Fills in duplicates, and makes room for the next.
  void finish() { source_.finish(); }
  // And then: what is to be written on devices is given to their tables. *left is raised by how
  // much that is, and lessened as it is written; until it is 0 again no other pull begins.
  void give_to_tables(uint32_t* left) const { source_.give_to_tables(left); }
  // The same for one slice of an evaluation, between pulls: answers what others own of it, which
  // the caller brings to where that says; and then.
  PullSlice start_alone(const PullSlice& slice) { return source_.start_alone(slice); }
  void give_alone(uint32_t* left) const { source_.give_alone(left); }
  bool active() const { return source_.active(); }
  // The ids of this rank's last pull of a variable, of any step; null: it is not sharded, or has no
  // ids.
  const CoalescedIds* pulled_ids(uint32_t variable) const;
  // They are about to be asked for: what that takes is asked of the memory, and where that is there
  // they are.
  void prefetch(uint32_t variable) const;
  void prefetch_ids(uint32_t variable) const;

  // A rank of this host ended a step: no more pulls of it are due. False: one of its is under way.
  [[nodiscard]] bool end_local(uint32_t from, uint64_t step) {
    return leader_.end_local(from, step);
  }
  // This rank knows that `step` is decided, which takes the vote of every rank, and so the answers
  // to all pulls of it: those of step + 1 may be asked for.
  void decided(uint64_t step) { leader_.decided(step); }
  // The counters of the step before the last are this one's now.
  void open(uint64_t step) { leader_.open(step); }
  // Nothing more is answered out of the tables until applied(); true once no answer is read out of
  // them any more. To be called until then, before they change.
  [[nodiscard]] bool hold() { return owner_.hold(); }
  // The owner has applied `step`: pulls of step + 1 + staleness may be answered.
  void applied(uint64_t step);
  // Pulls that wait for others' answers to have left may go on. To be called in every pass.
  void advance() { leader_.advance(); }

  // This rank's pulls may be asked for as soon as it has ended the step before.
  bool early() const { return early_; }
  // As PullOwner has it.
  template <typename Changed>
  void answer_early(uint64_t step, Changed changed) {
    if (early_) owner_.answer_early(step, changed);
  }
  uint64_t early_rows() const { return owner_.early_rows(); }

  // What a rank of the host says of its tables, of a step that may be `over` here. False: not what
  // it may say.
  [[nodiscard]] bool on_tables(uint32_t from, const Section& section, bool over);
  // False: not what `from` may send now. The caller has checked that a tag which is a variable is
  // sharded in that step.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

  // For pushes of a step that is not over.
  const PulledKeys* asked(uint32_t variable) const override {
    const PulledVariable* const found = variables_.find(variable);
    return found == nullptr || !push_listed_ ? nullptr : &found->led.asked_keys();
  }
  const PulledKeys* listed(uint32_t variable) const override {
    const PulledVariable* const found = variables_.find(variable);
    return found == nullptr ? nullptr : &found->lists.row_keys;
  }

  // All its tables are read where they lie, by ranks of their one host: each owner of it says to
  // them when it has applied a step.
  bool reads_tables(uint32_t variable) const;
  bool has_applied(uint32_t owner, uint64_t step) const {
    return source_.reader().has_applied(owner, step);
  }

  // Distinct rows this leader asked owners for, in the step so far: of several hosts, those of
  // others.
  uint64_t pulled_rows(uint32_t variable, uint64_t step) const;
  // Whom this rank's pull waits for: leaders of its host, and the owners that owe values to this
  // rank as one of them. Ascending.
  std::vector<uint32_t> missing_ranks() const;

 private:
  const Columns& columns_;
  PulledVariables variables_;
  const bool early_, push_listed_;
  PullSource source_;
  PullLeader leader_;
  PullOwner owner_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_EXCHANGE_H_
