// SPDX-License-Identifier: Apache-2.0
// Every scenario of tests/transcripts/scenarios, played and compared with what its file tells.
//
//   PARALLAX_REWRITE=1 build/release/bin/parallax_transcripts_tests   rewrites those that differ
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "transcripts/transcript.h"

namespace parallax::transcripts {
namespace {

constexpr size_t kDifferenceLinesMax = 60;

std::filesystem::path file_of(const std::string& scenario) {
  return std::filesystem::path(PARALLAX_SCENARIOS) / (scenario + ".txt");
}

std::vector<std::string> scenarios() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(PARALLAX_SCENARIOS)) {
    if (file.path().extension() == ".txt") names.push_back(file.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Transcripts : public testing::TestWithParam<std::string> {};

// Given a scenario, expect today what its file tells; and the same when it is played again.
TEST_P(Transcripts, tells_what_happens) {
  const std::filesystem::path path = file_of(GetParam());
  const std::string expected = read(path);
  const std::string actual = play(expected);
  ASSERT_EQ(actual, play(expected)) << "two runs of one script differ";
  if (std::getenv("PARALLAX_REWRITE") != nullptr) {
    if (actual == expected) return;
    std::ofstream(path) << actual;
    std::printf("report: %s is rewritten\n", path.c_str());
    return;
  }
  if (actual == expected) return;
  ADD_FAILURE() << path.c_str() << " tells something else:\n"
                << difference(expected, actual, kDifferenceLinesMax)
                << "If that is meant: PARALLAX_REWRITE=1 "
                << std::filesystem::read_symlink("/proc/self/exe").c_str() << " --gtest_filter=*/"
                << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Scenarios, Transcripts, testing::ValuesIn(scenarios()),
                         [](const auto& info) { return info.param; });

// Given a line changed, one gone and one added, expect these and their surroundings alone.
TEST(TranscriptDifference, shows_what_differs) {
  EXPECT_EQ(difference("a\nb\nc\n", "a\nb\nc\n", 9), "");
  EXPECT_EQ(difference("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nX\n6\n7\n8\n9\n", 9),
            "line 3:\n  3\n  4\n- 5\n+ X\n  6\n  7\n");
  EXPECT_EQ(difference("1\n2\n3\n4\n5\n6\n7\n8\n", "0\n1\n2\n3\n4\n5\n6\n7\n", 9),
            "line 1:\n+ 0\n  1\n  2\nline 6:\n  6\n  7\n- 8\n");
  EXPECT_EQ(difference("a\n", "b\n", 1), "line 1:\n- a\n...\n");
}

}  // namespace
}  // namespace parallax::transcripts
