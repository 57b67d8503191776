// SPDX-License-Identifier: Apache-2.0
// Chunks of commits, and what steps lean on. See host_staging.h.
#include "collectives/host_staging.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace parallax {

HostStaging::~HostStaging() {
  for (const auto& chunk : chunks_) lending_.unshare(chunk->arena.sealed()->base());
}

bool HostStaging::is_read_by_neighbours() const {
  return lending_.may_share() && columns_.locals().size() > 1 && chunks_.size() < kChunksMax;
}

// Null: it would be this rank's alone.
HostStaging::Chunk* HostStaging::add_chunk(uint64_t bytes, SealedMemory::Writers writers) {
  if (!is_read_by_neighbours()) return nullptr;
  auto chunk = std::make_unique<Chunk>();
  if (!chunk->arena.reserve_sealed(bytes, writers).ok()) return nullptr;
  const SealedMemory& pages = *chunk->arena.sealed();
  const auto* const base = static_cast<const std::byte*>(pages.base());
  if (!lending_.share({base, pages.mapped_bytes(), pages.fd()})) return nullptr;
  chunk->buffer = lending_.place_of(base, 1).buffer;
  return chunks_.emplace_back(std::move(chunk)).get();
}

void HostStaging::add(std::span<const uint64_t> block_bytes) {
  const size_t first = blocks_.size();
  blocks_.resize(first + block_bytes.size());
  const uint64_t bytes = std::accumulate(
      block_bytes.begin(), block_bytes.end(), uint64_t{0},
      [](uint64_t sum, uint64_t block) { return sum + 2 * Arena::bytes_for<std::byte>(block); });
  if (bytes == 0 || !rows_) return;
  Chunk* const chunk = add_chunk(bytes, SealedMemory::Writers::kOwner);
  if (chunk == nullptr) return;
  for (size_t i = 0; i < block_bytes.size(); ++i) {
    if (block_bytes[i] == 0) continue;
    Blocks& blocks = blocks_[first + i];
    blocks.chunk = chunk;
    for (auto& block : blocks.of_steps) block = chunk->arena.take<std::byte>(block_bytes[i]);
  }
}

void HostStaging::add_slab(uint64_t bytes) {
  if (!slabs_[0].empty()) return;
  Chunk* const chunk = add_chunk(2 * bytes, SealedMemory::Writers::kAll);
  if (chunk == nullptr) return;
  for (auto& slab : slabs_) slab = chunk->arena.take<std::byte>(bytes);
}

std::span<std::byte> HostStaging::block(uint32_t variable, uint64_t step) const {
  return variable < blocks_.size() ? blocks_[variable].of_steps[step & 1] : std::span<std::byte>();
}

BufferPlace HostStaging::place_for(uint32_t rank, uint32_t variable, uint64_t step) const {
  const std::span<std::byte> there = block(variable, step);
  if (there.empty()) return {};
  const Chunk& chunk = *blocks_[variable].chunk;
  if (chunk.buffer == 0 || !lending_.has_mapped(rank, chunk.buffer)) return {};
  const auto* const base = static_cast<const std::byte*>(chunk.arena.sealed()->base());
  return {.buffer = chunk.buffer, .offset = static_cast<uint64_t>(there.data() - base)};
}

// ---- rows that stay

void HostStaging::lean_on(uint32_t rank, const BufferPlace& block, const std::byte* at,
                          uint64_t step) {
  LeantStep& leant = leant_[step & 1];
  if (leant.step != step) {
    leant.step = step;
    leant.on.clear();
  }
  const bool known = std::any_of(leant.on.begin(), leant.on.end(), [&](const Leant& each) {
    return each.rank == rank && each.buffer == block.buffer;
  });
  if (!known) leant.on.push_back({rank, block.buffer, at - block.offset});
}

bool HostStaging::readable(uint64_t step) const {
  const LeantStep& leant = leant_[step & 1];
  if (leant.step != step) return true;
  return std::all_of(leant.on.begin(), leant.on.end(), [this](const Leant& each) {
    return lending_.find(each.rank, {.buffer = each.buffer}, 1) == each.first;
  });
}

// ---- sizes

uint64_t HostStaging::reserved_bytes(uint32_t variable) const {
  if (variable >= blocks_.size()) return 0;
  return 2 * Arena::bytes_for<std::byte>(blocks_[variable].of_steps[0].size());
}

uint64_t HostStaging::reserved_bytes() const {
  return std::accumulate(
      chunks_.begin(), chunks_.end(), uint64_t{0},
      [](uint64_t sum, const auto& chunk) { return sum + chunk->arena.reserved_bytes(); });
}

uint64_t HostStaging::touched_bytes() const {
  return std::accumulate(
      chunks_.begin(), chunks_.end(), uint64_t{0},
      [](uint64_t sum, const auto& chunk) { return sum + chunk->arena.touched_bytes(); });
}

}  // namespace parallax
