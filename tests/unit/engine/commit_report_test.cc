// SPDX-License-Identifier: Apache-2.0
// What ranks compare at commit: its encoding, and how reports are merged up the tree.
#include "engine/commit_report.h"

#include <gtest/gtest.h>

#include <string>

namespace parallax {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(CommitReport, IsReadAsItWasWritten) {
  CommitReport report;
  report.digest = 0x123456789abcdef0;
  report.rank = 3;
  report.plan_mode = PARALLAX_PLAN_PS;
  report.plan_after_steps = 5;
  report.deterministic = 1;
  report.verdict = CommitVerdict::kDiffer;
  report.text = "a sentence";
  CommitReport read;
  ASSERT_TRUE(read.decode(bytes_of(report.encode())));
  EXPECT_EQ(read.digest, report.digest);
  EXPECT_EQ(read.rank, 3u);
  EXPECT_EQ(read.plan_mode, static_cast<uint32_t>(PARALLAX_PLAN_PS));
  EXPECT_EQ(read.plan_after_steps, 5u);
  EXPECT_EQ(read.deterministic, 1u);
  EXPECT_EQ(read.verdict, CommitVerdict::kDiffer);
  EXPECT_EQ(read.text, "a sentence");
}

// The bytes are a peer's.
TEST(CommitReport, RefusesWhatIsNone) {
  CommitReport report;
  report.text.assign(CommitReport::kTextMax + 1, 'x');
  const std::string encoded = report.encode();
  CommitReport read;
  ASSERT_TRUE(read.decode(bytes_of(encoded))) << "the text is cut";
  EXPECT_FALSE(read.decode(bytes_of(encoded + "x")));
  EXPECT_FALSE(read.decode(bytes_of(encoded.substr(0, 27))));
  report.verdict = static_cast<CommitVerdict>(3);
  EXPECT_FALSE(read.decode(bytes_of(report.encode())));
}

TEST(CommitReport, OtherDigestsAskForACloserLook) {
  CommitReport mine, child, grandchild;
  child.digest = mine.digest;
  mine.merge(child);
  EXPECT_EQ(mine.verdict, CommitVerdict::kAgree);
  grandchild.digest = mine.digest + 1;
  child.merge(grandchild);
  EXPECT_EQ(child.verdict, CommitVerdict::kLookCloser);
  mine.merge(child);  // whose own digest is the same
  EXPECT_EQ(mine.verdict, CommitVerdict::kLookCloser);
}

// Given two options that differ, and digests, expect the sentence of the first, on the way up too.
TEST(CommitReport, AnOptionThatDiffersIsNamedOnce) {
  CommitReport root, mine, child;
  mine.rank = 2;
  child.rank = 3;
  child.digest = mine.digest + 1;
  child.plan_mode = PARALLAX_PLAN_AR;
  child.deterministic = 1;
  mine.merge(child);
  EXPECT_EQ(mine.verdict, CommitVerdict::kDiffer);
  EXPECT_EQ(mine.text, "option plan_mode: rank 2 has auto, rank 3 has ar");
  root.plan_after_steps = 7;
  root.merge(mine);
  EXPECT_EQ(root.text, mine.text);
  child.rank = 1;
  root.merge(child);
  EXPECT_EQ(root.text, mine.text);
}

}  // namespace
}  // namespace parallax
