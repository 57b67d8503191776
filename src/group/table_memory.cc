// SPDX-License-Identifier: Apache-2.0
// Which tables neighbours may read. See table_memory.h.
#include "group/table_memory.h"

#include <algorithm>

namespace parallax {

TableMemory::~TableMemory() {
  for (const void* base : own_) lending_.unshare(base);
  for (const Pool& pool : pools_) lending_.unshare(pool.arena->sealed()->base());
}

bool TableMemory::is_read_by_neighbours(const Table& table) const {
  return read_ && lending_.may_share() && table.sharded() && table.partition().ids_declared() &&
         table.device() == nullptr;
}

Status TableMemory::reserve(Table& table) {
  if (is_read_by_neighbours(table)) {
    const bool large = shared_bytes(table) >= kOwnBytesMin;
    if (large ? reserve_own(table) : reserve_in_pool(table)) return {};
  }
  return table.reserve();
}

bool TableMemory::share(const Arena& arena) {
  const SealedMemory& pages = *arena.sealed();
  return lending_.share(
      {static_cast<const std::byte*>(pages.base()), pages.mapped_bytes(), pages.fd()});
}

bool TableMemory::reserve_own(Table& table) {
  const SharedPages pages;
  if (own_.size() >= kOwnMax || !table.reserve({}, 0, &pages).ok()) return false;
  // Refused, it is as good as any other memory.
  if (share(table.arena())) own_.push_back(table.arena().sealed()->base());
  return true;
}

bool TableMemory::reserve_in_pool(Table& table) {
  const size_t bytes = Arena::bytes_for<std::byte>(shared_bytes(table));
  if (pools_.empty() || pools_.back().arena->left_bytes() < bytes) {
    Pool pool = {std::make_unique<Arena>()};
    if (!pool.arena->reserve_sealed(kPoolBytes).ok()) return false;
    if (!share(*pool.arena)) return false;
    pools_.push_back(std::move(pool));
  }
  const SharedPages pages = {pools_.back().arena.get()};
  if (!table.reserve({}, 0, &pages).ok()) return false;
  ++pools_.back().tables;
  return true;
}

void TableMemory::unshare(const Table& table) {
  if (table.arena().sealed() != nullptr) {
    const void* const base = table.arena().sealed()->base();
    if (std::erase(own_, base) > 0) lending_.unshare(base);
    return;
  }
  const auto pool = std::find_if(pools_.begin(), pools_.end(), [&](const Pool& each) {
    return table.arena().lies_in(*each.arena);
  });
  if (pool == pools_.end() || --pool->tables > 0) return;
  lending_.unshare(pool->arena->sealed()->base());
  pools_.erase(pool);
}

}  // namespace parallax
