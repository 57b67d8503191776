// SPDX-License-Identifier: Apache-2.0
// TableMemory: where the tables of a rank lie. A shard of rows lies in memory that the ranks of
// this host map to read (Lending), so that what they pull of it is a copy out of it
// (server/table_reader.h): a large one in pages of its own, small ones together, since each such
// memory takes a descriptor here and a mapping in every neighbour. What the kernel or a bound
// refuses is memory like any other, and pulled by messages. Engine's owner only; nothing blocks.
#ifndef PARALLAX_GROUP_TABLE_MEMORY_H_
#define PARALLAX_GROUP_TABLE_MEMORY_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "base/arena.h"
#include "base/status.h"
#include "message/lending.h"
#include "server/table.h"
#include "world/patterns.h"

namespace parallax {

class TableMemory {
 public:
  // Both outlive this object. `read`: neighbours read tables, if there are any.
  TableMemory(const Columns& columns, Lending& lending, bool read = true)
      : columns_(columns), lending_(lending), read_(read && columns.locals().size() > 1) {}
  // Before the tables go, whose memory nobody looks at from then on.
  ~TableMemory();
  TableMemory(const TableMemory&) = delete;
  TableMemory& operator=(const TableMemory&) = delete;

  // Of a table in host memory. LIMIT.
  Status reserve(Table& table);
  // The table is to go right behind this, for its memory may be gone: what small ones lie in goes
  // with the last of them.
  void unshare(const Table& table);

  // From so many bytes on a table has pages of its own. Of less the last huge page would be a large
  // part, which in memory of many is another table's.
  static constexpr size_t kOwnBytesMin = size_t{4} << 20;
  // So many of them: beyond, a process may have few descriptors left.
  static constexpr size_t kOwnMax = 256;
  // Of the memory that small ones lie in together. Pages cost memory once touched.
  static constexpr size_t kPoolBytes = size_t{64} << 20;

 private:
  struct Pool {
    std::unique_ptr<Arena> arena;
    size_t tables = 0;
  };

  bool is_read_by_neighbours(const Table& table) const;
  bool reserve_own(Table& table);
  bool reserve_in_pool(Table& table);
  bool share(const Arena& arena);

  const Columns& columns_;
  Lending& lending_;
  const bool read_;
  std::vector<const void*> own_;  // where those with pages of their own lie
  std::vector<Pool> pools_;       // the last one has room
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_TABLE_MEMORY_H_
