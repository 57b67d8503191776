// SPDX-License-Identifier: Apache-2.0
// Google Benchmark over two ways to find the distinct ids of a slice: by an index, which is a hash,
// and by a sort (docs/adr/0125). What comes of both is the same, and compared: which distinct row
// each id is of, numbered in the order in which they first come.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "aggregate/row_index.h"
#include "aggregate/sorted_ids.h"
#include "base/arena.h"
#include "tool/bench/zipf.h"

namespace parallax {
namespace {

constexpr uint64_t kRowsPerId = 4;
constexpr uint64_t kSeed = 1;

std::vector<uint32_t> drawn(const benchmark::State& state) {
  const auto count = static_cast<uint64_t>(state.range(0));
  const double skew = static_cast<double>(state.range(1)) / 10;
  const auto ids = tool::bench::draw_ids(count * kRowsPerId, skew, kSeed, 0, count);
  return {ids.begin(), ids.end()};
}

void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "parallax_distinct: %s\n", status.message().c_str());
  std::exit(1);
}

// By an index such as all variables share.
class ByHash {
 public:
  explicit ByHash(uint64_t ids) : numbers_(ids), distinct_(ids) {
    Arena measure;
    index_.lay_out(measure, ids);
    check(arena_.reserve(measure.used_bytes()));
    index_.lay_out(arena_, ids);
  }

  std::span<const uint32_t> find(const std::vector<uint32_t>& ids) {
    const auto count = static_cast<uint32_t>(ids.size());
    index_.clear_for(count);
    ask_for(ids, 0);
    for (uint32_t first = 0; first < count; first += kRowsTogether) {
      ask_for(ids, first + kRowsTogether);
      const uint32_t together = std::min(count - first, kRowsTogether);
      const auto note = [this, from = &ids[first]](uint32_t number, uint32_t i) {
        distinct_[number] = from[i];
      };
      if (!index_.find_or_insert_each(&ids[first], together, &numbers_[first], note)) std::abort();
    }
    return numbers_;
  }

 private:
  // Of the memory, the next ones.
  void ask_for(const std::vector<uint32_t>& ids, size_t first) const {
    if (!index_.is_far()) return;
    const size_t end = std::min(ids.size(), first + kRowsTogether);
    for (size_t at = first; at < end; ++at) index_.prefetch(ids[at]);
  }

  Arena arena_;
  RowIndex index_;
  std::vector<uint32_t> numbers_, distinct_;
};

class BySort {
 public:
  explicit BySort(uint64_t ids) : room_(2 * ids), numbers_(ids), distinct_(ids) {}

  std::span<const uint32_t> find(const std::vector<uint32_t>& ids) {
    const auto count = static_cast<uint32_t>(ids.size());
    find_by_sort(ids.data(), count, room_, numbers_.data(),
                 [&](uint32_t number, uint32_t at) { distinct_[number] = ids[at]; });
    return numbers_;
  }

 private:
  std::vector<uint64_t> room_;
  std::vector<uint32_t> numbers_, distinct_;
};

template <typename Way>
void distinct(benchmark::State& state) {
  const std::vector<uint32_t> ids = drawn(state);
  ByHash expected(ids.size());
  Way way(ids.size());
  const std::span<const uint32_t> right = expected.find(ids), found = way.find(ids);
  if (!std::equal(right.begin(), right.end(), found.begin(), found.end())) {
    state.SkipWithError("both ways do not find the same");
    return;
  }
  for (auto iteration : state) {
    (void)iteration;
    benchmark::DoNotOptimize(way.find(ids).data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(ids.size()));
  const auto last = static_cast<double>(*std::max_element(right.begin(), right.end()));
  state.counters["distinct"] = (last + 1) / static_cast<double>(ids.size());
}

void by_ids_and_skew(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"ids", "skew_tenths"});
  for (const int64_t skew : {0, 7, 10, 13}) {
    for (int64_t ids = 64; ids <= 1 << 22; ids *= ids < 1 << 16 ? 4 : 2) {
      benchmark->Args({ids, skew});
    }
  }
}

BENCHMARK(distinct<ByHash>)->Name("by_hash")->Apply(by_ids_and_skew);
BENCHMARK(distinct<BySort>)->Name("by_sort")->Apply(by_ids_and_skew);

}  // namespace
}  // namespace parallax

BENCHMARK_MAIN();
