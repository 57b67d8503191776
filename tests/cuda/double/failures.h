// SPDX-License-Identifier: Apache-2.0
// Failures: which call of which function is to fail, and how often each was called. Guarded by its
// owner's lock.
#ifndef PARALLAX_TESTS_CUDA_DOUBLE_FAILURES_H_
#define PARALLAX_TESTS_CUDA_DOUBLE_FAILURES_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cuda_double {

struct Failure {
  int code = 0;
  bool sticky = false;
};

class Failures {
 public:
  void add(const std::string& function, uint64_t nth, Failure failure) {
    rules_.push_back({function, nth, failure, false});
  }
  void add_always(const std::string& function, Failure failure) {
    rules_.push_back({function, 0, failure, true});
  }
  // FUNCTION:NTH:CODE[:sticky][;...]
  void add_all(std::string_view text);
  void clear() { rules_.clear(); }

  // Counts one call; what it is to answer.
  Failure count(const std::string& function) {
    ++calls_[function];
    Failure found;
    for (Rule& rule : rules_) {
      const bool any = rule.function == "*" && function != "operation" && function != "collective";
      if (!any && rule.function != function) continue;
      if (rule.always || (rule.left > 0 && --rule.left == 0)) found = rule.failure;
    }
    return found;
  }
  uint64_t calls(const std::string& function) const {
    const auto found = calls_.find(function);
    return found == calls_.end() ? 0 : found->second;
  }

 private:
  struct Rule {
    std::string function;
    uint64_t left;  // calls, the one that fails counted; 0: it has failed
    Failure failure;
    bool always;
  };
  std::vector<Rule> rules_;
  std::map<std::string, uint64_t> calls_;
};

}  // namespace cuda_double

#endif  // PARALLAX_TESTS_CUDA_DOUBLE_FAILURES_H_
