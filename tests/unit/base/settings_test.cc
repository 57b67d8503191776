// SPDX-License-Identifier: Apache-2.0
// Settings: precedence, every type's good and bad values, unknown names, and the table itself.
#include "base/settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "support/temporary_folder.h"

namespace parallax {
namespace {

constexpr const char* kNoFile = "/nonexistent/parallax.conf";

using Folder = testkit::TemporaryFolder;

Status load(Settings* settings, std::vector<std::string> environment) {
  return settings->load({.environment = std::move(environment), .system_file = kNoFile});
}

bool mentions(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (text.find(word) == std::string::npos) {
      ADD_FAILURE() << "no '" << word << "' in: " << text;
      return false;
    }
  }
  return true;
}

// Given nothing, expect the defaults, named as such, and options left alone.
TEST(Settings, are_defaults_when_nothing_is_given) {
  Settings settings;
  ASSERT_TRUE(load(&settings, {"PATH=/bin", "HOME=/nonexistent"}).ok());
  EXPECT_EQ(settings.value("lease_ms").number, 5000u);
  EXPECT_EQ(settings.value("lease_ms").source, SettingSource::kDefault);
  EXPECT_EQ(settings.value("plan_mode").text, "auto");
  parallax_options_t options = {};
  settings.apply(&options);
  EXPECT_EQ(options.lease_ms, 0u);
  EXPECT_EQ(options.host, nullptr);
  EXPECT_EQ(options.world, 0u);
  EXPECT_TRUE(settings.warnings().empty());
}

// Given one setting in all places, expect code > environment > the user's file > the system's.
TEST(Settings, follow_the_order_of_precedence) {
  const Folder folder;
  const std::string system = folder.write("system.conf",
                                          "lease_ms = 100\ntimeout_ms=200\n"
                                          "compute_threads = 3\nplan_after_steps = 4\n");
  folder.write(".parallax.conf", "lease_ms = 101\ntimeout_ms = 201\n# no\ncompute_threads = 5 # x");
  Settings settings;
  ASSERT_TRUE(settings
                  .load({.environment = {"HOME=" + folder.path(), "PARALLAX_LEASE_MS=102",
                                         "PARALLAX_TIMEOUT_MS=202"},
                         .system_file = system})
                  .ok());
  parallax_options_t options = {};
  options.lease_ms = 103;
  settings.apply(&options);
  EXPECT_EQ(options.lease_ms, 103u);
  EXPECT_EQ(settings.value("lease_ms").source, SettingSource::kCode);
  EXPECT_EQ(settings.value("lease_ms").text, "103");
  EXPECT_EQ(options.timeout_ms, 202u);
  EXPECT_EQ(settings.value("timeout_ms").where, "environment PARALLAX_TIMEOUT_MS");
  EXPECT_EQ(options.compute_threads, 5u);
  EXPECT_EQ(settings.value("compute_threads").where, folder.path() + "/.parallax.conf line 4");
  EXPECT_EQ(options.plan_after_steps, 4u);
  EXPECT_EQ(settings.value("plan_after_steps").source, SettingSource::kFile);
}

// Given PARALLAX_CONFIG_FILE, expect it to be the only file, and to have to be there.
TEST(Settings, read_the_file_that_is_named) {
  const Folder folder;
  folder.write(".parallax.conf", "lease_ms = 101\ntimeout_ms = 201\n");
  const std::string named = folder.write("job.conf", "lease_ms = 99\r\n");
  Settings settings;
  ASSERT_TRUE(load(&settings, {"HOME=" + folder.path(), "PARALLAX_CONFIG_FILE=" + named}).ok());
  EXPECT_EQ(settings.value("lease_ms").number, 99u);
  EXPECT_EQ(settings.value("timeout_ms").source, SettingSource::kDefault);
  const Status status = load(&settings, {"PARALLAX_CONFIG_FILE=/nonexistent/a.conf"});
  EXPECT_EQ(status.code(), PARALLAX_IO);
  mentions(status.message(), {"PARALLAX_CONFIG_FILE", "/nonexistent/a.conf", "No such file"});
}

// Given every type's good values, expect them as texts, numbers and fields.
TEST(Settings, take_good_values) {
  Settings settings;
  ASSERT_TRUE(load(&settings,
                   {"PARALLAX_PLAN_MODE=Hybrid", "PARALLAX_DETERMINISTIC=yes",
                    "PARALLAX_MEMORY_MAX_BYTES=3G", "PARALLAX_TRANSPORT=SHM", "PARALLAX_HOST=alpha",
                    "PARALLAX_NET_DEVICE=eth7", "PARALLAX_DEBUG_SUBSYS=^net,plan",
                    "PARALLAX_DEBUG=INFO", "PARALLAX_COMPUTE_THREADS=0",
                    "PARALLAX_LEASE_MS=", "PARALLAX_FAULTS=delay peer=1 ms=5"})
                  .ok());
  parallax_options_t options = {};
  settings.apply(&options);
  EXPECT_EQ(options.plan_mode, static_cast<uint32_t>(PARALLAX_PLAN_HYBRID));
  EXPECT_EQ(options.deterministic, 1u);
  EXPECT_EQ(options.memory_max_bytes, uint64_t{3} << 30);
  EXPECT_STREQ(options.transport, "shm");
  EXPECT_STREQ(options.host, "alpha");
  EXPECT_STREQ(options.net_device, "eth7");
  EXPECT_STREQ(options.faults, "delay peer=1 ms=5");
  EXPECT_EQ(settings.value("debug").number, 2u);
  EXPECT_EQ(settings.value("lease_ms").source, SettingSource::kDefault);  // empty: not set
}

// Given bad values, expect INVALID with place, name, value, range and remedy.
TEST(Settings, refuse_bad_values) {
  const struct {
    const char* entry;
    std::initializer_list<const char*> words;
  } kCases[] = {
      {"PARALLAX_LEASE_MS=49", {"PARALLAX_LEASE_MS", "'49'", "50..4294967295", "(ms)", "unset"}},
      {"PARALLAX_LEASE_MS=5s", {"'5s'"}},
      {"PARALLAX_LEASE_MS=-1", {"'-1'"}},
      {"PARALLAX_LEASE_MS= 7", {"' 7'"}},
      {"PARALLAX_TIMEOUT_MS=4294967296", {"1..4294967295"}},
      {"PARALLAX_TIMEOUT_MS=99999999999999999999999", {"PARALLAX_TIMEOUT_MS"}},
      {"PARALLAX_COMPUTE_THREADS=257", {"0..256"}},
      {"PARALLAX_MEMORY_MAX_BYTES=16777216T", {"'16777216T'"}},
      {"PARALLAX_MEMORY_MAX_BYTES=K", {"'K'"}},
      {"PARALLAX_MEMORY_MAX_BYTES=1KK", {"'1KK'"}},
      {"PARALLAX_PLAN_MODE=fast", {"'fast'", "auto, hybrid, ps, ar"}},
      {"PARALLAX_DETERMINISTIC=2", {"'2'", "0 or 1"}},
      {"PARALLAX_TRANSPORT=ofi", {"'ofi'", "ucx, tcp, shm"}},
      {"PARALLAX_DEBUG=loud", {"'loud'", "none, warn, info, debug, trace"}},
      {"PARALLAX_DEBUG_SUBSYS=net,wat", {"net,wat", "init, env, net"}},
      {"PARALLAX_WORLD=0", {"PARALLAX_WORLD", "1..1048576"}},
  };
  for (const auto& each : kCases) {
    Settings settings;
    const Status status = load(&settings, {each.entry});
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << each.entry;
    mentions(status.message(), each.words);
  }
}

// Given lines of a file that are wrong, expect the file and the line.
TEST(Settings, refuse_bad_lines) {
  Settings settings;
  Status status = settings.load_text("\n# fine\nlease_ms 100\n", "a.conf");
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  mentions(status.message(), {"a.conf line 3", "lease_ms 100", "name = value"});
  status = settings.load_text("lease_ms = x", "a.conf");
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  mentions(status.message(), {"a.conf line 1", "'x'", "remove the line"});
  status = settings.load_text("rank = 3", "a.conf");
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  mentions(status.message(), {"rank", "PARALLAX_RANK"});
  status = settings.load_text("lease_ms = x\nno line\ntimeout_ms = 70\n", "a.conf");
  mentions(status.message(), {"a.conf line 1", "'x'"});  // the first of them
  EXPECT_EQ(settings.value("timeout_ms").number, 70u) << "what is right is taken";
  EXPECT_EQ(settings.value("lease_ms").number, 5000u);
  EXPECT_EQ(settings.value("lease_ms").wrong, "a.conf line 1: 'x'");
  EXPECT_TRUE(settings.load_text("", "empty").ok());
  EXPECT_TRUE(settings.load_text("  = 3", "odd").ok());
  EXPECT_EQ(settings.warnings().size(), 1u);
}

// Given names that are none, expect warnings with the nearest, and the rest to be used.
TEST(Settings, warn_of_unknown_names) {
  Settings settings;
  ASSERT_TRUE(load(&settings, {"PARALLAX_LEASE_SM=1", "PARALLAX_QQQQ=2", "PARALLAXIS=3",
                               "PARALLAX_lease_ms=4", "PARALLAX_TIMEOUT_MS=77"})
                  .ok());
  ASSERT_EQ(settings.warnings().size(), 3u);
  mentions(settings.warnings()[0], {"PARALLAX_LEASE_SM", "did you mean PARALLAX_LEASE_MS?"});
  mentions(settings.warnings()[1], {"PARALLAX_QQQQ", "parallax info -c"});
  mentions(settings.warnings()[2], {"PARALLAX_lease_ms", "PARALLAX_LEASE_MS"});
  EXPECT_EQ(settings.value("timeout_ms").number, 77u);
}

int no_exchange(void*, const void*, void*, size_t) { return 1; }

// Given a rank in the environment, expect it only where the program says nothing of its place.
TEST(Settings, identify_a_rank_only_where_the_program_does_not) {
  const std::vector<std::string> environment = {"PARALLAX_RANK=2", "PARALLAX_WORLD=4",
                                                "PARALLAX_RENDEZVOUS=file:/d"};
  Settings taken;
  ASSERT_TRUE(load(&taken, environment).ok());
  parallax_options_t options = {};
  taken.apply(&options);
  EXPECT_EQ(options.rank, 2u);
  EXPECT_EQ(options.world, 4u);
  EXPECT_STREQ(options.rendezvous, "file:/d");

  Settings coded;
  ASSERT_TRUE(load(&coded, environment).ok());
  options = {};
  options.world = 2;  // rank 0 of 2, meant as such
  options.rendezvous = "inproc:x";
  coded.apply(&options);
  EXPECT_EQ(options.rank, 0u);
  EXPECT_EQ(options.world, 2u);
  EXPECT_STREQ(options.rendezvous, "inproc:x");
  EXPECT_EQ(coded.value("rank").source, SettingSource::kCode);

  Settings exchanged;
  ASSERT_TRUE(load(&exchanged, environment).ok());
  options = {};
  options.allgather = no_exchange;
  exchanged.apply(&options);
  EXPECT_EQ(options.world, 0u);
  EXPECT_EQ(options.rendezvous, nullptr);

  Settings carried;
  ASSERT_TRUE(load(&carried, environment).ok());
  const parallax_unique_id_t id = {};
  options = {};
  options.unique_id = &id;
  carried.apply(&options);
  EXPECT_EQ(options.world, 4u);
  EXPECT_EQ(options.rendezvous, nullptr);
}

// The table: names are unique, variables follow from them, defaults are allowed, fields are filled
// by at most one row, and the JSON has them all.
TEST(Settings, have_a_sound_table) {
  std::set<std::string> names;
  for (const SettingRow& row : setting_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(find_setting(row.name), &row);
    EXPECT_NE(row.sources, 0u) << row.name;
    EXPECT_GT(std::string(row.help).size(), 10u) << row.name;
    const int fields =
        (row.number32 != nullptr) + (row.number64 != nullptr) + (row.text != nullptr);
    EXPECT_EQ(fields, (row.sources & kSetInCode) != 0 ? 1 : 0) << row.name;
  }
  EXPECT_EQ(find_setting("no_such"), nullptr);
  const Settings settings;
  const nlohmann::json list = nlohmann::json::parse(settings.json());
  EXPECT_EQ(list.size(), setting_rows().size());
}

// docs/settings.md holds the table as it is.
TEST(Settings, are_documented) {
  std::ifstream file(std::string(PARALLAX_SOURCE_DIR) + "/docs/settings.md");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find(settings_markdown()), std::string::npos)
      << "docs/settings.md does not hold this table (parallax info --markdown):\n"
      << settings_markdown();
}

