// SPDX-License-Identifier: Apache-2.0
// Migration: how the variables of a group go over to another plan. begin() lays out what the new
// plan takes, two steps before it is in force. Once the step before that is applied, move() brings
// the values and the state to where they belong: sharded to mirrored, every owner sends its shard
// to every rank; mirrored to sharded, every owner has its shard in its mirror. When all has come
// and left (moved), switch_over() puts the new plan in force. Engine's owner only; nothing blocks.
#ifndef PARALLAX_GROUP_MIGRATION_H_
#define PARALLAX_GROUP_MIGRATION_H_

#include <cstdint>

#include "group/group.h"

namespace parallax {

class Migration {
 public:
  // Both outlive this.
  Migration(Group& group, Outbox& outbox) : group_(group), outbox_(outbox) {}

  // From `step` on, which no rank can have begun to send for, the variable is handled by `plan`.
  // None of its changes may be under way. LIMIT.
  Status begin(VariableRuntime& runtime, const VariablePlan& plan, uint64_t step);

  // Of all that change with `step`, the step before it being applied here:
  void move(uint64_t step);
  bool moved(uint64_t step) const;
  // Puts them in force; true if there are any. Frees the exchanges that the switch before left.
  bool switch_over(uint64_t step);
  // True if the switch to `step` frees an exchange, or a table and the buffers for pulls of it.
  bool frees_memory(uint64_t step) const;

  // A piece of another owner's shard. False: not what `from` may send now.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

 private:
  Status lay_out(VariableRuntime& runtime, const VariablePlan& plan, uint64_t step);
  void send_shard(VariableRuntime& runtime);
  void send_to_all(VariableRuntime& runtime, Send send);
  void switch_over(VariableRuntime& runtime);

  Group& group_;
  Outbox& outbox_;
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_MIGRATION_H_
