// SPDX-License-Identifier: Apache-2.0
// The table of layers, and whether their sections may come. See layer_handlers.h.
#include "engine/layer_handlers.h"

#include <iterator>

#include "base/check.h"
#include "message/kinds.h"

namespace parallax {

struct LayerHandlers::Row {
  Layer layer;
  bool (LayerHandlers::*handle)(uint32_t from, const Section& section) const;
};

// In the order of Layer.
constexpr LayerHandlers::Row LayerHandlers::kRows[] = {
    {Layer::kMembership, &LayerHandlers::on_membership},
    {Layer::kTree, &LayerHandlers::on_tree},
    {Layer::kBroadcast, &LayerHandlers::on_broadcast},
    {Layer::kStep, &LayerHandlers::on_step},
    {Layer::kExchange, &LayerHandlers::on_exchange},
    {Layer::kPull, &LayerHandlers::on_pull},
    {Layer::kMigration, &LayerHandlers::on_migration},
    {Layer::kRowAccess, &LayerHandlers::on_rows},
    {Layer::kCollective, &LayerHandlers::on_collective},
    {Layer::kSplit, &LayerHandlers::on_split},
    {Layer::kLending, &LayerHandlers::on_lending},
    {Layer::kProbe, &LayerHandlers::on_probe},
};

bool LayerHandlers::take(uint32_t from, const Section& section) const {
  static_assert(std::size(kRows) == kLayerCount);
  const Layer layer = layer_of(section.header.kind);
  const Row& row = kRows[static_cast<size_t>(layer)];
  PARALLAX_CHECK(row.layer == layer);
  return (this->*row.handle)(from, section);
}

bool LayerHandlers::on_membership(uint32_t, const Section& section) const {
  return parts_.loss_watch.on_section(section);
}

// ---- the tree

bool LayerHandlers::on_tree(uint32_t from, const Section& section) const {
  const auto kind = static_cast<TreeKind>(section.header.tag);
  if (section.header.part != 0) {
    // Votes alone may be so long that they come in parts.
    return section.header.kind == SectionKind::kTreeUp && parts_.trees.take_part(from, section) &&
           kind == TreeKind::kVote &&
           parts_.pipeline.merge_vote_part(section.header.step, section.payload);
  }
  return section.header.kind == SectionKind::kTreeUp
             ? parts_.trees.take_report(from, section) && merge_report(kind, section)
             : parts_.trees.take_answer(from, section) && on_answer(kind, section.payload);
}

bool LayerHandlers::merge_report(TreeKind kind, const Section& section) const {
  const std::span<const std::byte> payload = section.payload;
  switch (kind) {
    case TreeKind::kVote:
      return parts_.pipeline.merge_vote(section.header.step, payload);
    case TreeKind::kBarrier:
      return payload.empty();
    case TreeKind::kCommit:
    case TreeKind::kClose:
    case TreeKind::kCloseConfirm:
      return parts_.job_calls.merge_report(kind, payload);
  }
  return false;
}

bool LayerHandlers::on_answer(TreeKind kind, std::span<const std::byte> payload) const {
  switch (kind) {
    case TreeKind::kVote:
      return parts_.pipeline.take_decision(payload);
    case TreeKind::kBarrier:
      return parts_.collective_calls.on_barrier_answer(payload);
    case TreeKind::kCommit:
    case TreeKind::kClose:
    case TreeKind::kCloseConfirm:
      return parts_.job_calls.on_answer(kind, payload);
  }
  return false;
}

bool LayerHandlers::on_broadcast(uint32_t from, const Section& section) const {
  return parts_.broadcast.on_section(from, section);
}

// ---- steps

bool LayerHandlers::is_open(uint64_t step) const {
  return !parts_.phase.open() && parts_.pipeline.window().admits(step);
}

bool LayerHandlers::on_step(uint32_t from, const Section& section) const {
  if (section.header.kind == SectionKind::kStepEnded) return on_step_ended(from, section);
  return !parts_.phase.open() && parts_.pipeline.take_vote(from, section);
}

// May come after this rank has finished the step, if none of the step's reductions passed through
// it.
bool LayerHandlers::on_step_ended(uint32_t from, const Section& section) const {
  const uint64_t step = section.header.step;
  const Columns& columns = parts_.group.columns();
  if (!parts_.phase.open() && parts_.pipeline.window().is_over(step)) return true;
  if (!is_open(step) || columns.host_of(from) != columns.host()) return false;
  return parts_.pipeline.ended(from, step);
}

bool LayerHandlers::on_exchange(uint32_t from, const Section& section) const {
  const SectionHeader& header = section.header;
  if (!is_open(header.step) || header.tag >= parts_.group.size()) return false;
  LentRuns& runs = parts_.pipeline.runs();
  if (header.kind == SectionKind::kLentRun || header.kind == SectionKind::kRunSummed) {
    return runs.on_section(from, section);
  }
  return runs.goes_alone(header.step, header.tag) &&
         parts_.group.runtime(header.tag).exchange_at(header.step).on_section(from, section);
}

std::byte* LayerHandlers::place(uint32_t from, const Section& section) const {
  const SectionHeader& header = section.header;
  switch (header.kind) {
    case SectionKind::kDenseGather:
      if (!is_open(header.step) || header.tag >= parts_.group.size()) return nullptr;
      if (!parts_.pipeline.runs().is_alone(header.step, header.tag)) return nullptr;
      return parts_.group.runtime(header.tag).exchange_at(header.step).place_of(from, section);
    case SectionKind::kCollectiveGather:
      if (parts_.phase.open()) return nullptr;
      return parts_.collective_calls.rounds().place_of(from, section);
    default:
      return nullptr;
  }
}

// What is asked for of a step that has no buffers here yet, between hosts, is kept.
bool LayerHandlers::is_early_ask(const SectionHeader& header) const {
  const bool asks = header.kind == SectionKind::kPullLocal || header.kind == SectionKind::kPullHost;
  return asks && !parts_.phase.open() && parts_.group.columns().host_count() > 1 &&
         parts_.pipeline.window().admits_asks(header.step);
}

// A variable that is mirrored in that step is not pulled: its pull buffers are freed when it
// becomes so. A tag beyond the variables ends a rank's pull.
bool LayerHandlers::on_pull(uint32_t from, const Section& section) const {
  const SectionHeader& header = section.header;
  if (header.kind == SectionKind::kTablePlace || header.kind == SectionKind::kTablesCurrent) {
    return on_tables(from, section);
  }
  const bool open = !parts_.phase.open() && parts_.pipeline.window().admits_pulls(header.step);
  if (!open && !is_early_ask(header)) return false;
  const bool sharded =
      header.tag >= parts_.group.size() || parts_.group.runtime(header.tag).sharded_at(header.step);
  return sharded && parts_.group.pulls().on_section(from, section);
}

// May come late, as nobody who does not pull waits for it.
bool LayerHandlers::on_tables(uint32_t from, const Section& section) const {
  const uint64_t step = section.header.step;
  const bool over = !parts_.phase.open() && parts_.pipeline.window().is_over(step);
  return (over || is_open(step)) && parts_.group.pulls().on_tables(from, section, over);
}

bool LayerHandlers::on_migration(uint32_t from, const Section& section) const {
  return parts_.migration.on_section(from, section);
}

// Legal in every phase.
bool LayerHandlers::on_split(uint32_t from, const Section& section) const {
  return parts_.job_calls.splits().on_section(from, section);
}

// ---- between steps

bool LayerHandlers::on_rows(uint32_t from, const Section& section) const {
  return !parts_.phase.open() && parts_.row_calls.on_section(from, section);
}

// ---- beside the steps

// Of one that has committed before this rank has, too.
bool LayerHandlers::on_collective(uint32_t from, const Section& section) const {
  return !parts_.phase.open() && parts_.collective_calls.rounds().on_section(from, section);
}

// Legal in every phase.
bool LayerHandlers::on_probe(uint32_t from, const Section& section) const {
  return parts_.job_calls.probe().on_section(from, section);
}

bool LayerHandlers::on_lending(uint32_t from, const Section& section) const {
  const bool empty = section.header.count == 0 && section.payload.empty();
  return empty && parts_.outbox.lending().returned(from, section.header.first);
}

}  // namespace parallax
