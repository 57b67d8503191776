// SPDX-License-Identifier: Apache-2.0
// Reports and answers: what differs first, what it is called, and what a peer may not say.
#include "collectives/collective_report.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/host_map_of.h"
#include "support/words.h"

namespace parallax {
namespace {

using testkit::has;

const HostMap kHosts = testkit::host_map({0, 1, 2, 2});

CollectiveTerms sum_of(uint64_t count) {
  return {.count = count, .kind = PARALLAX_ALLREDUCE, .dtype = PARALLAX_F32};
}

template <typename Head>
std::vector<std::byte> wire(const Head& head, size_t value_bytes) {
  std::vector<std::byte> bytes(sizeof head + value_bytes);
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes;
}

bool reads(const CollectiveReport& report, size_t value_bytes) {
  CollectiveReport out;
  std::span<const std::byte> values;
  return read_report(wire(report, value_bytes), 4, &out, &values) && values.size() == value_bytes;
}

TEST(CollectiveReport, TheFirstFieldThatDiffersIsNamed) {
  CollectiveTerms a = sum_of(3), b = sum_of(4);
  EXPECT_FALSE(difference(0, a, 1, a).found());
  const Status status = describe(kHosts, {true, 7}, difference(0, a, 2, b));
  EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
  EXPECT_EQ(status.message(),
            "collective of tag 7: count is 3 on rank 0 (host host0) and 4 on rank 2 (host host2); "
            "nothing of "
            "it was exchanged");
  EXPECT_EQ(status.facts().field, "count");
  EXPECT_EQ(status.facts().rank, 0u);
  EXPECT_EQ(status.facts().peer, 2u);
  b.op = PARALLAX_OP_MAX;
  EXPECT_TRUE(
      has(describe(kHosts, {false, 5}, difference(0, a, 2, b)),
          "collective 5: op is SUM on rank 0 (host host0) and MAX on rank 2 (host host2);"));
  b.dtype = PARALLAX_BF16;
  EXPECT_TRUE(has(describe(kHosts, {}, difference(0, a, 2, b)),
                  "dtype is f32 on rank 0 (host host0) and bf16"));
  b.kind = PARALLAX_GATHER;
  EXPECT_TRUE(has(describe(kHosts, {}, difference(0, a, 2, b)),
                  "kind is ALLREDUCE on rank 0 (host host0) and GATHER"));
  b = a;
  b.counts_digest = 1;
  EXPECT_TRUE(has(describe(kHosts, {}, difference(3, a, 1, b)),
                  "recv_counts differ between rank 3 (host host2) and rank 1"));
}

TEST(CollectiveReport, ARefusalNamesRankAndField) {
  const CollectiveMismatch refused = refusal(1, "root");
  EXPECT_TRUE(refused.found());
  const Status status = describe(kHosts, {false, 4}, refused);
  EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
  EXPECT_EQ(status.message(),
            "collective 4: the call of rank 1 (host host1) was refused there for its root; nothing "
            "of it was exchanged");
  EXPECT_EQ(status.facts().rank, 1u);
  EXPECT_EQ(status.facts().field, "root");
  EXPECT_TRUE(has(describe(kHosts, {}, refusal(1, "")), "was refused there; nothing"));
  EXPECT_TRUE(has(describe(kHosts, {}, refusal(1, "what is not known")), "refused there; nothing"));
  CollectiveReport report = {.terms = sum_of(3), .mismatch = refused};
  EXPECT_TRUE(reads(report, 0));
  report.mismatch.values[0] = 13;
  EXPECT_FALSE(reads(report, 0)) << "of no field";
}

// In a part a rank is named as the part numbers it, and as the job does.
TEST(CollectiveReport, SentencesOfAPartNameTheJobsRanks) {
  const HostMap part = part_of(kHosts, std::vector<uint32_t>{3, 1});
  EXPECT_TRUE(has(describe(part, {}, difference(0, sum_of(3), 1, sum_of(4))),
                  "count is 3 on rank 0 (rank 3 of the job, host host2) and 4 on rank 1 (rank 1 of "
                  "the job, host host1)"));
}

TEST(CollectiveReport, WhatAPeerMayNotSay) {
  const CollectiveReport right = {.terms = sum_of(3), .mismatch = {}};
  EXPECT_TRUE(reads(right, 12));
  EXPECT_FALSE(reads(right, 8));
  EXPECT_FALSE(reads(right, 16));
  CollectiveReport wrong = right;
  wrong.terms.kind = 0;
  EXPECT_FALSE(reads(wrong, 12));
  wrong.terms.kind = PARALLAX_GATHER + 1;
  EXPECT_FALSE(reads(wrong, 12));
  wrong = right;
  wrong.terms.dtype = kDtypeCount;
  EXPECT_FALSE(reads(wrong, 12));
  wrong = right;
  wrong.terms.op = PARALLAX_OP_XOR + 1;
  EXPECT_FALSE(reads(wrong, 12));
  wrong = right;
  wrong.terms.root = 4;
  EXPECT_FALSE(reads(wrong, 12));
  wrong = right;
  wrong.terms.count = UINT64_MAX;
  EXPECT_FALSE(reads(wrong, 0));
  wrong = right;
  wrong.sent = 1;
  EXPECT_FALSE(reads(wrong, 12)) << "counts of a kind that has none";
  wrong.terms.kind = PARALLAX_ALLTOALLV;
  EXPECT_TRUE(reads(wrong, 0));
  wrong = right;
  wrong.mismatch = {.field = CollectiveField::kOp, .ranks = {0, 4}};
  EXPECT_FALSE(reads(wrong, 0));
  wrong.mismatch.ranks[1] = 3;
  EXPECT_TRUE(reads(wrong, 0));
  EXPECT_FALSE(reads(wrong, 12)) << "no numbers with a mismatch";
  wrong.mismatch.field = static_cast<CollectiveField>(8);
  EXPECT_FALSE(reads(wrong, 0));
  CollectiveReport out;
  std::span<const std::byte> values;
  const std::vector<std::byte> whole = wire(right, 0);
  EXPECT_FALSE(read_report(std::span(whole).first(20), 4, &out, &values));
}

TEST(CollectiveReport, AnAnswerFitsItsCall) {
  Collective what;
  what.terms = sum_of(3);
  what.world = 4;
  CollectiveAnswer out;
  std::span<const std::byte> values;
  EXPECT_TRUE(read_answer(wire(CollectiveAnswer(), 12), what, &out, &values));
  EXPECT_FALSE(read_answer(wire(CollectiveAnswer(), 0), what, &out, &values));
  CollectiveAnswer differ;
  differ.counts_differ = 1;
  EXPECT_FALSE(read_answer(wire(differ, 12), what, &out, &values));
  what.terms.kind = PARALLAX_ALLTOALLV;
  EXPECT_TRUE(read_answer(wire(differ, 0), what, &out, &values));
  differ.mismatch = {.field = CollectiveField::kOp, .ranks = {0, 1}};
  EXPECT_FALSE(read_answer(wire(differ, 0), what, &out, &values));
}

}  // namespace
}  // namespace parallax
