// SPDX-License-Identifier: Apache-2.0
// ToldFailure: a failure on its way to other ranks: its sentence and, behind a NUL, what it names
// as data. A variable goes by its name, since every rank numbers them itself. What was told by a
// peer is never more than text and numbers: a sentence without a NUL names nothing, and whatever
// follows one is taken as far as it fits. Pure; any thread; nothing blocks.
#ifndef PARALLAX_MESSAGE_TOLD_FAILURE_H_
#define PARALLAX_MESSAGE_TOLD_FAILURE_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/text.h"

namespace parallax {

struct ToldFailure {
  // Of the numbers, and of all that may stand behind a sentence.
  static constexpr size_t kNumberBytes = 4 * sizeof(uint32_t) + 2 * sizeof(uint64_t);
  static constexpr size_t kFactsBytesMax =
      1 + kNumberBytes + PARALLAX_FIELD_MAX + 1 + PARALLAX_NAME_MAX;

  std::string sentence;
  // But for the variable, and for the host and the last step committed, which each rank knows
  // itself.
  ErrorFacts facts;
  uint32_t group = 0;         // whose step and variable it is: 0 the whole job's, else a part's
  std::string variable = {};  // "": none

  std::string encode() const {
    std::string out = sentence;
    out += '\0';
    const uint32_t numbers[] = {facts.rank, facts.peer, group, facts.slice};
    out.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
    out.append(reinterpret_cast<const char*>(&facts.step), sizeof facts.step);
    out.append(reinterpret_cast<const char*>(&facts.row), sizeof facts.row);
    out += facts.field.substr(0, PARALLAX_FIELD_MAX);
    return variable.empty() ? out : out + '\0' + variable.substr(0, PARALLAX_NAME_MAX);
  }

  static ToldFailure decode(std::string_view in) {
    ToldFailure told;
    const size_t end = std::min(in.find('\0'), in.size());
    told.sentence = in.substr(0, end);
    in.remove_prefix(std::min(end + 1, in.size()));
    if (in.size() < kNumberBytes) return told;
    uint32_t numbers[4];
    std::memcpy(numbers, in.data(), sizeof numbers);
    std::memcpy(&told.facts.step, in.data() + sizeof numbers, sizeof told.facts.step);
    std::memcpy(&told.facts.row, in.data() + sizeof numbers + sizeof told.facts.step,
                sizeof told.facts.row);
    told.facts.rank = numbers[0];
    told.facts.peer = numbers[1];
    told.group = numbers[2];
    told.facts.slice = numbers[3];
    in.remove_prefix(kNumberBytes);
    const size_t field_end = std::min(in.find('\0'), in.size());
    told.facts.field =
        printable(std::string(in.substr(0, field_end)).substr(0, PARALLAX_FIELD_MAX));
    in.remove_prefix(std::min(field_end + 1, in.size()));
    told.variable = in.substr(0, PARALLAX_NAME_MAX);  // compared with names, never shown
    return told;
  }
};

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_TOLD_FAILURE_H_
