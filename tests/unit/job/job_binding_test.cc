// SPDX-License-Identifier: Apache-2.0
// JobBinding on machines from files, where nothing is bound: what is refused before the rendezvous,
// and what each rank of a host is given after it. Real threads, tests/capi/binding_test.cc binds.
#include "job/job_binding.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "support/temporary_folder.h"
#include "support/words.h"
#include "support/xml_machine.h"

namespace parallax {
namespace {

using nlohmann::json;
using testkit::has;
using testkit::XmlMachine;
using testkit::XmlWriter;

// Two packages of one NUMA node with two PUs each: PUs 0-1 and 2-3.
class JobBindingTest : public testing::Test {
 protected:
  // What a rank of so many on its host is given; the status of whatever refuses it.
  Status bind(const std::string& bind, uint32_t local_rank, uint32_t local_world, json* report) {
    JobBinding binding;
    PARALLAX_RETURN_IF_ERROR(binding.prepare(bind, path_));
    PARALLAX_RETURN_IF_ERROR(binding.decide(local_rank, local_world));
    *report = binding.report();
    return {};
  }

  const testkit::TemporaryFolder folder_;
  const std::string path_ = folder_.write("machine.xml", XmlWriter::write(XmlMachine{}));
};

// Given one to four ranks, expect the nodes to be shared out in order, and nothing to be
// bound on a machine that is not this one.
TEST_F(JobBindingTest, RanksShareOutTheNodes) {
  struct Case {
    uint32_t local_rank, local_world;
    const char* pus;
    json nodes;
  };
  const Case cases[] = {{0, 1, "", json::array()}, {0, 2, "0-1", {0}}, {1, 2, "2-3", {1}},
                        {1, 4, "0-1", {0}},        {2, 4, "2-3", {1}}, {3, 4, "2-3", {1}}};
  for (const Case& each : cases) {
    for (const char* automatic : {"", "auto"}) {
      json report;
      const Status status = bind(automatic, each.local_rank, each.local_world, &report);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(report["bind"], "auto");
      EXPECT_EQ(report["local_rank"], each.local_rank);
      EXPECT_EQ(report["local_world"], each.local_world);
      EXPECT_EQ(report["pus"], each.pus);
      EXPECT_EQ(report["nodes"], each.nodes);
      EXPECT_EQ(report["topology"], path_);
      EXPECT_EQ(report["bound"], false);
      EXPECT_EQ(report["threads"], json::array());
      EXPECT_FALSE(report["why"].get<std::string>().empty());
      EXPECT_EQ(report["domain"]["node"], each.nodes.empty() ? json() : each.nodes[0]);
    }
  }
}

// Given a choice of the user's, expect it whichever rank asks, and its reason.
TEST_F(JobBindingTest, WhatIsAskedForIsGiven) {
  for (const auto& [asked, pus] : {std::pair{"node:1", "2-3"}, std::pair{"pus:0,2-3", "0,2-3"},
                                   std::pair{"pus:1", "1"}, std::pair{"none", ""}}) {
    for (const uint32_t local_rank : {0u, 3u}) {
      json report;
      const Status status = bind(asked, local_rank, 4, &report);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(report["bind"], asked);
      EXPECT_EQ(report["pus"], pus) << asked;
    }
  }
}

// Given what this machine cannot give, expect it to be refused before anybody is met.
TEST_F(JobBindingTest, WhatIsWrongIsToldBeforeTheMeeting) {
  for (const auto& [asked, says] :
       {std::pair{"node:2", "no such NUMA node"}, std::pair{"pus:4", "no PU 4"},
        std::pair{"pus:", "a list of PUs"}, std::pair{"everywhere", "it must be auto, none"},
        std::pair{"none ", "it must be auto, none"}}) {
    JobBinding binding;
    const Status status = binding.prepare(asked, path_);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << asked;
    EXPECT_TRUE(has(status, "open: bind is '" + std::string(asked) + "'")) << status.message();
    EXPECT_TRUE(has(status, says)) << status.message();
  }
  const std::string garbage = folder_.write("garbage.xml", "<topology>");
  for (const std::string& path : {garbage, folder_.path() + "/none.xml"}) {
    JobBinding binding;
    const Status status = binding.prepare("auto", path);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(has(status, "open: topology_xml is '" + path + "'")) << status.message();
  }
}

// Given the file, expect the machine in full to be the file's, and not this one.
TEST_F(JobBindingTest, TheMachineIsTheFiles) {
  JobBinding binding;
  ASSERT_TRUE(binding.prepare("none", path_).ok());
  ASSERT_TRUE(binding.decide(0, 1).ok());
  Topology topology;
  ASSERT_TRUE(binding.machine(&topology).ok());
  EXPECT_EQ(json::parse(topology_json(topology))["numa_nodes"].size(), 2u);
}

// Given `none` on this machine, expect a binding that binds nothing, without a look at it.
TEST_F(JobBindingTest, NoneOnThisMachine) {
  JobBinding binding;
  ASSERT_TRUE(binding.prepare("none", "").ok());
  ASSERT_TRUE(binding.decide(5, 9).ok());
  const json report = binding.report();
  EXPECT_EQ(binding.place(), NearMemory());
  EXPECT_TRUE(report["domain"]["node"].is_null());
  EXPECT_EQ(report["topology"], "this machine");
  EXPECT_EQ(report["pus"], "");
  EXPECT_EQ(report["bound"], false);
}

}  // namespace
}  // namespace parallax
