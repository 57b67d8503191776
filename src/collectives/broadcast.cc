// SPDX-License-Identifier: Apache-2.0
// A broadcast along its root's tree: who is ready, and what is sent to whom. See broadcast.h.
#include "collectives/broadcast.h"

#include <algorithm>

#include "base/check.h"

namespace parallax {

void Broadcast::start(uint32_t root, std::byte* buffer, uint64_t bytes) {
  PARALLAX_CHECK(!active_);
  active_ = true;
  ++sequence_;
  root_ = root;
  buffer_ = buffer;
  bytes_ = bytes;
  received_ = rank_ == root ? bytes : 0;
  whole_ = rank_ == root;
  parent_ = tree_parent(hosts_, root, rank_);
  children_ = tree_children(hosts_, root, rank_);
  ready_children_.clear();
  second_parent_ = tree_parent(hosts_, 0, rank_);
  if (second_parent_ == parent_) second_parent_ = kNoRank;
  second_parent_answered_ = second_parent_ == kNoRank;
  unheard_ = tree_children(hosts_, 0, rank_);
  // Of its children in the tree of rank 0, those that are also children in this broadcast report as
  // such.
  std::erase_if(unheard_,
                [&](uint32_t child) { return tree_parent(hosts_, root, child) == rank_; });
  if (parent_ != kNoRank) say_ready(parent_, kToParent);
  if (second_parent_ != kNoRank) say_ready(second_parent_, kToSecondParent);
  // Reports that came before this rank joined; those of later broadcasts wait on.
  const std::vector<Ready> early = std::move(early_);
  early_.clear();
  for (const Ready& ready : early) {
    if (ready.sequence == sequence_) {
      PARALLAX_CHECK(serve(ready));  // one of each rank, and none was served before
    } else {
      early_.push_back(ready);
    }
  }
}

void Broadcast::say_ready(uint32_t to, uint8_t part) {
  SectionHeader header;
  header.kind = SectionKind::kBroadcastReady;
  header.part = part;
  header.tag = root_;
  header.step = sequence_;
  outbox_.send_bytes(to, header, std::as_bytes(std::span(&bytes_, 1)));
}

// Whether a rank with this root has this one as its parent, or as its second parent: only then may
// it report here. Its root need not be ours: that is what is to be found out.
bool Broadcast::due_from(const Ready& ready) const {
  const bool child = tree_parent(hosts_, ready.root, ready.rank) == rank_;
  if (ready.part == kToParent) return child;
  return !child && tree_parent(hosts_, 0, ready.rank) == rank_;
}

bool Broadcast::on_section(uint32_t from, const Section& section) {
  switch (section.header.kind) {
    case SectionKind::kBroadcastReady:
      return on_ready(from, section);
    case SectionKind::kBroadcastData:
      return on_data(from, section);
    default:
      return false;
  }
}

bool Broadcast::on_ready(uint32_t from, const Section& section) {
  Ready ready{from, section.header.tag, section.header.step, 0, section.header.part};
  if (section.payload.size() != sizeof ready.bytes || ready.root >= hosts_.host_of.size() ||
      ready.part > kToSecondParent || !due_from(ready)) {
    return false;
  }
  const auto same_rank = [from](const Ready& other) { return other.rank == from; };
  std::memcpy(&ready.bytes, section.payload.data(), sizeof ready.bytes);
  if (ready.sequence < sequence_ || (ready.sequence == sequence_ && !active_)) {
    // Every report due in that broadcast came before it finished here: this one is of another
    // broadcast, so the ranks disagree.
    mismatch_ = "broadcast " + std::to_string(ready.sequence) + ": rank " + std::to_string(from) +
                " has root " + std::to_string(ready.root) + " and " + std::to_string(ready.bytes) +
                " bytes, unlike rank " + std::to_string(rank_) + ", where it is complete";
  } else if (ready.sequence == sequence_) {
    return serve(ready);
  } else if (ready.sequence > sequence_ && std::none_of(early_.begin(), early_.end(), same_rank)) {
    // It may be ahead by more than one broadcast, if this rank had nothing to send it in those
    // between. A rank that is ready waits for its answer, so each has one entry at most.
    early_.push_back(ready);
  } else {
    return false;
  }
  return true;
}

// False: the rank has reported before.
bool Broadcast::serve(const Ready& ready) {
  if (ready.root != root_ || ready.bytes != bytes_) {
    const auto side = [](uint32_t rank, uint32_t root, uint64_t bytes) {
      return "rank " + std::to_string(rank) + " has root " + std::to_string(root) + " and " +
             std::to_string(bytes) + " bytes";
    };
    mismatch_ = "broadcast " + std::to_string(sequence_) + ": " + side(rank_, root_, bytes_) +
                ", " + side(ready.rank, ready.root, ready.bytes);
    return true;
  }
  if (ready.part == kToSecondParent) {
    if (std::erase(unheard_, ready.rank) == 0) return false;
    SectionHeader header;
    header.kind = SectionKind::kBroadcastData;
    header.part = kToSecondParent;
    header.step = sequence_;
    outbox_.send_bytes(ready.rank, header, {});
    return true;
  }
  if (std::find(ready_children_.begin(), ready_children_.end(), ready.rank) !=
      ready_children_.end()) {
    return false;
  }
  ready_children_.push_back(ready.rank);
  // What came before the child was ready; the rest is passed on as it comes.
  if (received_ > 0 || whole_) send_to(ready.rank, 0, received_);
  return true;
}

void Broadcast::send_to(uint32_t child, uint64_t first, uint64_t count) {
  Send send;
  send.header.kind = SectionKind::kBroadcastData;
  send.header.tag = root_;
  send.header.step = sequence_;
  send.header.first = first;
  send.bytes = buffer_ + first;
  send.count = count;
  send.pending = &pending_;
  ++pending_;
  outbox_.add(child, send);
}

bool Broadcast::on_data(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (header.part == kToSecondParent) {
    if (!active_ || second_parent_answered_ || from != second_parent_ || header.step != sequence_)
      return false;
    second_parent_answered_ = true;
    return true;
  }
  // Messages of a peer come in order: all but the next bytes of this broadcast are refused.
  if (!active_ || whole_ || from != parent_ || header.step != sequence_ ||
      header.first != received_ || section.payload.size() != header.count ||
      header.count > bytes_ - received_) {
    return false;
  }
  // An empty broadcast may have no buffer.
  if (header.count > 0) std::memcpy(buffer_ + received_, section.payload.data(), header.count);
  received_ += header.count;
  whole_ = received_ == bytes_;
  // Out of the caller's buffer, which is borrowed until all children have taken it.
  for (const uint32_t child : ready_children_) send_to(child, header.first, header.count);
  return true;
}

bool Broadcast::finished() const {
  return active_ && whole_ && pending_ == 0 && ready_children_.size() == children_.size() &&
         second_parent_answered_ && unheard_.empty();
}

void Broadcast::finish() {
  PARALLAX_CHECK(finished());
  active_ = false;
}

std::vector<uint32_t> Broadcast::missing_ranks() const {
  std::vector<uint32_t> missing;
  if (!active_) return missing;
  for (const uint32_t child : children_) {
    if (std::find(ready_children_.begin(), ready_children_.end(), child) == ready_children_.end()) {
      missing.push_back(child);
    }
  }
  if (!whole_ && parent_ != kNoRank) missing.push_back(parent_);
  if (!second_parent_answered_) missing.push_back(second_parent_);
  missing.insert(missing.end(), unheard_.begin(), unheard_.end());
  return missing;
}

}  // namespace parallax
