// SPDX-License-Identifier: Apache-2.0
// The loader: what it finds, what it refuses, and what it does to the process.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "transport/module/loader.h"

namespace parallax {
namespace {

// Given the module beside the library, expect it, and to be told which UCX it drives.
TEST(UcxModule, is_found_and_reported) {
  const ParallaxTransportModule* module = nullptr;
  ModuleReport report;
  const Status status = load_ucx_module("", &module, &report);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_STREQ(module->name, "ucx");
  EXPECT_TRUE(std::filesystem::exists(report.path)) << report.path;
  EXPECT_TRUE(report.library.starts_with("UCX 1.")) << report.library;
}

// Given UCX loaded by now, expect a second loading to see that and to leave the environment alone.
TEST(UcxModule, leaves_a_loaded_library_alone) {
  const ParallaxTransportModule* first = nullptr;
  const ParallaxTransportModule* second = nullptr;
  ModuleReport report;
  ASSERT_TRUE(load_ucx_module("", &first, &report).ok());
  ASSERT_TRUE(load_ucx_module("", &second, &report).ok());
  EXPECT_EQ(first, second);
  EXPECT_TRUE(report.library_was_loaded);
  EXPECT_TRUE(report.environment.empty());
}

std::vector<void*> signal_handlers() {
  std::vector<void*> handlers;
  for (const int number : {SIGSEGV, SIGHUP, SIGILL, SIGBUS, SIGFPE}) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    handlers.push_back(reinterpret_cast<void*>(action.sa_handler));
  }
  return handlers;
}

// Given handlers of the host process, expect loading UCX to leave them.
TEST(UcxModule, takes_no_signals) {
  const auto before = signal_handlers();
  const ParallaxTransportModule* module = nullptr;
  ModuleReport report;
  ASSERT_TRUE(load_ucx_module("", &module, &report).ok());
  EXPECT_EQ(signal_handlers(), before);
}

// Given a folder without it, expect a sentence with the file tried and the remedy.
TEST(UcxModule, says_what_it_tried) {
  const ParallaxTransportModule* module = nullptr;
  ModuleReport report;
  const Status status = load_ucx_module("/nonexistent", &module, &report);
  EXPECT_EQ(status.code(), PARALLAX_UNSUPPORTED);
  EXPECT_EQ(module, nullptr);
  ASSERT_EQ(report.tried.size(), 1u);
  EXPECT_EQ(report.tried[0], "/nonexistent/libparallax_ucx.so: no such file");
  EXPECT_NE(status.message().find(report.tried[0]), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("PARALLAX_MODULE_DIR"), std::string::npos);
  EXPECT_TRUE(report.path.empty());
}

// Given a module of another version, layout or kind, expect it to be refused by name.
TEST(UcxModule, refuses_another_build) {
  ParallaxTransportModule table;
  table.abi = kModuleAbi;
  table.struct_bytes = sizeof table;
  table.build = "9.9.9 layout 1 c++ 1";
  Status status = check_module(&table, "/lib/x.so");
  EXPECT_EQ(status.code(), PARALLAX_UNSUPPORTED);
  EXPECT_NE(status.message().find("9.9.9"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("/lib/x.so"), std::string::npos);
  EXPECT_NE(status.message().find(PARALLAX_MODULE_BUILD), std::string::npos);
  table.build = PARALLAX_MODULE_BUILD;
  EXPECT_FALSE(check_module(&table, "").ok()) << "no create()";
  table.struct_bytes += 8;
  EXPECT_FALSE(check_module(&table, "").ok());
  table.abi = 2;
  EXPECT_FALSE(check_module(&table, "").ok());
  EXPECT_FALSE(check_module(nullptr, "").ok());
}

}  // namespace
}  // namespace parallax
