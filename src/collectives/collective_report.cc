// SPDX-License-Identifier: Apache-2.0
// Comparing terms, and reading them. See collective_report.h.
#include "collectives/collective_report.h"

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

std::string value_of(CollectiveField field, uint64_t value) {
  if (field == CollectiveField::kKind) return collective_name(static_cast<uint32_t>(value));
  if (field == CollectiveField::kDtype) return dtype_name(static_cast<uint32_t>(value));
  if (field == CollectiveField::kOp && value < std::size(kOpNames)) return kOpNames[value];
  return std::to_string(value);
}

bool is_ok(const CollectiveMismatch& mismatch, uint32_t world) {
  return mismatch.field <= CollectiveField::kCounts && mismatch.ranks[0] < world &&
         mismatch.ranks[1] < world;
}

// As a rank's own call was checked.
bool is_ok(const CollectiveTerms& terms, uint32_t world) {
  constexpr uint64_t kElementsMax = 1ull << 40;
  return is_collective_kind(terms.kind) && is_dtype(terms.dtype) &&
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

Status describe(const CollectiveKey& key, const CollectiveMismatch& mismatch) {
  const char* field = kFieldNames[static_cast<size_t>(mismatch.field)];
  const auto rank = [&mismatch](size_t i) { return "rank " + std::to_string(mismatch.ranks[i]); };
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
