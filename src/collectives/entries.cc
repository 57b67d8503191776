// SPDX-License-Identifier: Apache-2.0
// Where entries lie, and who waits for them. See entries.h.
#include "collectives/entries.h"

#include <algorithm>

#include "base/check.h"

namespace parallax {

namespace {

constexpr uint64_t kLineBytes = 64;

uint64_t in_lines(uint64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

}  // namespace

Entries::Entries(const Columns& columns, Boards* boards)
    : rank_(columns.rank()), world_(columns.world()), transport_boards_(boards) {
  const bool few = world_ >= 2 && world_ <= kEntryRanksMax;
  if (boards != nullptr && few && columns.host_count() == 1) bytes_ = boards->bytes();
}

void Entries::find_boards() {
  if (bytes_ == 0 || usable()) return;
  std::vector<const std::byte*> by_rank;
  for (uint32_t rank = 0; rank < world_; ++rank) {
    by_rank.push_back(rank == rank_ ? transport_boards_->own() : transport_boards_->of(rank));
    if (by_rank.back() == nullptr) return;
  }
  own_ = transport_boards_->own();
  boards_ = std::move(by_rank);
}

EntryPlace Entries::take(uint64_t bytes, uint32_t head) {
  if (bytes > bytes_) return {};
  const uint64_t stride = in_lines(head + bytes);
  if (2 * stride > bytes_ - used_bytes_) return {};
  const EntryPlace place = {.offset = static_cast<uint32_t>(used_bytes_),
                            .stride = static_cast<uint32_t>(stride),
                            .head = head};
  used_bytes_ += 2 * stride;
  return place;
}

EntryPlace Entries::reserve(uint32_t variable, uint64_t bytes) {
  if (!usable()) return {};
  if (of_variables_.size() <= variable) of_variables_.resize(variable + 1);
  EntryPlace& place = of_variables_[variable];
  if (place.exists()) return place;
  // Longer ones begin a line of their own: vectors are loaded there, and few bytes more than one
  // line are seldom.
  const uint32_t head = bytes <= kLineBytes - kWordBytes ? kWordBytes : kLineBytes;
  place = take(bytes, head);
  // Votes are one more, and runs.
  if (readers_.capacity() < variable + 3) readers_.reserve(2 * (variable + 3));
  return place;
}

EntryPlace Entries::reserve_votes(uint64_t bytes) {
  if (!votes_.exists()) votes_ = take(bytes, kWordBytes);
  if (readers_.capacity() == 0) readers_.reserve(2);
  return votes_;
}

void Entries::publish(const EntryPlace& place, uint64_t step, EntryKind kind) {
  const uint64_t word = step << kKindBits | static_cast<uint64_t>(kind);
  reinterpret_cast<std::atomic<uint64_t>*>(own_ + at(place, step))
      ->store(word, std::memory_order_release);
  published_ = true;
}

void Entries::await_unseen(EntryReader* reader) {
  unseen_ = true;
  if (std::find(readers_.begin(), readers_.end(), reader) == readers_.end()) await(reader);
}

void Entries::forget(const EntryReader* reader) { std::erase(readers_, reader); }

bool Entries::look() {
  if (readers_.empty()) return false;
  if (readers_.size() > kAskedMax) {
    // Before the look: what is posted during it is for the next.
    const uint64_t posts = transport_boards_->posts();
    if (posts == posts_seen_ && !unseen_) return false;
    posts_seen_ = posts;
    unseen_ = false;
    return ask();
  }
  for (int i = 0; i < kLooks; ++i) {
    if (ask()) return true;
  }
  return false;
}

bool Entries::ask() {
  bool moved = false;
  for (size_t i = 0; i < readers_.size();) {
    const EntryReader::News news = readers_[i]->read_entries();
    moved |= news.moved;
    if (news.awaits) {
      ++i;
      continue;
    }
    readers_[i] = readers_.back();
    readers_.pop_back();
  }
  return moved;
}

}  // namespace parallax
