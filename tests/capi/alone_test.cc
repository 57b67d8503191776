// SPDX-License-Identifier: Apache-2.0
// A rank that a launcher started beside others and that opens alone is warned of: it would train a
// model of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"

namespace {

using parallax::sized;

// What is logged while one rank alone opens in this environment.
std::string log_of(const std::map<std::string, std::string>& environment,
                   const char* rendezvous = nullptr) {
  std::string said;
  const auto keep = [](void* context, int, const char*, const char* line) {
    *static_cast<std::string*>(context) += line;
  };
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  parallax::check(parallax_set_log_callback(keep, &said, 0));
  auto options = sized<parallax_options_t>();
  options.rendezvous = rendezvous;
  {
    parallax::Job job(options);
    EXPECT_EQ(job.query().world, 1U);
  }
  parallax::check(parallax_set_log_callback(nullptr, nullptr, 0));
  for (const auto& [name, value] : environment) unsetenv(name.c_str());
  return said;
}

TEST(Alone, UnderALauncherIsWarnedOf) {
  const std::string said = log_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_NE(said.find("started 4"), std::string::npos) << said;
  EXPECT_NE(said.find("PARALLAX_RENDEZVOUS=env"), std::string::npos) << said;
}

TEST(Alone, OtherwiseIsNot) {
  EXPECT_EQ(log_of({}), "");
  EXPECT_EQ(log_of({}, "env"), "");
  EXPECT_EQ(log_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), "");
  EXPECT_EQ(log_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, "env"), "");
}

}  // namespace
