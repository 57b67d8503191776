// SPDX-License-Identifier: Apache-2.0
// Times of algorithms, played or followed from what was played. See algorithm_choice.h.
#include "collectives/algorithm_choice.h"

#include <algorithm>
#include <bit>

#include "variable/partition.h"

namespace parallax {

namespace {

// Of what is played: schedules of an owner each take as many operations as there are ranks,
// squared.
constexpr uint32_t kRanksPlayed = 16;
constexpr uint32_t kHostRanksPlayed = 4;
// Of one host with several domains, all of most machines: what crosses between domains grows with
// the ranks of each, and follows from no smaller host.
constexpr uint32_t kDomainRanksPlayed = 128;

// Another than the direct one must be better by more than this part: below, a choice would flap
// with the measurement, and gain nothing.
constexpr uint64_t kNearTiePart = 32;

// Hosts are what a job grows by; of a single host, ranks.
uint32_t parties_of(const DenseShape& shape) { return shape.hosts > 1 ? shape.hosts : shape.ranks; }

// Four classes for each doubling: the least number of a class stands for it.
uint64_t class_of(uint64_t elements) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(elements)) - 3);
  return elements >> shift << shift;
}

uint32_t way_of(const DenseShape& shape) {
  return (shape.ordered ? 1u : 0) | (shape.returned ? 2u : 0) | (shape.of_hosts ? 4u : 0) |
         (shape.held ? 8u : 0);
}

std::vector<uint32_t> ranks_of(const HostMap& hosts, uint32_t parties) {
  std::vector<uint32_t> ranks;
  for (const std::vector<uint32_t>& of_host : hosts.ranks_of) {
    const bool single = hosts.ranks_of.size() == 1;
    const size_t count = std::min<size_t>(of_host.size(), single ? parties : kHostRanksPlayed);
    if (!single && parties-- == 0) break;
    // Spread evenly, so that domains of memory have their shares.
    for (size_t i = 0; i < count; ++i) ranks.push_back(of_host[i * of_host.size() / count]);
  }
  return ranks;
}

}  // namespace

void AlgorithmChoice::use(const CostConstants& constants) {
  if (constants == constants_) return;
  constants_ = constants;
  timed_.clear();
}

DenseShape AlgorithmChoice::own(DenseShape shape) const {
  shape.hosts = static_cast<uint32_t>(hosts_.ranks_of.size());
  shape.ranks = static_cast<uint32_t>(hosts_.host_of.size());
  shape.domains = shape.hosts == 1 ? domain_count(hosts_, 0) : 1;
  return shape;
}

bool AlgorithmChoice::is_open(const DenseShape& asked) const {
  const DenseShape shape = own(asked);
  return std::count_if(std::begin(kDenseAlgorithms), std::end(kDenseAlgorithms),
                       [&](const DenseAlgorithm& each) { return each.applies(shape); }) > 1;
}

const DenseAlgorithm& AlgorithmChoice::of(const DenseShape& asked, SumType sum) {
  const DenseShape shape = own(asked);
  if (!is_open(shape)) return direct_algorithm();
  const std::vector<Timed>& all = alternatives(shape, sum);
  return *std::find_if(all.begin(), all.end(), [](const Timed& each) {
            return each.chosen;
          })->algorithm;
}

const std::vector<AlgorithmChoice::Timed>& AlgorithmChoice::alternatives(const DenseShape& asked,
                                                                         SumType sum) {
  DenseShape shape = own(asked);
  std::vector<Timed> all;
  uint32_t rows = 0;
  for (const DenseAlgorithm& each : kDenseAlgorithms) {
    rows *= 2;
    if (!each.applies(shape)) continue;
    all.push_back({.algorithm = &each});
    ++rows;
  }
  shape.elements = class_of(shape.elements);
  // Which apply may change within a class.
  const auto [known, is_new] = timed_.try_emplace({shape.elements, way_of(shape), rows, sum});
  if (!is_new) return known->second;
  for (Timed& each : all) {
    if (all.size() > 1) each.picoseconds = time(*each.algorithm, shape, sum);
  }
  // The direct one is last, and applies to all.
  const auto best = std::min_element(all.begin(), all.end(), [](const Timed& a, const Timed& b) {
    return a.picoseconds < b.picoseconds;
  });
  const bool near = all.back().picoseconds - best->picoseconds <= best->picoseconds / kNearTiePart;
  (near ? all.back() : *best).chosen = true;
  return known->second = std::move(all);
}

