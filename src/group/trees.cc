// SPDX-License-Identifier: Apache-2.0
// Reports up and answers down. See trees.h.
#include "group/trees.h"

namespace parallax {

bool Trees::take_report(uint32_t from, const Section& section) {
  if (section.header.tag >= kTreeKinds) return false;
  return rounds_[section.header.tag].arrive(from, section.header.step);
}

bool Trees::take_part(uint32_t from, const Section& section) const {
  return section.header.tag < kTreeKinds &&
         rounds_[section.header.tag].awaits(from, section.header.step);
}

bool Trees::take_answer(uint32_t from, const Section& section) {
  if (section.header.tag >= kTreeKinds) return false;
  const auto kind = static_cast<TreeKind>(section.header.tag);
  TreeSync& round = (*this)[kind];
  // Nobody is answered who has not reported: the answer takes all reports.
  if (from != round.parent() || section.header.step != round.round() || !round.reported()) {
    return false;
  }
  // Passed on first: answered() moves to the next round.
  send_down(kind, section.payload);
  round.answered();
  return true;
}

bool Trees::pass_on(TreeKind kind, std::span<const std::byte> payload) {
  TreeSync& round = (*this)[kind];
  if (round.is_root()) {
    send_down(kind, payload);
    round.answered();
    return true;
  }
  send_up(kind, 0, payload);
  return false;
}

// Control to a peer goes in the order of its sending, so parts are there before their report.
void Trees::send_part(TreeKind kind, std::span<const std::byte> payload) {
  send_up(kind, 1, payload);
}

void Trees::send_up(TreeKind kind, uint8_t part, std::span<const std::byte> payload) {
  const TreeSync& round = (*this)[kind];
  SectionHeader header;
  header.kind = SectionKind::kTreeUp;
  header.part = part;
  header.tag = static_cast<uint32_t>(kind);
  header.step = round.round();
  outbox_.send_bytes(round.parent(), header, payload);
}

void Trees::send_down(TreeKind kind, std::span<const std::byte> payload) {
  const TreeSync& round = (*this)[kind];
  SectionHeader header;
  header.kind = SectionKind::kTreeDown;
  header.tag = static_cast<uint32_t>(kind);
  header.step = round.round();
  for (const uint32_t child : round.children()) outbox_.send_bytes(child, header, payload);
}

}  // namespace parallax
