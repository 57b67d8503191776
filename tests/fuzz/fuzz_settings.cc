// SPDX-License-Identifier: Apache-2.0
// Fuzz: a file of settings, and the environment: its lines as variables, but for the one that names
// a file. A refusal has a sentence; what is taken can be applied and reported.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.h"

namespace {

void use(parallax::Settings* settings, const parallax::Status& status) {
  if (!status.ok() && status.message().empty()) std::abort();
  parallax_options_t options = {};
  settings->apply(&options);
  if (options.compute_threads > 256 || options.deterministic > 1) std::abort();
  if (!nlohmann::json::accept(settings->json())) std::abort();
  (void)settings->explained(parallax::invalid("open: rank, world, host"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  parallax::Settings of_file;
  use(&of_file, of_file.load_text(text, "fuzz.conf"));

  std::vector<std::string> environment;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line(text.substr(at, end - at));
    if (!line.starts_with("CONFIG_FILE")) environment.push_back("PARALLAX_" + line);
    at = end + 1;
  }
  parallax::Settings of_environment;
  use(&of_environment, of_environment.load({.environment = environment,
                                            .system_file = "/nonexistent/parallax.conf"}));
  return 0;
}
