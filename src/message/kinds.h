// SPDX-License-Identifier: Apache-2.0
// Section kinds: one row for each, with the layer that its sections are for. Whoever asks what a
// kind is asks here, so that the order of the numbers means nothing: the engine hands a section to
// its handler for that layer, and the counters and the fault rules learn whether a tag names a
// variable.
#ifndef PARALLAX_MESSAGE_KINDS_H_
#define PARALLAX_MESSAGE_KINDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "message/wire.h"

namespace parallax {

enum class Layer : uint8_t {
  kMembership,  // who is alive, and how the job ended
  kTree,        // one round of control, up and down the tree of ranks
  kBroadcast,
  kStep,      // of a step as a whole
  kExchange,  // of a variable's gradient in a step
  kPull,      // of the values of variables in a step
  kMigration,
  kRowAccess,   // between steps
  kCollective,  // beside the steps
  kSplit,
  kLending,
  kProbe,
};
inline constexpr size_t kLayerCount = 12;

struct KindRow {
  SectionKind kind;
  Layer layer;
  const char* name;  // as errors have it
};

inline constexpr std::array kKindRows = {
    KindRow{SectionKind::kHeartbeat, Layer::kMembership, "heartbeat"},
    KindRow{SectionKind::kLost, Layer::kMembership, "lost"},
    KindRow{SectionKind::kAbort, Layer::kMembership, "abort"},
    KindRow{SectionKind::kTreeUp, Layer::kTree, "tree_up"},
    KindRow{SectionKind::kTreeDown, Layer::kTree, "tree_down"},
    KindRow{SectionKind::kBroadcastReady, Layer::kBroadcast, "broadcast_ready"},
    KindRow{SectionKind::kBroadcastData, Layer::kBroadcast, "broadcast_data"},
    KindRow{SectionKind::kLocalReduce, Layer::kExchange, "local_reduce"},
    KindRow{SectionKind::kHostReduce, Layer::kExchange, "host_reduce"},
    KindRow{SectionKind::kHostGather, Layer::kExchange, "host_gather"},
    KindRow{SectionKind::kLocalBroadcast, Layer::kExchange, "local_broadcast"},
    KindRow{SectionKind::kStepEnded, Layer::kStep, "step_ended"},
    KindRow{SectionKind::kPullLocal, Layer::kPull, "pull_local"},
    KindRow{SectionKind::kPullHost, Layer::kPull, "pull_host"},
    KindRow{SectionKind::kValuesHost, Layer::kPull, "values_host"},
    KindRow{SectionKind::kValuesLocal, Layer::kPull, "values_local"},
    KindRow{SectionKind::kMigrate, Layer::kMigration, "migrate"},
    KindRow{SectionKind::kRowsAsk, Layer::kRowAccess, "rows_ask"},
    KindRow{SectionKind::kRowsAnswer, Layer::kRowAccess, "rows_answer"},
    KindRow{SectionKind::kRowsWrite, Layer::kRowAccess, "rows_write"},
    KindRow{SectionKind::kRowsWritten, Layer::kRowAccess, "rows_written"},
    KindRow{SectionKind::kDenseReduce, Layer::kExchange, "dense_reduce"},
    KindRow{SectionKind::kDenseGather, Layer::kExchange, "dense_gather"},
    KindRow{SectionKind::kArrived, Layer::kExchange, "arrived"},
    KindRow{SectionKind::kCensusUp, Layer::kExchange, "census_up"},
    KindRow{SectionKind::kCensusDown, Layer::kExchange, "census_down"},
    KindRow{SectionKind::kCollectiveReport, Layer::kCollective, "collective_report"},
    KindRow{SectionKind::kCollectiveAnswer, Layer::kCollective, "collective_answer"},
    KindRow{SectionKind::kCollectiveCounts, Layer::kCollective, "collective_counts"},
    KindRow{SectionKind::kCollectiveReduce, Layer::kCollective, "collective_reduce"},
    KindRow{SectionKind::kCollectiveGather, Layer::kCollective, "collective_gather"},
    KindRow{SectionKind::kSplitUp, Layer::kSplit, "split_up"},
    KindRow{SectionKind::kSplitDown, Layer::kSplit, "split_down"},
    KindRow{SectionKind::kContributorsUp, Layer::kExchange, "contributors_up"},
    KindRow{SectionKind::kContributorsDown, Layer::kExchange, "contributors_down"},
    KindRow{SectionKind::kDensePlace, Layer::kExchange, "dense_place"},
    KindRow{SectionKind::kCollectivePlace, Layer::kCollective, "collective_place"},
    KindRow{SectionKind::kPullPlace, Layer::kPull, "pull_place"},
    KindRow{SectionKind::kLoanRead, Layer::kLending, "loan_read"},
    KindRow{SectionKind::kVote, Layer::kStep, "vote"},
    KindRow{SectionKind::kLaunchOrder, Layer::kExchange, "launch_order"},
    KindRow{SectionKind::kTablePlace, Layer::kPull, "table_place"},
    KindRow{SectionKind::kTablesCurrent, Layer::kPull, "tables_current"},
    KindRow{SectionKind::kProbe, Layer::kProbe, "probe"},
    KindRow{SectionKind::kProbeAnswer, Layer::kProbe, "probe_answer"},
    KindRow{SectionKind::kLentRun, Layer::kExchange, "lent_run"},
    KindRow{SectionKind::kRunSummed, Layer::kExchange, "run_summed"},
    KindRow{SectionKind::kEarlyRows, Layer::kPull, "early_rows"},
};

namespace internal_kinds {

// Every kind has its row, where its number says: kinds count from 1.
constexpr bool in_place() {
  if (kKindRows.size() + 1 != static_cast<size_t>(SectionKind::kKindCount)) return false;
  for (size_t i = 0; i < kKindRows.size(); ++i) {
    if (static_cast<size_t>(kKindRows[i].kind) != i + 1) return false;
  }
  return true;
}
static_assert(in_place(), "a section kind without its row, or a row out of place");

}  // namespace internal_kinds

// Of a kind that SectionReader let pass, or one of ours.
constexpr const KindRow& row_of(SectionKind kind) {
  return kKindRows[static_cast<size_t>(kind) - 1];
}
constexpr Layer layer_of(SectionKind kind) { return row_of(kind).layer; }
constexpr const char* name_of(SectionKind kind) { return row_of(kind).name; }

// True if a section's tag is the variable whose data it carries.
constexpr bool carries_variable(SectionKind kind) {
  const Layer layer = layer_of(kind);
  return layer == Layer::kExchange || layer == Layer::kPull || layer == Layer::kMigration ||
         layer == Layer::kRowAccess;
}

// True if a message carries data of this variable.
inline bool carries_data_of(std::span<const std::byte> message, uint32_t variable) {
  SectionReader reader(message);
  Section section;
  while (reader.next(&section)) {
    if (carries_variable(section.header.kind) && section.header.tag == variable) return true;
  }
  return false;
}

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_KINDS_H_
