// SPDX-License-Identifier: Apache-2.0
// CollectiveReport: what a rank tells its parent in the tree of rank 0 once it and all below it
// have called a collective: its terms, or where two ranks differ, and what travels with them. And
// the answer to it. As they lie on the wire; those of peers are checked by read_report and
// read_answer.
#ifndef PARALLAX_COLLECTIVES_COLLECTIVE_REPORT_H_
#define PARALLAX_COLLECTIVES_COLLECTIVE_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "collectives/collective.h"
#include "world/host_map.h"

namespace parallax {

enum class CollectiveField : uint32_t {
  kNone,
  kKind,
  kDtype,
  kOp,
  kRoot,
  kCount,
  kCounts,
  kRefused  // at a rank, whose call was wrong by itself; values[0]: the field, refusal() says how
};

// Where two ranks differ first, in the order of CollectiveField.
struct CollectiveMismatch {
  CollectiveField field = CollectiveField::kNone;
  uint32_t ranks[2] = {};
  uint32_t reserved = 0;
  uint64_t values[2] = {};  // of each
  bool found() const { return field != CollectiveField::kNone; }
};

struct CollectiveReport {
  CollectiveTerms terms;  // the sender's
  CollectiveMismatch mismatch;
  uint64_t sent = 0;      // sums over the ranks below, of counts_sent
  uint64_t expected = 0;  // and counts_expected
};

struct CollectiveAnswer {
  CollectiveMismatch mismatch;
  // The counts of some pair differ: every rank tells every other its own, to find out whose.
  uint64_t counts_differ = 0;
};

// kNone: they agree.
CollectiveMismatch difference(uint32_t rank, const CollectiveTerms& terms, uint32_t other_rank,
                              const CollectiveTerms& other);

// What a rank whose own call was refused tells the others of it. `field` as the refusal names it.
CollectiveMismatch refusal(uint32_t rank, std::string_view field);

// MISMATCH: "collective 7: op is MAX on rank 1 (host a) and SUM on rank 2 (host b); nothing of it
// was exchanged".
Status describe(const HostMap& hosts, const CollectiveKey& key, const CollectiveMismatch& mismatch);
// "collective 7", "collective of tag 7".
std::string name_of(const CollectiveKey& key);
const char* collective_name(uint32_t kind);  // "ALLREDUCE"

// False: no report, or answer, of a world of so many ranks. What follows it are its numbers.
[[nodiscard]] bool read_report(std::span<const std::byte> payload, uint32_t world,
                               CollectiveReport* report, std::span<const std::byte>* values);
[[nodiscard]] bool read_answer(std::span<const std::byte> payload, const Collective& what,
                               CollectiveAnswer* answer, std::span<const std::byte>* values);

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_COLLECTIVE_REPORT_H_
