// SPDX-License-Identifier: Apache-2.0
// PullExchange: the values of sharded variables on their way from their owners. The pulls of a
// host's ranks are coalesced per column by its leader, so that a row crosses the wire once per
// host:
//
//   rank -> leader: distinct row keys     leader -> owner: their union
//   owner -> leader: the rows' values     leader -> rank: those it asked for
//
// A rank can have a part at each end of these: as a source, a leader and an owner (PullSource,
// PullLeader, PullOwner). Owners answer as of step - 1 applied, and hold back the answer to what is
// asked earlier.
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

class PullExchange {
 public:
  // Both outlive this object.
  PullExchange(const Columns& columns, Outbox& outbox);
  PullExchange(const PullExchange&) = delete;
  PullExchange& operator=(const PullExchange&) = delete;

  // Makes a variable pullable; its table is set once values lie here. LIMIT.
  Status add_variable(uint32_t id, const Variable& variable, const Partition& partition);
  void remove_variable(uint32_t variable) { variables_.remove(variable); }
  static size_t needed_bytes(const Columns& columns, const Variable& variable,
                             const Partition& partition) {
    return PulledVariable::needed_bytes(columns, variable, partition);
  }
  const Arena* arena_of(uint32_t variable) const;  // null: not sharded
  // The shard that this rank holds; null while it holds none.
  void set_table(uint32_t variable, const Table* table);

  // Source. Starts this rank's n-th pull of `step`; at most one under way, of distinct variables.
  void start(uint64_t step, uint32_t round, std::span<const PullSlice> slices) {
    source_.start(step, round, slices);
  }
  // Every leader of the host is done with the round, even one that had nothing to be asked for: so
  // that no rank runs ahead of another by more than one round. Each says so behind its values.
  bool finished() const { return source_.finished(); }
  // Fills in duplicates, and makes room for the next.
  void finish() { source_.finish(); }
  bool active() const { return source_.active(); }

  // A rank of this host ended a step: its rounds of that step are over. At a new step the buffer of
  // the step before the last is taken over.
  void end_local(uint32_t from, uint64_t step) { leader_.end_local(from, step); }
  void open(uint64_t step) { leader_.open(step); }
  // The owner has applied `step`: pulls of step + 1 may be answered.
  void applied(uint64_t step) { owner_.applied(step); }

  // False: not what `from` may send now. The caller has checked that a tag which is a variable is
  // sharded in that step.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

  // Distinct rows this leader asked owners for, in the step so far.
  uint64_t pulled_rows(uint32_t variable, uint64_t step) const;
  // The oldest round of a step that this leader cannot answer yet.
  PullWait waiting(uint64_t step) const { return leader_.waiting(step); }

 private:
  const Columns& columns_;
  PulledVariables variables_;
  PullSource source_;
  PullLeader leader_;
  PullOwner owner_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_EXCHANGE_H_
