// SPDX-License-Identifier: Apache-2.0
// The fewest chunks under a ceiling, by bisection. See row_chunks.h.
#include "collectives/row_chunks.h"

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "aggregate/row_coalescer.h"
#include "base/arena.h"
#include "collectives/chunked_rows.h"
#include "collectives/host_rows.h"
#include "collectives/whole_rows.h"
#include "world/domain_columns.h"

namespace parallax {

namespace {

// What is measured, of all ranks.
class Measure {
 public:
  Measure(const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
          const ExchangeOptions& options)
      : columns_(columns),
        partition_(partition),
        outbox_(outbox),
        compute_(compute),
        options_(options) {
    // What ranks share is counted as if each had its own.
    options_.staging = nullptr;
    options_.scratch = nullptr;
    // Ranks of one place in hosts of one size need the same, if they own as much, and sum as many
    // ranks' rows for their domains.
    using Numbers = std::vector<uint32_t>;
    std::set<std::tuple<size_t, uint32_t, uint64_t, uint64_t, Numbers, size_t, Numbers>> kinds;
    const HostMap& map = columns.map();
    for (uint32_t rank = 0; rank < columns.world(); ++rank) {
      const size_t locals = map.ranks_of[map.host_of[rank]].size();
      auto kind = std::make_unique<Kind>(map, rank);
      const bool is_new =
          kinds
              .insert({locals, map.local_of[rank], partition.rows_owned(rank),
                       partition.range_of(rank).count, kind->domains.to_leader().rows_of,
                       kind->domains.in_domain().ranks.size(), kind->domains.summed()})
              .second;
      if (is_new) kinds_.push_back(std::move(kind));
    }
  }

  // Beside a slice, coalesced, and the result where it is rows, as it is of chunks.
  uint64_t whole_bytes() const {
    Arena own;
    lay_out_own(own);
    return most_bytes(partition_, options_) - own.used_bytes();
  }
  uint64_t chunk_bytes(uint64_t rows) const {
    return most_bytes(partition_.of_rows(rows), ChunkedRows::options_of_chunk(options_, rows));
  }
  // The same of one rank: of that which needed most when all were last looked at.
  uint64_t chunk_bytes_of_one(uint64_t rows) const {
    return bytes_of(*kinds_[neediest_], partition_.of_rows(rows),
                    ChunkedRows::options_of_chunk(options_, rows));
  }

 private:
  struct Kind {
    Kind(const HostMap& map, uint32_t rank) : columns(map, rank), domains(columns) {}
    const Columns columns;
    const DomainColumns domains;
  };

  uint64_t most_bytes(const Partition& partition, const ExchangeOptions& options) const {
    uint64_t most = 0;
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const uint64_t bytes = bytes_of(*kinds_[i], partition, options);
      if (bytes <= most) continue;
      most = bytes;
      neediest_ = i;
    }
    return most;
  }
  uint64_t bytes_of(const Kind& kind, const Partition& partition, ExchangeOptions options) const {
    options.domains = kind.domains.any() ? &kind.domains : nullptr;
    return make_whole_rows(kind.columns, partition, outbox_, compute_, options)->needed_bytes();
  }

  // As HostRows and ReturnedRows have them.
  void lay_out_own(Arena& arena) const {
    const uint64_t rows_max = options_.rows_max;
    const uint64_t row_bytes = partition_.row_elements() * bytes_of_sum(options_.sum);
    RowCoalescer().lay_out(arena,
                           {.rows_max = rows_max, .groups = columns_.count(), .pieces = true});
    const uint64_t rows_in_world = std::min(partition_.rows(), rows_max * columns_.world());
    for (int step = 0; step < 2; ++step) {
      arena.take<std::byte>(HostRows::block_bytes(partition_, rows_max, options_.sum));
      if (options_.method == Method::kMadeDense) continue;
      arena.take<std::byte>(rows_in_world * row_bytes);
      arena.take<uint32_t>(rows_in_world);
    }
  }

  const Columns& columns_;
  const Partition& partition_;
  Outbox& outbox_;
  Compute& compute_;
  ExchangeOptions options_;
  // One rank of each kind, kept for what they have found of the job's layout.
  std::vector<std::unique_ptr<Kind>> kinds_;
  mutable size_t neediest_ = 0;
};

}  // namespace

RowChunks find_row_chunks(const Columns& columns, const Partition& partition, Outbox& outbox,
                          Compute& compute, const ExchangeOptions& options, uint64_t bytes_max) {
  const Measure measure(columns, partition, outbox, compute, options);
  const uint64_t whole = measure.whole_bytes();
  if (whole <= bytes_max) return {.bytes = whole};
  // In turns of the slots, so that owners have the same of each chunk.
  const uint64_t slots = partition.slots().size();
  const uint64_t rows = partition.rows();
  const auto turns_of = [slots](uint64_t some) { return (some + slots - 1) / slots; };
  const uint64_t narrowest = turns_of((rows - 1) / kRowChunksMax + 1);
  const uint64_t least = measure.chunk_bytes(narrowest * slots);
  if (narrowest * slots >= rows) return {.count = 0, .bytes = whole};
  if (least > bytes_max) return {.count = 0, .bytes = std::min(least, whole)};
  const auto widest = [&](uint64_t passes, const auto& bytes_of) {
    uint64_t fits = narrowest;
    while (passes - fits > 1) {
      const uint64_t middle = fits + (passes - fits) / 2;
      (bytes_of(middle * slots) <= bytes_max ? fits : passes) = middle;
    }
    return fits;
  };
  // From the first that is not a chunk any more, or is past what divides (Divisor). Of one rank: to
  // make the exchanges of all kinds for each width takes seconds in jobs of thousands.
  uint64_t fits = widest(std::min(turns_of(rows), (uint64_t{1} << 31) / slots + 1),
                         [&](uint64_t some) { return measure.chunk_bytes_of_one(some); });
  if (measure.chunk_bytes(fits * slots) > bytes_max) {  // of another
    fits = widest(fits, [&](uint64_t some) { return measure.chunk_bytes(some); });
  }
  // As many as that takes, all about as wide: made dense, a chunk costs as much however full it is.
  const uint64_t count = (rows - 1) / (fits * slots) + 1;
  const uint64_t chunk = turns_of((rows - 1) / count + 1) * slots;
  return {.rows = chunk, .count = count, .bytes = measure.chunk_bytes(chunk)};
}

}  // namespace parallax
