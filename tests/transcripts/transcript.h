// SPDX-License-Identifier: Apache-2.0
// Transcript: the text of a scenario. A line that opens with "> " is a command, one that opens with
// a blank tells what came of the commands above it, and any other is prose, for who reads it. Plain
// functions over text.
#ifndef PARALLAX_TESTS_TRANSCRIPTS_TRANSCRIPT_H_
#define PARALLAX_TESTS_TRANSCRIPTS_TRANSCRIPT_H_

#include <string>

namespace parallax::transcripts {

// The same prose and commands, with what comes of these commands today. Throws ScriptError with the
// number of the line.
std::string play(const std::string& transcript);

// The lines in which two texts differ, "-" those of `expected` and "+" those of `actual`, with a
// few lines around them, at most `lines_max`; "" if none.
std::string difference(const std::string& expected, const std::string& actual, size_t lines_max);

}  // namespace parallax::transcripts

#endif  // PARALLAX_TESTS_TRANSCRIPTS_TRANSCRIPT_H_
