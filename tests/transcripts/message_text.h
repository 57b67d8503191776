// SPDX-License-Identifier: Apache-2.0
// MessageText: a message as lines that can be read, one per section, with the names of variables
// and the ids of rows in place of numbers and row keys. One thread.
#ifndef PARALLAX_TESTS_TRANSCRIPTS_MESSAGE_TEXT_H_
#define PARALLAX_TESTS_TRANSCRIPTS_MESSAGE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "message/wire.h"
#include "planner/plan.h"
#include "variable/partition.h"

namespace parallax::transcripts {

// Of the scenario: by the number that the ranks gave it. F32 all of them.
struct NamedVariable {
  std::string name;
  Partition partition;
  uint32_t commit = 0;  // that brought it in
};

// "1 0.5 -2".
std::string numbers_text(std::span<const float> numbers);
std::string plan_text(const VariablePlan& plan);
const char* status_name(int status);  // a parallax_status_t: "PEER_LOST"

class MessageText {
 public:
  // The list may grow while it is used.
  explicit MessageText(const std::vector<NamedVariable>& variables) : variables_(variables) {}

  struct Lines {
    std::vector<std::string> sections;
    uint32_t heartbeats = 0;  // these are counted, and have no line
  };
  Lines lines(std::span<const std::byte> message) const;

 private:
  std::string name(uint32_t variable) const;
  std::string membership(const Section& section) const;
  std::string tree(const Section& section) const;
  std::string vote(std::span<const std::byte> payload) const;
  std::string decision(std::span<const std::byte> payload) const;
  std::string data(const Section& section) const;
  static std::string early(const Section& section);
  std::string rows(const Section& section) const;
  std::string listed_rows(const Section& section) const;
  std::string line(const Section& section) const;

  const std::vector<NamedVariable>& variables_;
};

}  // namespace parallax::transcripts

#endif  // PARALLAX_TESTS_TRANSCRIPTS_MESSAGE_TEXT_H_
