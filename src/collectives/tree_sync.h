// SPDX-License-Identifier: Apache-2.0
// TreeSync: one kind of synchronization of all ranks along the tree of rank 0: everyone reports up,
// the root answers down. Barriers, commit checks, step votes and the goodbye are all this, with
// payloads that the engine merges. One round of a kind is under way at a time; a child may already
// report for the next round, since it has its answer while we have not joined the next. Pure
// bookkeeping.
#ifndef PARALLAX_COLLECTIVES_TREE_SYNC_H_
#define PARALLAX_COLLECTIVES_TREE_SYNC_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "world/patterns.h"

namespace parallax {

enum class TreeKind : uint32_t {
  kCommit = 0,
  kVote = 1,
  kBarrier = 2,
  kClose = 3,
  kCloseConfirm = 4
};
inline constexpr uint32_t kTreeKinds = 5;

class TreeSync {
 public:
  TreeSync(const HostMap& hosts, uint32_t rank)
      : parent_(tree_parent(hosts, 0, rank)), children_(tree_children(hosts, 0, rank)) {
    arrived_.resize(children_.size());
  }

  // Between rounds: the tree is another one from here on.
  void hang(uint32_t parent, std::vector<uint32_t> children) {
    parent_ = parent;
    children_ = std::move(children);
    arrived_.assign(children_.size(), 0);
  }
  uint32_t parent() const { return parent_; }
  const std::vector<uint32_t>& children() const { return children_; }
  bool is_root() const { return parent_ == kNoRank; }
  uint64_t round() const { return round_; }  // from 1; the one under way or next to come

  // Whether a child's report may come: none else's, of no other round, and no repeat.
  [[nodiscard]] bool awaits(uint32_t child, uint64_t round) const {
    const auto found = std::find(children_.begin(), children_.end(), child);
    return found != children_.end() && round == round_ && arrived_[found - children_.begin()] == 0;
  }
  // A child's report; false if none may come.
  [[nodiscard]] bool arrive(uint32_t child, uint64_t round) {
    if (!awaits(child, round)) return false;
    arrived_[std::find(children_.begin(), children_.end(), child) - children_.begin()] = 1;
    return true;
  }
  bool has_arrived(uint32_t child) const {
    const auto found = std::find(children_.begin(), children_.end(), child);
    return found != children_.end() && arrived_[found - children_.begin()] != 0;
  }
  bool any_arrived() const {
    return std::find(arrived_.begin(), arrived_.end(), 1) != arrived_.end();
  }
  // This rank joins the round.
  void join() { joined_ = true; }
  bool joined() const { return joined_; }
  // True once in a round: when every child has reported and this rank has joined.
  bool take_complete() {
    if (!joined_ || reported_) return false;
    if (std::find(arrived_.begin(), arrived_.end(), 0) != arrived_.end()) return false;
    return reported_ = true;
  }
  bool reported() const { return reported_; }
  // The answer came: the next round begins.
  void answered() {
    ++round_;
    joined_ = reported_ = false;
    std::fill(arrived_.begin(), arrived_.end(), uint8_t{0});
  }
  // Between rounds, the same on all ranks: this one is next.
  void begin_at(uint64_t round) { round_ = round; }
  std::vector<uint32_t> missing_children() const {
    std::vector<uint32_t> missing;
    for (size_t i = 0; i < children_.size(); ++i) {
      if (arrived_[i] == 0) missing.push_back(children_[i]);
    }
    return missing;
  }

 private:
  uint32_t parent_;
  std::vector<uint32_t> children_;
  std::vector<uint8_t> arrived_;
  uint64_t round_ = 1;
  bool joined_ = false;
  bool reported_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_TREE_SYNC_H_
