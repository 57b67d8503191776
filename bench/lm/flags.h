// SPDX-License-Identifier: Apache-2.0
// Command lines of the bench programs: one table gives the parsing and the help.
#ifndef BENCH_LM_FLAGS_H_
#define BENCH_LM_FLAGS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lm {

class Flags {
 public:
  // A list takes all words up to the next one that opens with "--".
  using Target =
      std::variant<bool*, uint32_t*, uint64_t*, double*, std::string*, std::vector<std::string>*>;

  explicit Flags(std::string summary) : summary_(std::move(summary)) {}

  // `name` without dashes. `target` outlives parse() and holds the default.
  void add(std::string name, Target target, std::string help);

  // Prints the help and exits for --help; prints what is wrong and exits with 2 otherwise.
  void parse(int argc, char** argv) const;

 private:
  struct Entry {
    std::string name;
    Target target;
    std::string help;
  };
  void print_help(const char* program) const;
  const Entry* find(const std::string& name) const;

  std::string summary_;
  std::vector<Entry> entries_;
};

}  // namespace lm

#endif  // BENCH_LM_FLAGS_H_
