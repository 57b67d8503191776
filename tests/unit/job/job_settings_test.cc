// SPDX-License-Identifier: Apache-2.0
// Settings on their way into the options of a job, and the last value of each option that is
// taken beside the first that is not. What each refusal says, tests/abi/bad_input.c has.
#include "job/job_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "support/environment_variable.h"
#include "support/heard_lines.h"
#include "support/temporary_folder.h"
#include "support/words.h"

namespace parallax {
namespace {

using testkit::EnvironmentVariable;
using testkit::has;
using testkit::HeardLines;

// The options of a program that gave these, as the environment of the test completes them.
struct Taken {
  explicit Taken(parallax_options_t given = {}) : options(given) {
    status = take_settings(&options, &settings);
  }
  parallax_options_t options;
  std::unique_ptr<Settings> settings;
  Status status;
};

// Given a setting by file, environment and program, expect the program's to hold, else the
// environment's, else the file's; and texts to live as long as the settings.
TEST(JobSettings, FillInWhatTheProgramLeftZero) {
  const testkit::TemporaryFolder folder;
  const EnvironmentVariable file(
      "PARALLAX_CONFIG_FILE",
      folder.write("conf", "lease_ms = 101\ntimeout_ms = 201\nhost = of_file\n"));
  const EnvironmentVariable lease("PARALLAX_LEASE_MS", "102");
  const EnvironmentVariable mode("PARALLAX_PLAN_MODE", "ps");
  const EnvironmentVariable memory("PARALLAX_MEMORY_MAX_BYTES", "1G");
  parallax_options_t given = {};
  given.plan_mode = PARALLAX_PLAN_AR;
  const Taken taken(given);
  ASSERT_TRUE(taken.status.ok()) << taken.status.message();
  EXPECT_EQ(taken.options.lease_ms, 102u);
  EXPECT_EQ(taken.options.timeout_ms, 201u);
  EXPECT_EQ(taken.options.plan_mode, static_cast<uint32_t>(PARALLAX_PLAN_AR));
  EXPECT_EQ(taken.options.memory_max_bytes, uint64_t{1} << 30);
  ASSERT_NE(taken.options.host, nullptr);
  EXPECT_STREQ(taken.options.host, "of_file");
  EXPECT_EQ(taken.options.host, taken.settings->value("host").text.c_str());
  EXPECT_EQ(taken.settings->value("plan_mode").source, SettingSource::kCode);
  EXPECT_TRUE(check_options(taken.options).ok());
}

// Given each of the ways of rows switched off, expect that one to be off, and the others as they
// are.
TEST(JobSettings, WaysOfRowsAreSwitchedOffOneByOne) {
  const auto ways = [](const char* variable) {
    const EnvironmentVariable off(variable, "off");
    return row_ways_of(*Taken().settings);
  };
  const RowWays all = row_ways_of(*Taken().settings);
  EXPECT_TRUE(all.in_place && all.push_listed);
  EXPECT_EQ(all.early_bytes_min, kEarlyBytesMin);
  EXPECT_EQ(all.coding, RowCodingMode::kAuto);
  const RowWays not_in_place = ways("PARALLAX_ROWS_IN_PLACE");
  EXPECT_TRUE(!not_in_place.in_place && not_in_place.push_listed);
  const RowWays not_listed = ways("PARALLAX_PUSH_LISTED");
  EXPECT_TRUE(not_listed.in_place && !not_listed.push_listed);
  EXPECT_EQ(ways("PARALLAX_EARLY_PULL").early_bytes_min, kNeverEarly);
  EXPECT_EQ(ways("PARALLAX_ROW_CODING").coding, RowCodingMode::kOff);
}

// Given half of a rank's place, expect the missing half to be named: it would be another
// place.
TEST(JobSettings, HalfAPlaceIsRefused) {
  {
    const EnvironmentVariable rank("PARALLAX_RANK", "2");
    const Status status = Taken().status;
    EXPECT_EQ(status.code(), PARALLAX_INVALID);
    EXPECT_TRUE(has(status, "PARALLAX_RANK is 2, but PARALLAX_WORLD is not set"))
        << status.message();
    const EnvironmentVariable world("PARALLAX_WORLD", "4");
    const Taken whole;
    ASSERT_TRUE(whole.status.ok()) << whole.status.message();
    EXPECT_EQ(whole.options.rank, 2u);
    EXPECT_EQ(whole.options.world, 4u);
  }
  {
    const EnvironmentVariable world("PARALLAX_WORLD", "4");
    const Status status = Taken().status;
    EXPECT_EQ(status.code(), PARALLAX_INVALID);
    EXPECT_TRUE(has(status, "PARALLAX_WORLD is 4, but PARALLAX_RANK is not set"))
        << status.message();
  }
  const EnvironmentVariable world("PARALLAX_WORLD", "1");
  EXPECT_TRUE(Taken().status.ok()) << "a world of one needs no rank";
}

// Given values that cannot be taken, expect the place, and the options as the program gave
// them.
TEST(JobSettings, WrongValuesNameTheirPlace) {
  const EnvironmentVariable lease("PARALLAX_LEASE_MS", "two");
  parallax_options_t given = {};
  given.timeout_ms = 7;
  const Taken taken(given);
  EXPECT_EQ(taken.status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(taken.status, "open: ")) << taken.status.message();
  EXPECT_TRUE(has(taken.status, "PARALLAX_LEASE_MS")) << taken.status.message();
  EXPECT_EQ(taken.settings, nullptr);
  EXPECT_EQ(taken.options.lease_ms, 0u);
  EXPECT_EQ(taken.options.timeout_ms, 7u);
}

// Another number each time: what is warned of is said once in a process.
std::string fresh_number() {
  static int count = 0;
  return std::to_string(++count);
}

// Given names that nobody knows, expect the job to open and a warning to say them.
TEST(JobSettings, UnknownNamesAreWarnedOf) {
  HeardLines heard;
  const std::string none = "none" + fresh_number();
  const std::string misspelt_name = "PARALLAX_LEASE_MS" + fresh_number();
  const EnvironmentVariable misspelt(misspelt_name.c_str(), "100");
  const EnvironmentVariable device("PARALLAX_NET_DEVICE", none);
  EXPECT_TRUE(Taken().status.ok());
  std::string all;
  for (const std::string& line : heard.lines()) all += line + "\n";
  EXPECT_TRUE(has(all, misspelt_name)) << all;
  EXPECT_TRUE(has(all, "PARALLAX_LEASE_MS?")) << all;
  EXPECT_TRUE(has(all, "net_device is '" + none + "', from environment PARALLAX_NET_DEVICE"))
      << all;
}

parallax_status_t checked(const std::function<void(parallax_options_t*)>& change) {
  parallax_options_t options = {};
  change(&options);
  return check_options(options).code();
}

// Given each number on either side of its bound, expect this side alone to be taken.
TEST(JobSettings, NumbersUpToTheirBounds) {
  struct Bound {
    uint32_t parallax_options_t::*field;
    uint32_t last_good, first_bad;
  };
  const Bound bounds[] = {{&parallax_options_t::world, PARALLAX_WORLD_MAX, PARALLAX_WORLD_MAX + 1},
                          {&parallax_options_t::lease_ms, 50, 49},
                          {&parallax_options_t::lease_ms, 0, 1},
                          {&parallax_options_t::lease_ms, UINT32_MAX, 1},
                          {&parallax_options_t::plan_mode, PARALLAX_PLAN_AR, PARALLAX_PLAN_AR + 1},
                          {&parallax_options_t::plan_mode, PARALLAX_PLAN_PS, UINT32_MAX},
                          {&parallax_options_t::deterministic, 1, 2},
                          {&parallax_options_t::manual_progress, 1, 2},
                          {&parallax_options_t::compute_threads, 256, 257},
                          {&parallax_options_t::rank, 0, 1}};
  for (const Bound& bound : bounds) {
    SCOPED_TRACE(&bound - bounds);
    const auto with = [&](uint32_t value) {
      return checked([&](parallax_options_t* options) { options->*bound.field = value; });
    };
    EXPECT_EQ(with(bound.last_good), PARALLAX_OK);
    EXPECT_EQ(with(bound.first_bad), PARALLAX_INVALID);
  }
  for (const uint32_t rank : {6u, 7u, UINT32_MAX}) {
    EXPECT_EQ(checked([&](parallax_options_t* options) {
                options->rank = rank;
                options->world = 7;
              }),
              rank < 7 ? PARALLAX_OK : PARALLAX_INVALID);
  }
  EXPECT_EQ(checked([](parallax_options_t* options) { options->reserved = 1; }),
            PARALLAX_UNSUPPORTED);
}

// Given texts of every kind, expect names that print on a line, and transports that there
// are.
TEST(JobSettings, TextsThatAreTaken) {
  const auto host = [](const std::string& text) {
    return checked([&](parallax_options_t* options) { options->host = text.c_str(); });
  };
  EXPECT_EQ(host(std::string(PARALLAX_NAME_MAX, 'h')), PARALLAX_OK);
  EXPECT_EQ(host("g\u00fcnther"), PARALLAX_OK);
  EXPECT_EQ(host(std::string(PARALLAX_NAME_MAX + 1, 'h')), PARALLAX_INVALID);
  for (const char* wrong : {"", "\xff", "a\tb", "\x1b[31m"}) {
    EXPECT_EQ(host(wrong), PARALLAX_INVALID) << wrong;
  }
  const auto transport = [](const char* text) {
    return checked([&](parallax_options_t* options) { options->transport = text; });
  };
  for (const char* known : {"ucx", "tcp", "rdma", "shm"}) EXPECT_EQ(transport(known), PARALLAX_OK);
  for (const char* wrong : {"", "UCX", "roce", "ucx "}) {
    EXPECT_EQ(transport(wrong), PARALLAX_INVALID) << wrong;
  }
}

// Given more ranks than cores, expect a warning of a lease below two seconds, and of no
// other.
TEST(JobSettings, AShortLeaseOnSharedCoresIsWarnedOf) {
  constexpr int64_t kMs = kNanosecondsPerMillisecond;
  const size_t cores = std::thread::hardware_concurrency();
  if (cores == 0) GTEST_SKIP() << "this machine does not say how many cores it has";
  HeardLines heard;
  warn_of_short_lease(cores, 1999 * kMs);
  warn_of_short_lease(cores + 1, 2000 * kMs);
  EXPECT_TRUE(heard.lines().empty()) << heard.lines()[0];
  const size_t ranks = cores + std::stoul(fresh_number());
  warn_of_short_lease(ranks, 1999 * kMs);
  ASSERT_EQ(heard.lines().size(), 1u);
  EXPECT_TRUE(has(heard.lines()[0], std::to_string(ranks) + " ranks of this host share"))
      << heard.lines()[0];
  EXPECT_TRUE(has(heard.lines()[0], "1999 ms")) << heard.lines()[0];
}

}  // namespace
}  // namespace parallax
