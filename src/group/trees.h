// SPDX-License-Identifier: Apache-2.0
// Trees: the rounds of control that all ranks take part in (commit, votes, barriers, the goodbye),
// with their messages: one TreeSync for each TreeKind, and what goes up and down it. What a report
// or an answer says is its kind's business. Engine's owner only; nothing blocks.
//
// A round at one rank: reports of its children come (take_report) and the rank itself joins; then
// the round is complete below it (TreeSync::take_complete), and it reports to its parent; the root
// answers instead (both: pass_on). The answer comes from the parent and goes on to the children
// (take_answer), which ends the round.
#ifndef PARALLAX_GROUP_TREES_H_
#define PARALLAX_GROUP_TREES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/tree_sync.h"
#include "message/outbox.h"
#include "message/wire.h"

namespace parallax {

class Trees {
 public:
  // The outbox outlives this.
  Trees(const HostMap& hosts, uint32_t rank, Outbox& outbox)
      : outbox_(outbox), rounds_(kTreeKinds, TreeSync(hosts, rank)) {}

  TreeSync& operator[](TreeKind kind) { return rounds_[static_cast<size_t>(kind)]; }
  const TreeSync& operator[](TreeKind kind) const { return rounds_[static_cast<size_t>(kind)]; }

  // A section from another rank. False: not what that rank may send now, or of no kind; on true
  // its tag is a TreeKind.
  [[nodiscard]] bool take_report(uint32_t from, const Section& section);
  [[nodiscard]] bool take_answer(uint32_t from, const Section& section);
  // A piece of what a child will report, ahead of its report. A section is one if its part is 1.
  [[nodiscard]] bool take_part(uint32_t from, const Section& section) const;

  // Of a round that is complete below this rank. True at the root, where `payload` is the answer:
  // the root takes it as all others do.
  [[nodiscard]] bool pass_on(TreeKind kind, std::span<const std::byte> payload);
  // Of a round that is complete below this rank, which is not the root: before pass_on().
  void send_part(TreeKind kind, std::span<const std::byte> payload);

 private:
  void send_up(TreeKind kind, uint8_t part, std::span<const std::byte> payload);
  void send_down(TreeKind kind, std::span<const std::byte> payload);

  Outbox& outbox_;
  std::vector<TreeSync> rounds_;  // by TreeKind
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_TREES_H_
