// SPDX-License-Identifier: Apache-2.0
// Two rounds, and who is missed. See goodbye.h.
#include "engine/goodbye.h"

#include <cstring>

#include "base/check.h"

namespace parallax {

void Goodbye::start(uint64_t ended) {
  PARALLAX_CHECK(!started_);
  started_ = true;
  if (ended < leaving_.ended) leaving_ = {ended, rank_};
  trees_[TreeKind::kClose].join();
}

void Goodbye::advance() {
  if (!started_) return;
  for (const TreeKind kind : {TreeKind::kClose, TreeKind::kCloseConfirm}) {
    if (!trees_[kind].take_complete()) continue;
    const bool tells_leaver = kind == TreeKind::kClose && !trees_[kind].is_root();
    const auto payload =
        tells_leaver ? std::as_bytes(std::span(&leaving_, 1)) : std::span<const std::byte>();
    if (trees_.pass_on(kind, payload)) PARALLAX_CHECK(on_answer(kind, payload));
  }
}

bool Goodbye::merge_report(TreeKind kind, std::span<const std::byte> payload) {
  if (kind != TreeKind::kClose) return payload.empty();
  Leaving leaving;
  if (payload.size() != sizeof leaving) return false;
  std::memcpy(&leaving, payload.data(), sizeof leaving);
  // Others may wait for the one that ended fewest steps.
  if (leaving.ended < leaving_.ended) leaving_ = leaving;
  return true;
}

bool Goodbye::on_answer(TreeKind kind, std::span<const std::byte> payload) {
  if (kind == TreeKind::kClose) {
    all_closing_ = true;
    // The second round needs no call of the program: see advance().
    trees_[TreeKind::kCloseConfirm].join();
  } else {
    confirmed_ = true;
  }
  return payload.empty();
}

bool Goodbye::may_have_left(uint32_t rank) const {
  const TreeSync& last = trees_[TreeKind::kCloseConfirm];
  return confirmed_ || last.reported() || last.has_arrived(rank);
}

bool Goodbye::waits_for(uint32_t rank) const {
  return !confirmed_ && rank == trees_[TreeKind::kCloseConfirm].parent();
}

Goodbye::Leaver Goodbye::missed(bool committing, const StepWindow& window, uint64_t voted) const {
  if (all_closing_) return {};
  const bool some_commit = committing || trees_[TreeKind::kCommit].any_arrived();
  if (started_) {
    if (some_commit) return {rank_, "before its commit"};
    if (window.ended() < voted) return {rank_, "before ending step " + std::to_string(voted)};
    return {};
  }
  if (leaving_.ended == UINT64_MAX) return {};
  const auto rank = static_cast<uint32_t>(leaving_.rank);
  if (window.ended() > leaving_.ended && window.is_ending(window.ended())) {
    return {rank, "before ending step " + std::to_string(leaving_.ended + 1)};
  }
  return some_commit ? Leaver{rank, "before its commit"} : Leaver{};
}

}  // namespace parallax
