// SPDX-License-Identifier: Apache-2.0
// Merging and encoding of what votes say of groups of rates. See rates_ballot.h.
#include "group/rates_ballot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace parallax {

namespace {

// All of it travels as it lies in memory: ranks prove equal byte order at the rendezvous.
enum class PartKind : uint32_t { kRates = 0, kNorms = 1 };

struct RatesHead {
  PartKind kind = PartKind::kRates;
  uint32_t rank, count, reserved;
  RatesDifference difference;
};
static_assert(sizeof(RatesHead) == 48, "no padding");
static_assert(sizeof(RatesHead) + kRatesMax * sizeof(Rates) <= kVoteBytesMax);

struct NormsHead {
  PartKind kind = PartKind::kNorms;
  uint32_t count;
};
struct WireNorm {
  uint32_t group, kind;
  ExactSum sum;
};
constexpr size_t kNormsPerPart = (kVoteBytesMax - sizeof(NormsHead)) / sizeof(WireNorm);

template <typename T>
bool take(std::span<const std::byte>* in, T* value) {
  if (in->size() < sizeof *value) return false;
  std::memcpy(value, in->data(), sizeof *value);
  *in = in->subspan(sizeof *value);
  return true;
}

}  // namespace

void RatesBallot::reserve(uint32_t group, uint32_t kind) {
  if (find(group, kind) != nullptr) return;
  pairs_.push_back({group, kind});
  std::sort(pairs_.begin(), pairs_.end(), [](const Pair& a, const Pair& b) {
    return std::pair(a.group, a.kind) < std::pair(b.group, b.kind);
  });
}

void RatesBallot::clear() {
  rates_.count = 0;
  difference_ = {};
  for (Pair& pair : pairs_) {
    if (pair.used) pair.sum = {};
    pair.used = false;
  }
}

const RatesBallot::Pair* RatesBallot::find(uint32_t group, uint32_t kind) const {
  const auto found = std::lower_bound(
      pairs_.begin(), pairs_.end(), std::pair(group, kind),
      [](const Pair& pair, const auto& key) { return std::pair(pair.group, pair.kind) < key; });
  const bool here = found != pairs_.end() && found->group == group && found->kind == kind;
  return here ? &*found : nullptr;
}

RatesBallot::Pair* RatesBallot::find(uint32_t group, uint32_t kind) {
  return const_cast<Pair*>(std::as_const(*this).find(group, kind));
}

void RatesBallot::say(const StepRates& rates, uint32_t rank) { merge_rates(rates.given(), rank); }

ExactSum& RatesBallot::norm(uint32_t group, uint32_t kind) {
  Pair* pair = find(group, kind);
  PARALLAX_CHECK(pair != nullptr);
  pair->used = true;
  return pair->sum;
}

double RatesBallot::squared_norm(uint32_t group, uint32_t kind) const {
  const Pair* pair = find(group, kind);
  return pair == nullptr ? 0 : pair->sum.value();
}

// The first that are said stand for all. How many there are is compared with the vote itself.
void RatesBallot::merge_rates(std::span<const Rates> rates, uint32_t rank) {
  if (rates_.count == 0) {
    rank_ = rank;
    rates_.count = static_cast<uint32_t>(rates.size());
    std::copy(rates.begin(), rates.end(), rates_.groups.begin());
  } else if (difference_.any == 0) {
    // One difference is enough for the error: it names two ranks and what each said.
    difference_ = difference(rates_.given(), rank_, rates, rank);
  }
}

bool RatesBallot::merge_part(std::span<const std::byte> part, uint32_t world) {
  PartKind kind;
  if (part.size() < sizeof kind) return false;
  std::memcpy(&kind, part.data(), sizeof kind);
  if (kind == PartKind::kRates) return merge_rates_part(part, world);
  return kind == PartKind::kNorms && merge_norms_part(part);
}

bool RatesBallot::merge_rates_part(std::span<const std::byte> part, uint32_t world) {
  RatesHead head;
  std::array<Rates, kRatesMax> rates;
  // `count` bounds what is read below, and a difference is looked up by group and field later.
  if (!take(&part, &head) || head.count == 0 || head.count > kRatesMax ||
      part.size() != head.count * sizeof(Rates) || !names_a_field(head.difference, world) ||
      head.rank >= world) {
    return false;
  }
  std::memcpy(rates.data(), part.data(), part.size());
  if (difference_.any == 0) difference_ = head.difference;
  merge_rates(std::span(rates).first(head.count), head.rank);
  return true;
}

bool RatesBallot::merge_norms_part(std::span<const std::byte> part) {
  NormsHead head;
  if (!take(&part, &head) || head.count > kNormsPerPart ||
      part.size() != head.count * sizeof(WireNorm)) {
    return false;
  }
  WireNorm wire;
  while (take(&part, &wire)) {
    Pair* pair = find(wire.group, wire.kind);
    if (pair == nullptr) return false;
    pair->used = true;
    // Exact, so that the order in which votes come changes no bit.
    pair->sum.add(wire.sum);
  }
  return true;
}

size_t RatesBallot::part_count() const {
  if (rates_.count == 0) return 0;
  const auto used = static_cast<size_t>(
      std::count_if(pairs_.begin(), pairs_.end(), [](const Pair& pair) { return pair.used; }));
  return 1 + (used + kNormsPerPart - 1) / kNormsPerPart;
}

size_t RatesBallot::encode_rates(std::span<std::byte, kVoteBytesMax> out) const {
  const RatesHead head = {
      .rank = rank_, .count = rates_.count, .reserved = 0, .difference = difference_};
  std::memcpy(out.data(), &head, sizeof head);
  std::memcpy(out.data() + sizeof head, rates_.groups.data(), rates_.count * sizeof(Rates));
  return sizeof head + rates_.count * sizeof(Rates);
}

size_t RatesBallot::encode_part(size_t at, std::span<std::byte, kVoteBytesMax> out) const {
  if (at == 0) return encode_rates(out);
  const size_t first = (at - 1) * kNormsPerPart;
  NormsHead head = {.count = 0};
  size_t used = sizeof head, passed = 0;
  for (const Pair& pair : pairs_) {
    if (!pair.used || passed++ < first || head.count == kNormsPerPart) continue;
    const WireNorm wire = {pair.group, pair.kind, pair.sum};
    std::memcpy(out.data() + used, &wire, sizeof wire);
    used += sizeof wire;
    ++head.count;
  }
  std::memcpy(out.data(), &head, sizeof head);
  return used;
}

}  // namespace parallax
