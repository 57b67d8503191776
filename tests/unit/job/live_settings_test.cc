// SPDX-License-Identifier: Apache-2.0
// What changes while a job is open, what it does, and what stays as it was.
#include "job/live_settings.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "support/words.h"

namespace parallax {
namespace {

using testkit::has;

struct Open {
  explicit Open(std::vector<std::string> environment = {}) {
    auto settings = std::make_unique<Settings>();
    EXPECT_TRUE(settings
                    ->load({.environment = std::move(environment),
                            .system_file = "/nonexistent/parallax.conf"})
                    .ok());
    live = std::make_unique<LiveSettings>(std::move(settings), 5);
  }
  Status set(const char* name, const char* value) {
    return live->set(name, value, [this](const Settings& changed) {
      memory_max_bytes = changed.value("memory_max_bytes").number;
      memory_check = changed.value("memory_check").text;
    });
  }
  nlohmann::json row(const std::string& name) const {
    for (const auto& each : nlohmann::json::parse(live->json())) {
      if (each["name"] == name) return each;
    }
    return {};
  }

  std::unique_ptr<LiveSettings> live;
  uint64_t memory_max_bytes = 0;
  std::string memory_check;
};

TEST(LiveSettings, ChangeWhatMayChange) {
  Open open({"PARALLAX_MEMORY_CHECK=off"});
  EXPECT_EQ(open.live->timeout_ns(), 5 * kNanosecondsPerMillisecond);
  EXPECT_TRUE(open.set("timeout_ms", "4294967295").ok());
  EXPECT_EQ(open.live->timeout_ns(), 4294967295 * kNanosecondsPerMillisecond);
  EXPECT_EQ(open.row("timeout_ms")["where"], "parallax_set");
  EXPECT_EQ(open.row("timeout_ms")["value"], "4294967295");
  EXPECT_EQ(open.memory_check, "") << "a deadline is none of it";
  EXPECT_TRUE(open.set("memory_max_bytes", "3K").ok());
  EXPECT_EQ(open.memory_max_bytes, 3072u);
  EXPECT_EQ(open.memory_check, "off");
  EXPECT_TRUE(open.set("memory_check", "refuse").ok());
  EXPECT_EQ(open.memory_check, "refuse");
  EXPECT_EQ(open.memory_max_bytes, 3072u);
}

TEST(LiveSettings, ChangeTheLogOfTheProcess) {
  Open open;
  EXPECT_FALSE(log_enabled(LogLevel::kTrace, LogSubsystem::kStep));
  EXPECT_TRUE(open.set("debug", "trace").ok());
  EXPECT_TRUE(open.set("debug_subsys", "step,plan").ok());
  EXPECT_TRUE(log_enabled(LogLevel::kTrace, LogSubsystem::kStep));
  EXPECT_FALSE(log_enabled(LogLevel::kTrace, LogSubsystem::kNet));
  EXPECT_TRUE(open.set("debug_subsys", "all").ok());
  EXPECT_TRUE(open.set("debug", "warn").ok());
  EXPECT_FALSE(log_enabled(LogLevel::kTrace, LogSubsystem::kStep));
}

TEST(LiveSettings, WhatIsRefusedChangesNothing) {
  Open open({"PARALLAX_TIMEOUT_MS=7"});
  EXPECT_EQ(open.set("timeout_ms", "soon").code(), PARALLAX_INVALID);
  EXPECT_EQ(open.set("lease_ms", "100").code(), PARALLAX_UNSUPPORTED);
  EXPECT_EQ(open.live->timeout_ns(), 5 * kNanosecondsPerMillisecond);
  EXPECT_TRUE(has(open.row("timeout_ms")["where"].get<std::string>(), "environment"));
  EXPECT_EQ(open.row("timeout_ms")["wrong"], "");
}

}  // namespace
}  // namespace parallax