// What the environment is asked for: nothing reads a variable behind the table's back.
TEST(Settings, are_all_that_the_library_reads) {
  const std::regex ours(R"((getenv|variable)\s*\(\s*"PARALLAX_)");
  size_t files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(PARALLAX_SOURCE_DIR) + "/src")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cc" && extension != ".h") continue;
    ++files;
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    EXPECT_FALSE(std::regex_search(text, ours))
        << entry.path() << " reads the environment: make it a row of settings_table.cc";
  }
  EXPECT_GT(files, 50u);
}

// The Python package reads variables of the table alone, so that none is warned of.
TEST(Settings, hold_what_the_python_package_reads) {
  const std::regex variable(R"re(environ[.a-z]*[(\[]"(PARALLAX_[A-Z_]+)")re");
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(PARALLAX_SOURCE_DIR) +
                                                               "/bindings/python/libparallax")) {
    if (entry.path().extension() != ".py") continue;
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    for (std::sregex_iterator at(text.begin(), text.end(), variable), end; at != end; ++at) {
      ++found;
      Settings settings;
      ASSERT_TRUE(load(&settings, {(*at)[1].str() + "=x"}).ok());
      EXPECT_TRUE(settings.warnings().empty()) << entry.path() << " reads " << (*at)[1];
    }
  }
  EXPECT_GT(found, 0u);
}

