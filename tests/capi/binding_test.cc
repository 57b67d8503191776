// SPDX-License-Identifier: Apache-2.0
// The settings `bind` and `topology_xml` through the C ABI: which threads of this process run
// where, by the kernel's word, what the topology report says of it, and what is refused.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/environment_variable.h"
#include "support/temporary_folder.h"
#include "support/xml_machine.h"

namespace {

using nlohmann::json;
using parallax::Error;
using parallax::Job;
using parallax::sized;
using parallax::testkit::EnvironmentVariable;
using parallax::testkit::XmlMachine;
using parallax::testkit::XmlWriter;

constexpr uint32_t kComputeThreads = 2;

std::string line_of(const std::string& path, const std::string& start) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(start)) return line.substr(start.size());
  }
  return "";
}

// "0-3,8": where the kernel lets the threads of this name run.
std::vector<std::string> allowed_of(const std::string& name) {
  std::vector<std::string> lists;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (line_of(task.path() / "comm", "") != name) continue;
    lists.push_back(line_of(task.path() / "status", "Cpus_allowed_list:\t"));
  }
  return lists;
}

std::string allowed_here() {
  const std::string status = "/proc/self/task/" + std::to_string(gettid()) + "/status";
  return line_of(status, "Cpus_allowed_list:\t");
}

std::string last_pu() {
  const std::string list = allowed_here();
  return list.substr(list.find_last_of("-,") + 1);
}

parallax_options_t alone() {
  auto options = sized<parallax_options_t>();
  options.compute_threads = kComputeThreads;
  return options;
}

json report_of(const Job& job) { return json::parse(job.report(PARALLAX_REPORT_TOPOLOGY)); }

// Commits a variable and takes a step, so that arenas and tables are there.
void train(Job& job) {
  auto variable = sized<parallax_variable_t>();
  variable.name = "dense";
  variable.rows = 1024;
  variable.row_elements = 16;
  variable.rule = PARALLAX_RULE_SGD;
  const uint32_t id = job.register_variable(variable);
  job.commit();
  std::vector<float> values(variable.rows * variable.row_elements, 1.0f);
  const uint64_t step = job.step_begin();
  auto slice = sized<parallax_slice_t>();
  slice.variable = id;
  slice.values = values.data();
  job.push(step, {slice}).wait();
  auto end = sized<parallax_step_end_options_t>();
  end.learning_rate = 1;
  job.step_end(step, end).wait();
}

