// SPDX-License-Identifier: Apache-2.0
// What the environment says is to fail. See failures.h.
#include "cuda/double/failures.h"

#include <cstdio>
#include <cstdlib>

namespace cuda_double {

namespace {

std::vector<std::string> parts_of(std::string_view text, char between) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(between);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

void Failures::add_all(std::string_view text) {
  for (const std::string& rule : parts_of(text, ';')) {
    if (rule.empty()) continue;
    const std::vector<std::string> parts = parts_of(rule, ':');
    const bool sticky = parts.size() == 4 && parts[3] == "sticky";
    if (parts.size() != 3 && !sticky) {
      // A test whose failure is misspelt would pass for the wrong reason.
      std::fprintf(stderr, "CUDA_DOUBLE_FAIL: '%s' is not FUNCTION:NTH:CODE[:sticky]\n",
                   rule.c_str());
      std::abort();
    }
    add(parts[0], std::strtoull(parts[1].c_str(), nullptr, 10),
        {static_cast<int>(std::strtol(parts[2].c_str(), nullptr, 10)), sticky});
  }
}

}  // namespace cuda_double
