// SPDX-License-Identifier: Apache-2.0
// Playing and comparing transcripts. See transcript.h.
#include "transcripts/transcript.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transcripts/small_job.h"
#include "transcripts/words.h"

namespace parallax::transcripts {
namespace {

constexpr size_t kLinesAround = 2;

struct Line {
  char mark = ' ';
  size_t number = 0;  // in its own text, from 1
  std::string text;
};

// By the longest common subsequence, whose lengths `common` holds for every pair of ends.
std::vector<Line> aligned(const std::vector<std::string>& expected,
                          const std::vector<std::string>& actual) {
  const size_t width = actual.size() + 1;
  std::vector<uint32_t> common((expected.size() + 1) * width);
  for (size_t i = expected.size(); i-- > 0;) {
    for (size_t j = actual.size(); j-- > 0;) {
      common[i * width + j] = expected[i] == actual[j] ? common[(i + 1) * width + j + 1] + 1
                                                       : std::max(common[(i + 1) * width + j],
                                                                  common[i * width + j + 1]);
    }
  }
  std::vector<Line> lines;
  size_t i = 0, j = 0;
  while (i < expected.size() || j < actual.size()) {
    if (i < expected.size() && j < actual.size() && expected[i] == actual[j]) {
      lines.push_back({' ', i + 1, expected[i]});
      ++i, ++j;
    } else if (j == actual.size() ||
               (i < expected.size() && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      lines.push_back({'-', i + 1, expected[i]});
      ++i;
    } else {
      lines.push_back({'+', j + 1, actual[j]});
      ++j;
    }
  }
  return lines;
}

}  // namespace

std::string play(const std::string& transcript) {
  SmallJob job;
  std::string played;
  size_t number = 0;
  for (const std::string& line : cut(transcript, '\n')) {
    ++number;
    if (line.starts_with(' ')) continue;  // what came of it before
    played += line + "\n";
    if (!line.starts_with("> ")) continue;
    try {
      for (const std::string& told : job.obey(line.substr(2))) played += told + "\n";
    } catch (const ScriptError& error) {
      throw ScriptError("line " + std::to_string(number) + ", '" + line + "': " + error.what());
    }
  }
  return played;
}

std::string difference(const std::string& expected, const std::string& actual, size_t lines_max) {
  const std::vector<Line> lines = aligned(cut(expected, '\n'), cut(actual, '\n'));
  std::string text;
  size_t shown = 0, next = 0;  // next: the first line not shown yet
  for (size_t at = 0; at < lines.size(); ++at) {
    if (lines[at].mark == ' ') continue;
    const size_t first = std::max(next, at - std::min(at, kLinesAround));
    const size_t end = std::min(lines.size(), at + kLinesAround + 1);
    if (first >= end) continue;
    if (first > next || next == 0) {
      text += "line " + std::to_string(lines[first].number) + ":\n";
    }
    for (size_t each = first; each < end; ++each) {
      if (shown++ == lines_max) return text + "...\n";
      text += lines[each].mark + (" " + lines[each].text) + "\n";
    }
    next = end;
  }
  return text;
}

}  // namespace parallax::transcripts
