// SPDX-License-Identifier: Apache-2.0
// What commit says of memory that is not there, and what the report says of memory that is.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/log.h"
#include "support/engine_world.h"
#include "support/words.h"

namespace parallax {
namespace {

using namespace testkit;

constexpr uint64_t kMiB = uint64_t{1} << 20;

void hear(void* context, int level, const char*, const char* message) {
  if (level == PARALLAX_LOG_WARN)
    static_cast<std::vector<std::string>*>(context)->push_back(message);
}

// Three ranks on two hosts, each machine of this size.
WorldOptions machines_of(uint64_t bytes, MemoryCheck check) {
  WorldOptions options = {.hosts = {0, 0, 1}};
  options.adjust = [=](uint32_t, EngineOptions* engine) {
    engine->memory_check = check;
    engine->machine = {.total_bytes = bytes};
  };
  return options;
}

const parallax_variable_t kVariables[] = {
    dense_variable("small", 10, 10, PARALLAX_RULE_SGD),
    sparse_variable("enormous", 1 << 20, 64, 16, PARALLAX_RULE_SGD)};

TEST(EngineMemory, BeyondTheCeilingIsALimitEverywhere) {
  WorldOptions options = {.hosts = {0, 0, 1}};
  options.adjust = [](uint32_t rank, EngineOptions* engine) {
    if (rank == 2) engine->memory_max_bytes = kMiB;
  };
  EngineWorld world(options);
  const parallax_variable_t variables[] = {
      dense_variable("small", 10, 10, PARALLAX_RULE_SGD),
      sparse_variable("enormous", 1 << 20, 64, 1 << 16, PARALLAX_RULE_ADAGRAD)};
  for (const Status& status : world.commit(variables)) {
    EXPECT_EQ(status.code(), PARALLAX_LIMIT) << status.message();
    EXPECT_TRUE(has(status, "rank 2") && has(status, "'enormous'") &&
                has(status, "for values and state") && has(status, "raise memory_max_bytes"))
        << status.message();
  }
}

TEST(EngineMemory, TooLittleIsRefusedWhereAskedFor) {
  EngineWorld world(machines_of(64 * kMiB, MemoryCheck::kRefuse));
  for (const Status& status : world.commit(kVariables)) {
    EXPECT_EQ(status.code(), PARALLAX_LIMIT) << status.message();
    EXPECT_TRUE(has(status.message(), "'enormous' (85 MiB values and state") ||
                has(status.message(), "'enormous' (86 MiB values and state"))
        << status.message();
    EXPECT_TRUE(has(status.message(), "has 64 MiB")) << status.message();
    EXPECT_TRUE(has(status.message(), "memory_check is refuse")) << status.message();
  }
}

// Expect one line for each host, and the job to go on.
TEST(EngineMemory, TooLittleIsSaidOtherwise) {
  std::vector<std::string> lines;
  ASSERT_TRUE(log_set_callback(hear, &lines, LogLevel::kWarn).ok());
  EngineWorld world(machines_of(64 * kMiB, MemoryCheck::kWarn));
  for (const Status& status : world.commit(kVariables)) EXPECT_TRUE(status.ok());
  EngineWorld silent(machines_of(64 * kMiB, MemoryCheck::kOff));
  for (const Status& status : silent.commit(kVariables)) EXPECT_TRUE(status.ok());
  log_flush(60000);
  ASSERT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok());
  ASSERT_EQ(lines.size(), 2u) << lines[0];
  std::sort(lines.begin(), lines.end());
  EXPECT_TRUE(has(lines[0], "the 2 ranks of host host0 may touch")) << lines[0];
  EXPECT_TRUE(has(lines[1], "the rank of host host1 may touch")) << lines[1];
}

TEST(EngineMemory, WhatFitsIsNotSpokenOf) {
  EngineWorld world(machines_of(4096 * kMiB, MemoryCheck::kRefuse));
  for (const Status& status : world.commit(kVariables))
    EXPECT_TRUE(status.ok()) << status.message();
}

// Given more than any address space holds, expect the table to be named, its size, and what
// makes it smaller: of a table that is not rows_max.
TEST(EngineMemory, AReservationThatFailsNamesTheVariable) {
  EngineWorld world({.hosts = {0}});
  parallax_variable_t variables[] = {
      dense_variable("small", 10, 10, PARALLAX_RULE_SGD),
      sparse_variable("beyond", UINT32_MAX, 4096, 16, PARALLAX_RULE_ADAM)};
  variables[1].dtype = PARALLAX_F64;
  const Status status = world.commit(variables)[0];
  EXPECT_EQ(status.code(), PARALLAX_LIMIT);
  EXPECT_TRUE(has(status.message(), "variable 'beyond'")) << status.message();
  EXPECT_TRUE(has(status.message(), "383 TiB for values and state")) << status.message();
  EXPECT_TRUE(has(status.message(), "register fewer rows")) << status.message();
  EXPECT_TRUE(has(status.message(), "ulimit -v")) << status.message();
  EXPECT_FALSE(has(status.message(), "rows_max")) << status.message();
}

nlohmann::json memory_of(Engine& engine, size_t variable) {
  return nlohmann::json::parse(engine.reports().stats_json())["variables"][variable];
}

// Given a table that starts at zero, expect its memory to be reserved and hardly touched, and
// more of it once rows were trained.
TEST(EngineMemory, TheReportTellsReservedFromTouched) {
  EngineWorld world({.hosts = {0}});
  ASSERT_TRUE(world.commit(kVariables)[0].ok());
  Engine& engine = world.engine(0);
  const nlohmann::json before = memory_of(engine, 1);
  const uint64_t reserved = before["memory_reserved_bytes"];
  const uint64_t touched = before["memory_touched_bytes"];
  EXPECT_GE(reserved, 256 * kMiB);
  EXPECT_LT(touched, 64 * kMiB);
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 16; ++id) ids.push_back(id << 16);
  std::vector<float> gradients(ids.size() * 64, 1.0f);
  const parallax_slice_t slice = rows_slice(1, ids, gradients.data());
  for (const Status& status : world.everywhere([&](uint32_t, Request** request) -> Status {
         uint64_t step = 0;
         Request* push = nullptr;
         PARALLAX_RETURN_IF_ERROR(engine.step_calls().begin(&step));
         PARALLAX_RETURN_IF_ERROR(engine.step_calls().push(step, {&slice, 1}, &push));
         parallax_step_end_options_t end = {};
         end.size = sizeof end;
         end.learning_rate = 1;
         return engine.step_calls().end(step, end, request);
       })) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
  const nlohmann::json after = memory_of(engine, 1);
  EXPECT_EQ(after["memory_reserved_bytes"], reserved);
  EXPECT_GE(after["memory_touched_bytes"].get<uint64_t>(), touched + 8 * 4096);
  EXPECT_EQ(nlohmann::json::parse(engine.reports().stats_json())["memory"]["touched_bytes"],
            after["memory_touched_bytes"].get<uint64_t>() +
                memory_of(engine, 0)["memory_touched_bytes"].get<uint64_t>());
}

}  // namespace
}  // namespace parallax