// Given a refusal that names settings, expect the places that those were set at, and no other.
TEST(Settings, explain_where_a_refused_value_stands) {
  Settings settings;
  ASSERT_TRUE(load(&settings, {"PARALLAX_RANK=5", "PARALLAX_WORLD=2", "PARALLAX_HOST=a"}).ok());
  ASSERT_TRUE(settings.load_text("faults = wobble", "a.conf").ok());
  Status status = settings.explained(invalid("open: rank is 5, world is 2; ranks are 0..world-1"));
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_EQ(status.message(),
            "open: rank is 5, world is 2; ranks are 0..world-1; rank is set by environment "
            "PARALLAX_RANK; world is set by environment PARALLAX_WORLD");
  status = settings.explained(invalid("open: faults: rule 'wobble': no"));
  mentions(status.message(), {"faults is set by a.conf line 1"});
  for (const char* sentence :
       {"open: hosts, ranks", "open: there is no secret: give every rank one",
        "open: ranks on the host, of this world"}) {
    EXPECT_EQ(settings.explained(invalid(sentence)).message(), sentence);
  }
  EXPECT_EQ(settings.explained(internal("rank")).message(), "rank");
  parallax_options_t options = {};
  options.host = "b";
  settings.apply(&options);
  EXPECT_EQ(settings.explained(invalid("open: host")).message(), "open: host");
}