std::string refusal() {
  try {
    Job job(alone());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A file of its own, gone with it.
class File {
 public:
  explicit File(const std::string& text) : path_(folder_.write("machine.xml", text)) {}
  const std::string& path() const { return path_; }

 private:
  const parallax::testkit::TemporaryFolder folder_;
  const std::string path_;
};

TEST(BindingOfAJob, ThreadsOfTheLibraryRunWhereAsked) {
  const std::string before = allowed_here(), pu = last_pu();
  const EnvironmentVariable bind("PARALLAX_BIND", "pus:" + pu);
  Job job(alone());
  EXPECT_EQ(allowed_of("parallax-prog"), std::vector<std::string>{pu});
  EXPECT_EQ(allowed_of("parallax-comp"), std::vector<std::string>(kComputeThreads, pu));
  train(job);
  EXPECT_EQ(allowed_here(), before) << "the caller's thread is the caller's";
  const json report = report_of(job)["binding"];
  EXPECT_EQ(report["bind"], "pus:" + pu);
  EXPECT_EQ(report["pus"], pu);
  EXPECT_EQ(report["bound"], true);
  EXPECT_EQ(report["why"], "asked for");
  ASSERT_EQ(report["threads"].size(), 1 + kComputeThreads);
  const json bound = {{"name", "parallax-prog"}, {"pus", pu}};
  EXPECT_EQ(report["threads"].back(), bound);
}

TEST(BindingOfAJob, NoneBindsNothing) {
  const EnvironmentVariable bind("PARALLAX_BIND", "none");
  Job job(alone());
  train(job);
  EXPECT_EQ(allowed_of("parallax-prog"), std::vector<std::string>{allowed_here()});
  EXPECT_EQ(allowed_of("parallax-comp"), std::vector<std::string>(kComputeThreads, allowed_here()));
  const json report = report_of(job)["binding"];
  EXPECT_EQ(report["bound"], false);
  EXPECT_EQ(report["pus"], "");
  EXPECT_EQ(report["nodes"], json::array());
  EXPECT_EQ(report["memory"]["areas"], 0);
  EXPECT_EQ(report["threads"].size(), 1 + kComputeThreads);
}

// Where a container forbids mbind every area is counted too, as refused.
int areas(const json& binding) {
  const json& memory = binding["memory"];
  EXPECT_EQ(memory.contains("error"), memory.value("refused", 0) > 0);
  return memory["areas"].get<int>() + memory.value("refused", 0);
}

// Opens `world` ranks as threads; `body` is given each one's job.
template <typename Body>
void for_ranks(uint32_t world, Body body) {
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      auto options = alone();
      options.rank = rank;
      options.world = world;
      options.rendezvous = "inproc:binding_test";
      try {
        Job job(options);
        body(rank, job);
        job.close();
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// One rank reserves within its own calls, several when they hear from each other.
TEST(BindingOfAJob, MemoryGoesToTheNodeAskedFor) {
  const EnvironmentVariable bind("PARALLAX_BIND", "node:0");
  for (const uint32_t world : {1u, 2u}) {
    SCOPED_TRACE(world);
    for_ranks(world, [](uint32_t, Job& job) {
      const json opened = report_of(job)["binding"];
      EXPECT_EQ(opened["nodes"], json::array({0}));
      EXPECT_GT(areas(opened), 0) << "message chunks";
      train(job);
      EXPECT_GT(areas(report_of(job)["binding"]), areas(opened)) << "the table and its road";
    });
  }
}

// A table of which every step touches every row starts sharded and is mirrored once measured: its
// new place is reserved in the middle of a step, by whichever thread drives then.
TEST(BindingOfAJob, APlanChangeReservesOnTheNodeToo) {
  const EnvironmentVariable bind("PARALLAX_BIND", "node:0"), plan("PARALLAX_PLAN_AFTER_STEPS", "2");
  // Too large for the heap, which has no node of its own (base/arena.h).
  constexpr uint32_t kRows = 8192, kWidth = 4, kSteps = 12;
  for_ranks(2, [](uint32_t, Job& job) {
    auto variable = sized<parallax_variable_t>();
    variable.name = "rows";
    variable.rows = kRows;
    variable.row_elements = kWidth;
    variable.rows_max = kRows;
    variable.rule = PARALLAX_RULE_SGD;
    const uint32_t id = job.register_variable(variable);
    job.commit();
    const int committed = areas(report_of(job)["binding"]);
    std::vector<int64_t> ids(kRows);
    for (uint32_t row = 0; row < kRows; ++row) ids[row] = row;
    std::vector<float> values(kRows * kWidth, 1.0f);
    auto slice = sized<parallax_slice_t>();
    slice.variable = id;
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = ids.data();
    slice.row_count = kRows;
    std::vector<float> pulled(values.size());
    auto end = sized<parallax_step_end_options_t>();
    end.learning_rate = 1;
    for (uint32_t i = 0; i < kSteps; ++i) {
      const uint64_t step = job.step_begin();
      slice.values = pulled.data();
      job.pull(step, {slice}).wait();
      slice.values = values.data();
      job.push(step, {slice}).wait();
      job.step_end(step, end).wait();
    }
    const std::string settled = job.report(PARALLAX_REPORT_PLAN);
    EXPECT_NE(settled.find(R"("tag":"auto","placement":"mirrored")"), std::string::npos) << settled;
    EXPECT_GT(areas(report_of(job)["binding"]), committed) << settled;
  });
}

TEST(BindingOfAJob, WithoutThreadsThereIsNoneToBind) {
  const EnvironmentVariable bind("PARALLAX_BIND", "node:0");
  auto options = sized<parallax_options_t>();
  options.manual_progress = 1;
  Job job(options);
  train(job);
  EXPECT_EQ(report_of(job)["binding"]["threads"], json::array());
}

// Ranks as threads of one process are the ranks of one host.
TEST(BindingOfAJob, RanksShareOutAMachineFromAFile) {
  const File file(XmlWriter::write(parallax::testkit::eight_gpus()));
  const EnvironmentVariable xml("PARALLAX_TOPOLOGY_XML", file.path());
  constexpr uint32_t kWorld = 3;
  std::vector<json> reports(kWorld);
  for_ranks(kWorld, [&](uint32_t rank, Job& job) {
    train(job);
    reports[rank] = report_of(job);
  });
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    SCOPED_TRACE(rank);
    const json& binding = reports[rank]["binding"];
    EXPECT_EQ(binding["topology"], file.path());
    EXPECT_EQ(binding["local_rank"], rank);
    EXPECT_EQ(binding["local_world"], kWorld);
    EXPECT_EQ(binding["nodes"], json::array({rank < 2 ? 0 : 1}));
    EXPECT_EQ(binding["pus"], rank < 2 ? "0-3" : "4-7");
    EXPECT_EQ(binding["bound"], false) << "it is another machine";
    EXPECT_EQ(binding["memory"]["areas"], 0);
    EXPECT_EQ(binding["threads"][0]["pus"], "");
    EXPECT_EQ(reports[rank]["machine"]["gpus"].size(), 8u);
    EXPECT_EQ(reports[rank]["machine"]["gpus"][5]["nics"], json::array({"mlx5_4", "mlx5_5"}));
  }
}

XmlMachine one_package() {
  XmlMachine machine;
  machine.packages = 1;
  return machine;
}

TEST(BindingOfAJob, OnOneNodeThereIsNothingToDo) {
  const File file(XmlWriter::write(one_package()));
  const EnvironmentVariable xml("PARALLAX_TOPOLOGY_XML", file.path());
  Job job(alone());
  const json report = report_of(job);
  EXPECT_EQ(report["binding"]["why"], "the machine has one NUMA node");
  EXPECT_EQ(report["machine"]["nics"], json::array());
  EXPECT_EQ(report["machine"]["gpus"], json::array());
}

TEST(BindingOfAJob, WrongSettingsAreRefused) {
  const File file(XmlWriter::write(parallax::testkit::eight_gpus()));
  const EnvironmentVariable xml("PARALLAX_TOPOLOGY_XML", file.path());
  for (const auto& [value, says] :
       {std::pair{"node:2",
                  "bind is 'node:2': the machine has no such NUMA node, it has nodes 0-1"},
        std::pair{"pus:8", "bind is 'pus:8': the machine has no PU 8, it has 0-7"},
        std::pair{"pus:", "bind is 'pus:'; after pus: stands a list of PUs such as 0-3,8"},
        std::pair{"cpu0", "bind is 'cpu0'; it must be auto, none, node:N"}}) {
    const EnvironmentVariable bind("PARALLAX_BIND", value);
    EXPECT_NE(refusal().find(says), std::string::npos) << value << ": " << refusal();
    EXPECT_NE(refusal().find("bind is set by environment PARALLAX_BIND"), std::string::npos);
  }
}

TEST(BindingOfAJob, WrongFilesAreRefused) {
  const File garbage("<topology>"), empty("");
  for (const auto& [path, says] :
       {std::pair{garbage.path(),
                  "hwloc cannot read the XML; `lstopo --of xml` writes what it reads"},
        std::pair{empty.path(), "it is empty"}, std::pair{std::string("/tmp"), "it is not a file"},
        std::pair{std::string("/dev/zero"), "it is not a file"},
        std::pair{std::string("/tmp/no/such"), "no such file"}}) {
    const EnvironmentVariable xml("PARALLAX_TOPOLOGY_XML", path);
    const std::string message = refusal();
    EXPECT_NE(message.find("topology_xml is '" + path + "': "), std::string::npos) << message;
    EXPECT_NE(message.find(says), std::string::npos) << message;
  }
  if (geteuid() != 0) {
    ASSERT_EQ(chmod(garbage.path().c_str(), 0), 0);
    const EnvironmentVariable xml("PARALLAX_TOPOLOGY_XML", garbage.path());
    EXPECT_NE(refusal().find("Permission denied"), std::string::npos) << refusal();
  }
}

}  // namespace
