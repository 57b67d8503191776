// SPDX-License-Identifier: Apache-2.0
// Comparing terms, and reading them. See collective_report.h.
#include "collectives/collective_report.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <tuple>
#include <utility>

namespace parallax {

namespace {

constexpr const char* kKindNames[] = {"",          "ALLREDUCE",  "REDUCE_SCATTER",
                                      "ALLGATHER", "ALLGATHERV", "ALLTOALLV",
                                      "BROADCAST", "REDUCE",     "GATHER"};
constexpr const char* kOpNames[] = {"SUM", "MEAN", "MIN", "MAX", "PRODUCT", "AND", "OR", "XOR"};

constexpr const char* kFieldNames[] = {"", "kind", "dtype", "op", "root", "count", "recv_counts"};
// What a call may be refused for.
constexpr const char* kRefusedFields[] = {"",       "kind",        "dtype",       "op",   "root",
                                          "count",  "recv_counts", "send_counts", "send", "recv",
                                          "memory", "device",      "stream"};

std::string value_of(CollectiveField field, uint64_t value) {
  if (field == CollectiveField::kKind) return collective_name(static_cast<uint32_t>(value));
  if (field == CollectiveField::kDtype) return dtype_name(static_cast<uint32_t>(value));
  if (field == CollectiveField::kOp && value < std::size(kOpNames)) return kOpNames[value];
  return std::to_string(value);
}

bool is_ok(const CollectiveMismatch& mismatch, uint32_t world) {
  const bool refused = mismatch.field == CollectiveField::kRefused;
  return mismatch.field <= CollectiveField::kRefused && mismatch.ranks[0] < world &&
         mismatch.ranks[1] < world && (!refused || mismatch.values[0] < std::size(kRefusedFields));
}

// As a rank's own call was checked.
bool is_ok(const CollectiveTerms& terms, uint32_t world) {
  constexpr uint64_t kElementsMax = 1ull << 40;
  return is_collective_kind(terms.kind) &&
         (combines(terms.kind) ? is_dtype(terms.dtype) : is_copied_dtype(terms.dtype)) &&
         terms.op < std::size(kOpNames) && terms.root < world && terms.count <= kElementsMax;
}

template <typename Head>
bool take(std::span<const std::byte>* payload, Head* head) {
  if (payload->size() < sizeof *head) return false;
  std::memcpy(head, payload->data(), sizeof *head);
  *payload = payload->subspan(sizeof *head);
  return true;
}

}  // namespace

const char* collective_name(uint32_t kind) {
  return is_collective_kind(kind) ? kKindNames[kind] : "unknown";
}

std::string name_of(const CollectiveKey& key) {
  return (key.tagged ? "collective of tag " : "collective ") + std::to_string(key.number);
}

CollectiveMismatch difference(uint32_t rank, const CollectiveTerms& terms, uint32_t other_rank,
                              const CollectiveTerms& other) {
  const std::tuple<CollectiveField, uint64_t, uint64_t> fields[] = {
      {CollectiveField::kKind, terms.kind, other.kind},
      {CollectiveField::kDtype, terms.dtype, other.dtype},
      {CollectiveField::kOp, terms.op, other.op},
      {CollectiveField::kRoot, terms.root, other.root},
      {CollectiveField::kCount, terms.count, other.count},
      {CollectiveField::kCounts, terms.counts_digest, other.counts_digest},
  };
  for (const auto& [field, value, other_value] : fields) {
    if (value == other_value) continue;
    return {.field = field, .ranks = {rank, other_rank}, .values = {value, other_value}};
  }
  return {};
}

CollectiveMismatch refusal(uint32_t rank, std::string_view field) {
  const auto* found = std::find(std::begin(kRefusedFields), std::end(kRefusedFields), field);
  const bool known = found != std::end(kRefusedFields);
  return {.field = CollectiveField::kRefused,
          .ranks = {rank, rank},
          .values = {known ? static_cast<uint64_t>(found - std::begin(kRefusedFields)) : 0, 0}};
}

namespace {

Status refused(const HostMap& hosts, const CollectiveKey& key, const CollectiveMismatch& mismatch) {
  const std::string field = kRefusedFields[mismatch.values[0]];
  ErrorFacts facts;
  facts.rank = mismatch.ranks[0];
  facts.field = field;
  return Status(PARALLAX_MISMATCH, name_of(key) + ": the call of " +
                                       rank_name(hosts, mismatch.ranks[0]) + " was refused there" +
                                       (field.empty() ? "" : " for its " + field) +
                                       "; nothing of it was exchanged")
      .about(std::move(facts));
}

}  // namespace

Status describe(const HostMap& hosts, const CollectiveKey& key,
                const CollectiveMismatch& mismatch) {
  if (mismatch.field == CollectiveField::kRefused) return refused(hosts, key, mismatch);
  const char* field = kFieldNames[static_cast<size_t>(mismatch.field)];
  const auto rank = [&](size_t i) { return rank_name(hosts, mismatch.ranks[i]); };
  const auto side = [&](size_t i) {
    return value_of(mismatch.field, mismatch.values[i]) + " on " + rank(i);
  };
  const std::string differ = mismatch.field == CollectiveField::kCounts
                                 ? " differ between " + rank(0) + " and " + rank(1)
                                 : " is " + side(0) + " and " + side(1);
  Status status(PARALLAX_MISMATCH,
                name_of(key) + ": " + field + differ + "; nothing of it was exchanged");
  ErrorFacts facts;
  facts.rank = mismatch.ranks[0];
  facts.peer = mismatch.ranks[1];
  facts.field = field;
  return std::move(status).about(std::move(facts));
}

bool read_report(std::span<const std::byte> payload, uint32_t world, CollectiveReport* report,
                 std::span<const std::byte>* values) {
  if (!take(&payload, report) || !is_ok(report->terms, world) || !is_ok(report->mismatch, world)) {
    return false;
  }
  *values = payload;
  if (report->mismatch.found()) return payload.empty();
  // Sums of counts that nobody has would be compared all the same.
  const bool counted = report->sent != 0 || report->expected != 0;
  if (counted && report->terms.kind != PARALLAX_ALLTOALLV) return false;
  return payload.size() == report->terms.fused_bytes(world);
}

bool read_answer(std::span<const std::byte> payload, const Collective& what,
                 CollectiveAnswer* answer, std::span<const std::byte>* values) {
  if (!take(&payload, answer) || !is_ok(answer->mismatch, what.world)) return false;
  const bool differ = answer->counts_differ != 0;
  if (differ && (what.terms.kind != PARALLAX_ALLTOALLV || answer->mismatch.found())) return false;
  *values = payload;
  return payload.size() == (answer->mismatch.found() ? 0 : what.terms.fused_bytes(what.world));
}

}  // namespace parallax
