// SPDX-License-Identifier: Apache-2.0
// Shares between hosts. See between_hosts.h.
#include "collectives/between_hosts.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "aggregate/scaled_numbers.h"
#include "base/check.h"
#include "collectives/algorithm_choice.h"

namespace parallax {

namespace {

constexpr uint64_t kAlignment = 256;
// Of a total that is rounded or divided, at a time: some 100 us.
constexpr uint64_t kPieceElements = 1 << 18;

uint64_t share_bytes(const ShareRange& share, uint32_t dtype) {
  return (share.count * bytes_of_dtype(dtype) + kAlignment - 1) / kAlignment * kAlignment;
}

ShareRange share_of(const Columns& columns, uint64_t elements) {
  if (!columns.is_leader()) return {};
  return share_range(elements, columns.count(), columns.my_column());
}

}  // namespace

// As if each host were one rank; who that is follows from the column.
Schedule share_schedule(const Columns& columns, uint64_t elements, uint32_t variable) {
  const uint32_t hosts = columns.host_count();
  std::vector<std::string> names;
  for (uint32_t host = 0; host < hosts; ++host) names.push_back(std::to_string(host));
  const HostMap map = map_hosts(names);
  const Columns as_ranks(map, columns.host());
  const Partition partition(elements, 1, false, SlotMap::of_ranks(hosts, 1), variable);
  // By the standard constants: it is laid out before the job's are known.
  const DenseAlgorithm& algorithm =
      AlgorithmChoice(map).of({.elements = elements, .held = true}, SumType::kF32);
  Schedule schedule =
      algorithm.build({.columns = as_ranks, .partition = partition, .variable = variable});
  for (Op& op : schedule.ops) {
    if (op.peer != kNoRank) op.peer = columns.leader(op.peer, columns.my_column());
  }
  return schedule;
}

BetweenHosts::BetweenHosts(const Columns& columns, Outbox& outbox, PinnedPool& pinned,
                           const Options& options)
    : options_(options), pinned_(pinned), share_(share_of(columns, options.elements)) {
  if (share_.count == 0) return;
  exchange_ =
      std::make_unique<DenseExchange>(columns, share_.count, outbox,
                                      ExchangeOptions{.variable = options.variable,
                                                      .sum = options.sum,
                                                      .held = true,
                                                      .priority = options.priority},
                                      share_schedule(columns, share_.count, options.variable));
  total_at_ = share_bytes(share_, options.dtype);
}

uint64_t BetweenHosts::pinned_bytes(const Columns& columns, const Options& options) {
  const ShareRange share = share_of(columns, options.elements);
  return share_bytes(share, options.dtype) + share_bytes(share, dtype_of(options.sum));
}

Status BetweenHosts::stage(std::byte** share) {
  *share = nullptr;
  busy_ = true;
  if (exchange_ == nullptr) return {};
  if (block_.memory == nullptr) {
    const Status taken =
        pinned_.take(total_at_ + share_bytes(share_, dtype_of(options_.sum)), &block_);
    if (!taken.ok())
      return taken.prefixed("nccl is host, and a share of a sum between hosts takes ");
  }
  *share = block_.memory;
  return {};
}

void BetweenHosts::give(uint64_t step) {
  given_[step & 1] = step;
  converted_ = 0;
  if (exchange_ == nullptr) return;
  const Contribution share = {
      .elements = {block_.memory, options_.dtype},
      .lasting = true,
      .result = {.values = block_.memory + total_at_, .dtype = dtype_of(options_.sum)}};
  exchange_->contribute(step, share, &sending_);
}

bool BetweenHosts::total(uint64_t step, std::byte** share) {
  *share = nullptr;
  in_pieces_ = false;
  if (exchange_ == nullptr) return true;
  if (!exchange_->state(step).delivered) return false;
  std::byte* const sum = block_.memory + total_at_;
  PARALLAX_CHECK(exchange_->whole(step).values == sum);
  *share = sum;
  if (!converts()) return true;
  // Where the share was, which is sent first.
  *share = block_.memory;
  if (sending_ > 0) return false;
  const uint64_t count = std::min(kPieceElements, share_.count - converted_);
  give_numbers(sum + converted_ * bytes_of_sum(options_.sum), count, options_.factor,
               {.values = *share + converted_ * bytes_of_dtype(options_.dtype),
                .dtype = options_.dtype,
                .sum = options_.sum});
  converted_ += count;
  in_pieces_ = converted_ < share_.count;
  return !in_pieces_;
}

bool BetweenHosts::waits(uint64_t step) const {
  return exchange_ != nullptr && given_[step & 1] == step && !exchange_->state(step).delivered;
}

void BetweenHosts::release(bool quiet) {
  if (block_.memory == nullptr) return;
  const MemoryBlock block = std::exchange(block_, {});
  if (quiet && sending_ == 0) {
    pinned_.give_back(block);
  } else {
    pinned_.abandon(block);
  }
}

}  // namespace parallax