// Given a test's own variables, expect no warning.
TEST(Settings, pass_over_what_belongs_to_tests) {
  Settings settings;
  ASSERT_TRUE(load(&settings, {"PARALLAX_TEST_CC=cc"}).ok());
  EXPECT_TRUE(settings.warnings().empty());
}

// Given a change while the job is open, expect the same parser as everywhere, the new source, and
// sentences that say what to do instead.
TEST(Settings, change_while_a_job_is_open) {
  Settings settings;
  ASSERT_TRUE(load(&settings, {"PARALLAX_TIMEOUT_MS=70"}).ok());
  ASSERT_TRUE(settings.change("timeout_ms", "5000").ok());
  EXPECT_EQ(settings.value("timeout_ms").number, 5000u);
  EXPECT_EQ(settings.value("timeout_ms").source, SettingSource::kCode);
  EXPECT_EQ(settings.value("timeout_ms").where, "parallax_set");
  ASSERT_TRUE(settings.change("debug", "INFO").ok());
  EXPECT_EQ(settings.value("debug").text, "info");

  const auto refused = [&settings](const char* name, const char* text, parallax_status_t code,
                                   std::initializer_list<const char*> words) {
    const Status status = settings.change(name, text);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_TRUE(mentions(status.message(), words));
    EXPECT_FALSE(status.facts().field.empty());
  };
  refused("timeout_ms", "0", PARALLAX_INVALID,
          {"set: timeout_ms is '0'", "1..4294967295 (ms)", "nothing was changed"});
  refused("timeout_ms", "", PARALLAX_INVALID, {"timeout_ms is ''"});
  refused("debug_subsys", "net,milk", PARALLAX_INVALID, {"net,milk", "some of init, env"});
  refused("timeout", "5", PARALLAX_INVALID, {"'timeout' is not a setting", "mean timeout_ms?"});
  refused("PARALLAX_TIMEOUT_MS", "5", PARALLAX_INVALID, {"mean timeout_ms?"});
  refused("", "5", PARALLAX_INVALID, {"'' is not a setting"});
  refused(std::string(5000, 'x').c_str(), "5", PARALLAX_INVALID, {"is not a setting"});
  refused("lease_ms", "100", PARALLAX_UNSUPPORTED,
          {"lease_ms is fixed at open", "options of parallax_open", "PARALLAX_LEASE_MS"});
  refused("bind", "none", PARALLAX_UNSUPPORTED,
          {"bind is fixed at open; give it as PARALLAX_BIND"});
  EXPECT_EQ(settings.value("timeout_ms").number, 5000u);
  EXPECT_TRUE(settings.value("timeout_ms").wrong.empty());
  for (const SettingRow& row : setting_rows()) {
    const bool changes = (row.sources & kSetWhileOpen) != 0;
    EXPECT_EQ(setting_sources(row).find("parallax_set") != std::string::npos, changes) << row.name;
    // Options point into such texts as these.
    EXPECT_TRUE(!changes || row.text == nullptr) << row.name;
  }
}

}  // namespace
}  // namespace parallax
