// SPDX-License-Identifier: Apache-2.0
#include "engine/commit_report.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

CommitReport report_of(uint32_t rank) {
  CommitReport report;
  report.digest = 7;
  report.terms = {.rank = rank,
                  .plan_mode = PARALLAX_PLAN_PS,
                  .plan_after_steps = 8,
                  .deterministic = 0,
                  .slots = 16};
  return report;
}

const HostMap kHosts = map_hosts(std::vector<std::string>{"a", "a", "b", "b", "c", "c"});

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string sentence_of(const CommitReport& report) {
  return ToldFailure::decode(report.text).sentence;
}

TEST(CommitReport, ReadsBackWhatItWrote) {
  CommitReport report = report_of(3);
  report.verdict = CommitVerdict::kDiffer;
  report.text = "variable 'x'";
  CommitReport read;
  ASSERT_TRUE(read.decode(bytes_of(report.encode()), 6));
  EXPECT_EQ(read.digest, 7u);
  EXPECT_EQ(read.terms.rank, 3u);
  EXPECT_EQ(read.terms.plan_mode, static_cast<uint32_t>(PARALLAX_PLAN_PS));
  EXPECT_EQ(read.terms.plan_after_steps, 8u);
  EXPECT_EQ(read.terms.deterministic, 0u);
  EXPECT_EQ(read.terms.slots, 16u);
  EXPECT_EQ(read.verdict, CommitVerdict::kDiffer);
  EXPECT_EQ(read.text, "variable 'x'");
}

// A staleness is told where there is one, ahead of all else.
TEST(CommitReport, StalenessTravelsWithIt) {
  CommitReport report = report_of(1);
  const size_t without = report.encode().size();
  report.terms.staleness = 7;
  report.devices.wanted = true;
  report.text = "text";
  const std::string whole = report.encode();
  CommitReport read;
  ASSERT_TRUE(read.decode(bytes_of(whole), 6));
  EXPECT_EQ(read.terms.staleness, 7u);
  EXPECT_EQ(read.text, "text");
  for (size_t size = 0; size < without + sizeof(uint32_t); ++size) {
    CommitReport cut;
    EXPECT_FALSE(cut.decode(bytes_of(whole.substr(0, size)), 6)) << size << " bytes";
  }
  report = report_of(1);
  EXPECT_EQ(report.encode().size(), without);
  ASSERT_TRUE(read.decode(bytes_of(report.encode()), 6));
  EXPECT_EQ(read.terms.staleness, 0u);
}

// What is said of reductions among devices lies between the head and the text, where it is said.
TEST(CommitReport, DevicesTravelWithIt) {
  CommitReport report = report_of(1);
  report.devices.wanted = report.devices.able = true;
  report.devices.library_version = 22809;
  const std::string whole = report.encode();
  CommitReport read;
  ASSERT_TRUE(read.decode(bytes_of(whole), 6));
  EXPECT_EQ(read.verdict, CommitVerdict::kAgree);
  EXPECT_TRUE(read.devices.wanted && read.devices.able);
  EXPECT_EQ(read.devices.library_version, 22809u);
  EXPECT_EQ(read.text, "");
  for (size_t size = 0; size < whole.size(); ++size) {
    CommitReport cut;
    EXPECT_FALSE(cut.decode(bytes_of(whole.substr(0, size)), 6)) << size << " bytes";
  }
}

TEST(CommitReport, RefusesWhatIsTooShortTooLongOrOfNoVerdict) {
  const std::string whole = report_of(0).encode();
  for (size_t size = 0; size < whole.size(); ++size) {
    CommitReport read;
    EXPECT_FALSE(read.decode(bytes_of(whole.substr(0, size)), 6)) << size << " bytes";
  }
  CommitReport read;
  EXPECT_TRUE(read.decode(bytes_of(whole + std::string(CommitReport::kTextMax, 'a')), 6));
  EXPECT_FALSE(read.decode(bytes_of(whole + std::string(CommitReport::kTextMax + 1, 'a')), 6));
  std::string other = whole;
  other[other.size() - 4] = 3;  // the verdict's number, beyond the last
  EXPECT_FALSE(read.decode(bytes_of(other), 6));
}

// A peer's number, by which hosts are looked up.
TEST(CommitReport, RefusesARankThatIsNone) {
  CommitReport read;
  EXPECT_TRUE(read.decode(bytes_of(report_of(5).encode()), 6));
  EXPECT_FALSE(read.decode(bytes_of(report_of(6).encode()), 6));
  EXPECT_FALSE(read.decode(bytes_of(report_of(UINT32_MAX).encode()), 6));
}

TEST(CommitReport, EqualReportsAgree) {
  CommitReport report = report_of(0);
  report.merge(report_of(1), kHosts);
  EXPECT_EQ(report.verdict, CommitVerdict::kAgree);
}

TEST(CommitReport, AnotherDigestAsksForACloserLook) {
  CommitReport report = report_of(0);
  CommitReport child = report_of(1);
  child.digest = 8;
  report.merge(child, kHosts);
  EXPECT_EQ(report.verdict, CommitVerdict::kLookCloser);
  // So does one whose own children differ.
  CommitReport above = report_of(4);
  child = report_of(5);
  child.verdict = CommitVerdict::kLookCloser;
  above.merge(child, kHosts);
  EXPECT_EQ(above.verdict, CommitVerdict::kLookCloser);
}

TEST(CommitReport, NamesTheOptionThatDiffersAndBothRanks) {
  CommitReport report = report_of(0);
  CommitReport child = report_of(2);
  child.terms.plan_mode = PARALLAX_PLAN_AR;
  child.digest = 8;  // an option says more than a digest
  report.merge(child, kHosts);
  EXPECT_EQ(report.verdict, CommitVerdict::kDiffer);
  EXPECT_EQ(sentence_of(report),
            "option plan_mode: rank 0 (host a) has ps, rank 2 (host b) has ar");
  // A later child changes nothing.
  CommitReport later = report_of(3);
  later.terms.deterministic = 1;
  report.merge(later, kHosts);
  EXPECT_EQ(sentence_of(report),
            "option plan_mode: rank 0 (host a) has ps, rank 2 (host b) has ar");

  CommitReport other = report_of(0);
  child = report_of(1);
  child.terms.plan_after_steps = 9;
  other.merge(child, kHosts);
  EXPECT_EQ(sentence_of(other),
            "option plan_after_steps: rank 0 (host a) has 8, rank 1 (host a) has 9");
  other = report_of(0);
  child = report_of(1);
  child.terms.slots = 32;
  other.merge(child, kHosts);
  EXPECT_EQ(sentence_of(other), "option slots: rank 0 (host a) has 16, rank 1 (host a) has 32");
  other = report_of(0);
  child = report_of(1);
  child.terms.plan_mode = 77;  // a peer's number, of no mode
  other.merge(child, kHosts);
  EXPECT_EQ(sentence_of(other), "option plan_mode: rank 0 (host a) has ps, rank 1 (host a) has 77");
}

TEST(CommitReport, TakesOverWhatAChildFound) {
  CommitReport report = report_of(0);
  CommitReport child = report_of(1);
  child.verdict = CommitVerdict::kDiffer;
  child.text = "variable 'x', field rows: rank 0 has 5, rank 3 has 6";
  report.merge(child, kHosts);
  EXPECT_EQ(report.verdict, CommitVerdict::kDiffer);
  EXPECT_EQ(sentence_of(report), child.text);
}

}  // namespace
}  // namespace parallax
