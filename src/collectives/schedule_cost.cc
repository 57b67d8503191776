// SPDX-License-Identifier: Apache-2.0
// Counting operations. See schedule_cost.h.
#include "collectives/schedule_cost.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace parallax {
namespace {

// One rank, and how many like it there are.
struct Sample {
  uint32_t rank = 0;
  uint64_t times = 1;
};

// The ranks of the first host of each size, for all hosts of that size; of a single host, one rank.
std::vector<Sample> samples_of(const HostMap& hosts, bool alike) {
  std::vector<Sample> samples;
  const auto world = static_cast<uint32_t>(hosts.host_of.size());
  if (!alike) {
    for (uint32_t rank = 0; rank < world; ++rank) samples.push_back({rank, 1});
    return samples;
  }
  if (hosts.ranks_of.size() == 1) return {{0, world}};
  std::map<size_t, uint64_t> hosts_of_size;
  for (const std::vector<uint32_t>& ranks : hosts.ranks_of) ++hosts_of_size[ranks.size()];
  for (const std::vector<uint32_t>& ranks : hosts.ranks_of) {
    const uint64_t times = std::exchange(hosts_of_size[ranks.size()], 0);
    if (times == 0) continue;
    for (const uint32_t rank : ranks) samples.push_back({rank, times});
  }
  return samples;
}

// Into how many the algorithm cuts.
uint64_t ranges_of(const DenseAlgorithm& algorithm, const HostMap& hosts) {
  if (algorithm.by_range) return hosts.host_of.size();
  if (algorithm.growth != Growth::kByDoubling) return 1;
  return hosts.column_count * std::bit_floor(hosts.ranks_of.size());
}

// Of so many, those that have elements.
uint64_t filled_of(const Partition& partition, uint64_t ranges) {
  const uint64_t pieces = partition.ids_declared()
                              ? partition.rows()
                              : (partition.elements() + kBlockElements - 1) / kBlockElements;
  return std::min(pieces, ranges);
}

}  // namespace

ScheduleCounts count(const Schedule& schedule, const Columns& columns) {
  ScheduleCounts counts;
  for (const Op& op : schedule.ops) {
    const bool receives = op.kind == OpKind::kReceiveSum || op.kind == OpKind::kReceiveCopy;
    const bool adds = op.kind == OpKind::kReceiveSum || op.kind == OpKind::kAdd;
    if (op.kind == OpKind::kSend) ++counts.sends;
    if (receives && (columns.host_count() == 1 || columns.host_of(op.peer) != columns.host())) {
      counts.received_elements += op.range.count;
    }
    // The first addend is where a sum begins.
    if (adds && op.turn > 0) counts.added_elements += op.range.count;
  }
  return counts;
}

DenseShape ScheduleCosts::shape_of(const Partition& partition, const Way& way) const {
  return {.elements = partition.elements(),
          .hosts = static_cast<uint32_t>(hosts_.ranks_of.size()),
          .ranks = static_cast<uint32_t>(hosts_.host_of.size()),
          .domains = hosts_.ranks_of.size() == 1 ? domain_count(hosts_, 0) : 1,
          .ordered = way.ordered,
          .returned = way.returned,
          .of_hosts = way.of_hosts};
}

const ScheduleCosts::Counted& ScheduleCosts::counted(const DenseAlgorithm& algorithm,
                                                     const Way& way) {
  for (const Counted& known : counted_) {
    if (known.algorithm == &algorithm && known.way == way) return known;
  }
  const auto world = static_cast<uint32_t>(hosts_.host_of.size());
  const uint64_t ranges = algorithm.by_range ? world : 1;
  const Partition even(ranges * kBlockElements, 1, false, SlotMap::of_ranks(world, 1), 0);
  Counted counted = {&algorithm, way, even.elements(), ranges, {}};
  for (const Sample& sample : samples_of(hosts_, algorithm.by_range)) {
    const Columns columns(hosts_, sample.rank);
    const ScheduleCounts own = count(algorithm.build({.columns = columns,
                                                      .partition = even,
                                                      .ordered = way.ordered,
                                                      .returned = way.returned,
                                                      .of_hosts = way.of_hosts}),
                                     columns);
    counted.all.received_elements += own.received_elements * sample.times;
    counted.all.sends += own.sends * sample.times;
    counted.all.added_elements += own.added_elements * sample.times;
  }
  return counted_.emplace_back(counted);
}

ScheduleCost ScheduleCosts::of(const DenseAlgorithm& algorithm, const Partition& partition,
                               uint32_t element_bytes, const Way& way) {
  const Counted& counted = this->counted(algorithm, way);
  const DenseShape shape = shape_of(partition, way);
  const auto elements = static_cast<double>(counted.elements);
  const double bytes = static_cast<double>(partition.elements()) * element_bytes;
  const auto ranges = static_cast<double>(filled_of(partition, ranges_of(algorithm, hosts_)));
  const uint32_t parties = shape.hosts > 1 ? shape.hosts : shape.ranks;
  return {.algorithm = algorithm.name,
          .description = algorithm.description,
          .carried_bytes = bytes,
          .received_bytes =
              bytes * (static_cast<double>(counted.all.received_elements) / elements) / parties,
          .sent_messages =
              ranges *
              (static_cast<double>(counted.all.sends) / static_cast<double>(counted.ranges)) /
              shape.ranks,
          .summed_bytes =
              bytes * (static_cast<double>(counted.all.added_elements) / elements) / shape.ranks,
          .rounds = algorithm.rounds(shape)};
}

}  // namespace parallax
