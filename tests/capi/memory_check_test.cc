// SPDX-License-Identifier: Apache-2.0
// The setting memory_check in a whole job, with a variable that this machine has no memory for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "parallax/parallax.hpp"

namespace {

using parallax::sized;

struct Committed {
  parallax_status_t status = PARALLAX_OK;
  std::string sentence;
  std::string log;
};

// Commits a table of 384 TiB, which no address space holds either.
Committed commit_too_much(const char* memory_check) {
  Committed outcome;
  const auto keep = [](void* context, int, const char*, const char* line) {
    *static_cast<std::string*>(context) += line;
  };
  if (memory_check != nullptr) setenv("PARALLAX_MEMORY_CHECK", memory_check, 1);
  parallax::check(parallax_set_log_callback(keep, &outcome.log, 0));
  {
    parallax::Job job(sized<parallax_options_t>());
    auto variable = sized<parallax_variable_t>();
    variable.name = "beyond";
    variable.rows = UINT32_MAX;
    variable.row_elements = 4096;
    variable.dtype = PARALLAX_F64;
    variable.tag = PARALLAX_SPARSE;
    variable.rows_max = 16;
    variable.rule = PARALLAX_RULE_ADAM;
    job.register_variable(variable);
    try {
      job.commit();
    } catch (const parallax::Error& error) {
      outcome.status = error.status();
      outcome.sentence = error.what();
    }
  }
  parallax::check(parallax_set_log_callback(nullptr, nullptr, 0));
  unsetenv("PARALLAX_MEMORY_CHECK");
  return outcome;
}

bool has(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

// Given each choice, expect the machine's memory to be held against it as it says; the system
// refuses what was let pass.
TEST(MemoryCheck, SaysOrRefusesOrNeither) {
  const Committed refused = commit_too_much("refuse");
  EXPECT_EQ(refused.status, PARALLAX_LIMIT);
  EXPECT_TRUE(has(refused.sentence, "memory_check is refuse")) << refused.sentence;
  EXPECT_TRUE(has(refused.sentence, "'beyond'")) << refused.sentence;

  for (const char* warn : {"warn", static_cast<const char*>(nullptr)}) {
    const Committed said = commit_too_much(warn);
    EXPECT_TRUE(has(said.sentence, "of address space")) << said.sentence;
    EXPECT_TRUE(has(said.log, "memory_check = off says no more of it")) << said.log;
  }

  const Committed silent = commit_too_much("off");
  EXPECT_TRUE(has(silent.sentence, "of address space")) << silent.sentence;
  EXPECT_FALSE(has(silent.log, "memory_check")) << silent.log;
}

}  // namespace
