// SPDX-License-Identifier: Apache-2.0
// Regions of boards, and who has them. See part_memory.h.
#include "message/part_memory.h"

#include <cstring>

#include "base/check.h"

namespace parallax {

namespace {

// Addresses alone, until pages are touched: of a part, its votes and some hundred small variables.
constexpr size_t kDirectoryBytes = 4096;
constexpr size_t kWholeBytes = size_t{4} << 20;
constexpr size_t kPartBytes = size_t{512} << 10;
static_assert(sizeof(BoardDirectory) <= kDirectoryBytes);
static_assert(kDirectoryBytes + kWholeBytes + kBoardPartsMax * kPartBytes <= Boards::kBytes);

constexpr size_t region_at(uint32_t region) {
  return kDirectoryBytes + kWholeBytes + region * kPartBytes;
}

// Every epoch is one, 0 too.
uint64_t word_of(uint32_t epoch) { return uint64_t{epoch} << 32 | 1; }

std::atomic<uint64_t>& word_in(std::byte* directory, uint32_t region) {
  return reinterpret_cast<BoardDirectory*>(directory)->parts[region];
}

const std::byte* beyond_directory(const std::byte* board) {
  return board == nullptr ? nullptr : board + kDirectoryBytes;
}

}  // namespace

// ---- of the whole job

std::byte* WholeBoards::own() { return transport_.boards()->own() + kDirectoryBytes; }

const std::byte* WholeBoards::of(uint32_t rank) const {
  return beyond_directory(transport_.boards()->of(rank));
}

size_t WholeBoards::bytes() const { return kWholeBytes; }

// ---- of this rank

uint32_t BoardRegions::take(std::byte* directory, uint32_t epoch) {
  // Of those that are free, one that is zero as it is.
  uint32_t region = kNone;
  for (uint32_t each = 0; each < kBoardPartsMax; ++each) {
    if (taken_[each]) continue;
    region = each;
    if (!written_[each]) break;
  }
  if (region == kNone) return kNone;
  if (written_[region]) std::memset(directory + region_at(region), 0, kPartBytes);
  taken_[region] = written_[region] = true;
  word_in(directory, region).store(word_of(epoch), std::memory_order_release);
  return region;
}

void BoardRegions::give_back(std::byte* directory, uint32_t region) {
  PARALLAX_CHECK(taken_[region]);
  word_in(directory, region).store(0, std::memory_order_release);
  taken_[region] = false;
}

// ---- of a part

PartBoards::PartBoards(Transport& transport, BoardRegions& regions, uint32_t epoch,
                       std::span<const uint32_t> ranks)
    : transport_(transport),
      regions_(regions),
      word_(word_of(epoch)),
      ranks_(ranks),
      found_(ranks.size()),
      region_(regions.take(transport.boards()->own(), epoch)) {}

void PartBoards::give_back() {
  if (!has_region()) return;
  regions_.give_back(transport_.boards()->own(), region_);
  region_ = BoardRegions::kNone;
}

void PartBoards::retract() {
  if (!has_region()) return;
  word_in(transport_.boards()->own(), region_).store(0, std::memory_order_relaxed);
  // Before this rank writes what it has lent.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool PartBoards::was_meant(uint32_t rank) const {
  const Found& found = find(rank);
  if (found.word == nullptr) return false;
  // Behind the last byte that was read.
  std::atomic_thread_fence(std::memory_order_acquire);
  return found.word->load(std::memory_order_relaxed) == word_;
}

const PartBoards::Found& PartBoards::find(uint32_t rank) const {
  Found& found = found_[rank];
  if (found.word != nullptr) return found;
  const std::byte* const board = transport_.boards()->of(ranks_[rank]);
  if (board == nullptr) return found;
  const auto* const directory = reinterpret_cast<const BoardDirectory*>(board);
  for (uint32_t region = 0; region < kBoardPartsMax; ++region) {
    if (directory->parts[region].load(std::memory_order_acquire) != word_) continue;
    found = {.board = board, .word = &directory->parts[region], .region = region};
    break;
  }
  return found;
}

std::byte* PartBoards::own() {
  return has_region() ? transport_.boards()->own() + region_at(region_) : nullptr;
}

const std::byte* PartBoards::of(uint32_t rank) const {
  const Found& found = find(rank);
  return found.board == nullptr ? nullptr : found.board + region_at(found.region);
}

size_t PartBoards::bytes() const { return kPartBytes; }

}  // namespace parallax
