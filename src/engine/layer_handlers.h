// SPDX-License-Identifier: Apache-2.0
// LayerHandlers: what takes each layer's sections (message/kinds.h): one row of a table for each
// layer, with its method here, which asks whether a section may come now, as far as the part that
// it is for cannot know that, and hands it over. Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_LAYER_HANDLERS_H_
#define PARALLAX_ENGINE_LAYER_HANDLERS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/broadcast.h"
#include "engine/collective_calls.h"
#include "engine/job_calls.h"
#include "engine/job_phase.h"
#include "engine/loss_watch.h"
#include "engine/row_calls.h"
#include "group/group.h"
#include "group/migration.h"
#include "group/step_pipeline.h"
#include "group/trees.h"
#include "message/outbox.h"
#include "message/wire.h"

namespace parallax {

class LayerHandlers {
 public:
  struct Parts {
    const JobPhase& phase;
    Group& group;
    StepPipeline& pipeline;
    Migration& migration;
    Trees& trees;
    Broadcast& broadcast;
    JobCalls& job_calls;
    RowCalls& row_calls;
    CollectiveCalls& collective_calls;
    LossWatch& loss_watch;
    Outbox& outbox;
  };

  // All parts outlive this.
  explicit LayerHandlers(const Parts& parts) : parts_(parts) {}

  // A section of any kind that SectionReader let pass. False: not what this rank may be sent, now
  // or from that rank.
  [[nodiscard]] bool take(uint32_t from, const Section& section) const;
  // Where the payload of a section is to be received, which is not here yet: of what take() would
  // take, and copy as it is. Null: nowhere.
  std::byte* place(uint32_t from, const Section& section) const;

 private:
  struct Row;
  static const Row kRows[];

  bool on_membership(uint32_t from, const Section& section) const;
  bool on_tree(uint32_t from, const Section& section) const;
  bool on_broadcast(uint32_t from, const Section& section) const;
  bool on_step(uint32_t from, const Section& section) const;
  bool on_step_ended(uint32_t from, const Section& section) const;
  bool on_exchange(uint32_t from, const Section& section) const;
  bool on_pull(uint32_t from, const Section& section) const;
  bool on_tables(uint32_t from, const Section& section) const;
  bool on_migration(uint32_t from, const Section& section) const;
  bool on_rows(uint32_t from, const Section& section) const;
  bool on_split(uint32_t from, const Section& section) const;
  bool on_probe(uint32_t from, const Section& section) const;
  bool on_collective(uint32_t from, const Section& section) const;
  bool on_lending(uint32_t from, const Section& section) const;

  bool merge_report(TreeKind kind, const Section& section) const;
  bool on_answer(TreeKind kind, std::span<const std::byte> payload) const;
  // It has buffers here.
  bool is_open(uint64_t step) const;
  bool is_early_ask(const SectionHeader& header) const;

  const Parts parts_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_LAYER_HANDLERS_H_