uint64_t AlgorithmChoice::time(const DenseAlgorithm& algorithm, const DenseShape& shape,
                               SumType sum) {
  const uint32_t parties = parties_of(shape);
  uint32_t each = 1;  // ranks of a host
  if (shape.hosts > 1) {
    for (const auto& ranks : hosts_.ranks_of) each = std::max<uint32_t>(each, ranks.size());
    each = std::min(each, kHostRanksPlayed);
  }
  const uint32_t few = shape.domains > 1 ? kDomainRanksPlayed / 2
                                         : std::bit_floor(std::max(4u, kRanksPlayed / 2 / each));
  if (algorithm.growth == Growth::kByLevel) return time_by_level(algorithm, shape, sum);
  if (algorithm.growth == Growth::kNone || parties <= 2 * few) {
    return time_of(algorithm, shape, sum, parties);
  }
  // Hosts beyond a power of two cost a doubling's algorithm rounds of their own.
  const bool doubling = algorithm.growth == Growth::kByDoubling;
  const uint32_t extra = doubling && !std::has_single_bit(parties) ? 1 : 0;
  const auto of_few = [&](const DenseShape& what, uint32_t count) {
    return time_of(algorithm, what, sum, count + extra);
  };
  const uint64_t of_twice = of_few(shape, 2 * few);
  if (!doubling) {
    const uint64_t more = of_twice - std::min(of_twice, of_few(shape, few));
    return of_twice + more * (parties - 2 * few) / few;
  }
  // The rounds that are more move as little as those of the longest way do.
  DenseShape little = shape;
  little.elements = std::max<uint64_t>(1, shape.elements / parties) * few;
  const uint64_t more_twice = of_few(little, 2 * few);
  const uint64_t more = more_twice - std::min(more_twice, of_few(little, few));
  const int doublings = std::countr_zero(std::bit_floor(parties) / (2 * few));
  return of_twice + more * static_cast<uint64_t>(doublings);
}

uint64_t AlgorithmChoice::time_by_level(const DenseAlgorithm& algorithm, const DenseShape& shape,
                                        SumType sum) {
  // Full trees.
  constexpr uint32_t kFew = 1 + kTreeArity + kTreeArity * kTreeArity;
  constexpr uint32_t kMany = 1 + kTreeArity * kFew;
  if (shape.hosts <= kMany) return time_of(algorithm, shape, sum, shape.hosts);
  uint64_t levels = 0;  // above
  for (uint64_t hosts = kMany; hosts < shape.hosts; hosts = 1 + kTreeArity * hosts) ++levels;
  const uint64_t of_many = time_of(algorithm, shape, sum, kMany);
  const uint64_t of_few = time_of(algorithm, shape, sum, kFew);
  return of_many + levels * (of_many - std::min(of_many, of_few));
}

// Of so many of its parties.
uint64_t AlgorithmChoice::time_of(const DenseAlgorithm& algorithm, const DenseShape& shape,
                                  SumType sum, uint32_t parties) {
  const auto world = static_cast<uint64_t>(ranks_of(hosts_, parties).size());
  const uint64_t blocks =
      std::max<uint64_t>(1, (shape.elements + kBlockElements - 1) / kBlockElements);
  uint64_t elements = shape.elements, ranges = 1;
  if (algorithm.by_range) {
    // As long as they are in the whole job.
    const uint64_t all = std::min<uint64_t>(blocks, shape.ranks);
    ranges = std::min(all, world);
    elements = elements / all * ranges;
  } else if (algorithm.growth == Growth::kByDoubling) {
    ranges = std::min(blocks, world);
  }
  if (ranges < world) ranges = std::bit_floor(ranges);
  return played(algorithm, shape, parties, ranges)
      .picoseconds({.elements = elements,
                    .element_bytes = bytes_of_sum(sum),
                    .sum = sum,
                    .constants = constants_});
}

const ScheduleTime& AlgorithmChoice::played(const DenseAlgorithm& algorithm,
                                            const DenseShape& shape, uint32_t parties,
                                            uint64_t ranges) {
  std::unique_ptr<ScheduleTime>& known = played_[{&algorithm, way_of(shape), parties, ranges}];
  if (known != nullptr) return *known;
  const HostMap part = part_of(hosts_, ranks_of(hosts_, parties));
  const auto world = static_cast<uint32_t>(part.host_of.size());
  const Partition even(ranges * kBlockElements, 1, false, SlotMap::of_ranks(world, 1), 0);
  std::vector<Schedule> schedules;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const Columns columns(part, rank);
    schedules.push_back(algorithm.build({.columns = columns,
                                         .partition = even,
                                         .ordered = shape.ordered,
                                         .returned = shape.returned,
                                         .of_hosts = shape.of_hosts}));
  }
  known = std::make_unique<ScheduleTime>(schedules, even.elements(), part);
  return *known;
}

}  // namespace parallax
