// SPDX-License-Identifier: Apache-2.0
// How many different rows the steps of bench/peers touch: what the formulas of bench/cluster count.
// The batches are those that the contenders draw.
//
//   parallax_cluster_rows WORDS RANKS,RANKS...
//   parallax_cluster_rows WORDS ids RANK
//
// WORDS of sparse.h, and how many ranks each host has. A line for each table, means over the
// batches: different rows of a rank, of a host (means over all of them), and of the job. The second
// way writes all ids of a rank, batch by batch, as 64-bit numbers.
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "peers/sparse.h"

namespace parallax::peers {
namespace {

struct Counts {
  double rank = 0, host = 0, world = 0;
};

uint64_t distinct(std::vector<int64_t>& ids) {
  std::sort(ids.begin(), ids.end());
  return static_cast<uint64_t>(std::unique(ids.begin(), ids.end()) - ids.begin());
}

// Of a table in one batch.
Counts count(const Table& table, const std::vector<Batches>& ranks,
             const std::vector<uint32_t>& host_ranks, uint64_t batch) {
  Counts sums;
  std::vector<int64_t> all;
  size_t rank = 0;
  for (const uint32_t on_host : host_ranks) {
    std::vector<int64_t> host;
    for (uint32_t at = 0; at < on_host; ++at, ++rank) {
      const int64_t* const first = ranks[rank].ids(batch) + table.first_id;
      std::vector<int64_t> own(first, first + table.ids);
      host.insert(host.end(), own.begin(), own.end());
      sums.rank += static_cast<double>(distinct(own));
    }
    all.insert(all.end(), host.begin(), host.end());
    sums.host += static_cast<double>(distinct(host));
  }
  sums.world = static_cast<double>(distinct(all));
  sums.rank /= static_cast<double>(ranks.size());
  sums.host /= static_cast<double>(host_ranks.size());
  return sums;
}

void print(const std::string& words, const std::vector<uint32_t>& host_ranks) {
  const SparseStep step = SparseStep::read(words);
  std::vector<Batches> ranks;
  for (const uint32_t on_host : host_ranks) {
    for (uint32_t at = 0; at < on_host; ++at) {
      const auto rank = static_cast<uint32_t>(ranks.size());
      ranks.emplace_back(step, rank, batch_count(step));
    }
  }
  for (const auto& table : step.tables) {
    Counts mean;
    const uint64_t batches = ranks[0].count();
    for (uint64_t batch = 0; batch < batches; ++batch) {
      const Counts each = count(table, ranks, host_ranks, batch);
      mean.rank += each.rank / static_cast<double>(batches);
      mean.host += each.host / static_cast<double>(batches);
      mean.world += each.world / static_cast<double>(batches);
    }
    std::printf("%.3f %.3f %.3f\n", mean.rank, mean.host, mean.world);
  }
}

void write_ids(const std::string& words, uint32_t rank) {
  const SparseStep step = SparseStep::read(words);
  const Batches batches(step, rank, batch_count(step));
  const uint64_t count = batches.count() * step.ids;
  if (std::fwrite(batches.ids(0), sizeof(int64_t), count, stdout) != count) fail("cannot write");
}

}  // namespace
}  // namespace parallax::peers

int main(int count, char** all) {
  using namespace parallax::peers;
  const std::string words = argument(count, all, 1), given = argument(count, all, 2);
  if (given == "ids") {
    write_ids(words, static_cast<uint32_t>(std::stoul(argument(count, all, 3))));
    return 0;
  }
  std::vector<uint32_t> host_ranks;
  std::string each;
  for (std::istringstream list(given); std::getline(list, each, ',');) {
    host_ranks.push_back(static_cast<uint32_t>(std::stoul(each)));
  }
  print(words, host_ranks);
  return 0;
}
