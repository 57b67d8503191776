// SPDX-License-Identifier: Apache-2.0
#include "topology/rails.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/nic_tables.h"
#include "support/xml_machine.h"
#include "topology/nic_ports.h"

namespace parallax {
namespace {

using testkit::infiniband_port;
using testkit::nic_with;
using testkit::roce_port;
using testkit::XmlMachine;
using testkit::XmlWriter;

using Names = std::vector<std::string>;

Topology read_for_rails(const XmlMachine& machine) {
  Topology topology;
  const Status status = discover({.hwloc_xml = XmlWriter::write(machine)}, &topology);
  EXPECT_TRUE(status.ok()) << status.message();
  return topology;
}

// Eight GPUs, two of them and two NICs of 400 Gbit/s on each switch; mlx5_8 is for storage, slower
// and on Ethernet.
Topology eight_nics() {
  Topology topology = read_for_rails(testkit::eight_gpus());
  for (Nic& nic : topology.nics) nic.ports = {infiniband_port()};
  topology.nics[8].ports = {roce_port()};
  return topology;
}

// Two packages, a NIC each, no GPU.
Topology two_nics() {
  XmlMachine machine;
  machine.pci.resize(2);
  for (uint32_t i = 0; i < 2; ++i) {
    machine.pci[i].push_back({.devices = {{.bus_id = i == 0 ? "0000:17:00.0" : "0000:b1:00.0",
                                           .type = "0200 [15b3:101d]",
                                           .openfabrics = "mlx5_" + std::to_string(i)}}});
  }
  Topology topology = read_for_rails(machine);
  for (Nic& nic : topology.nics) nic.ports = {roce_port()};
  return topology;
}

std::vector<Names> rails_named(const Topology& topology, const RailRequest& request) {
  std::vector<RankRails> ranks;
  const Status status = plan_rails(topology, request, &ranks);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<Names> names;
  for (const RankRails& rank : ranks) {
    names.emplace_back();
    for (const Rail& rail : rank.rails) names.back().push_back(rail_name(rail));
    EXPECT_FALSE(rank.why.empty());
  }
  return names;
}

TEST(Rails, ARankEachGpuHasANicEach) {
  const std::vector<Names> expected = {{"mlx5_0:1"}, {"mlx5_1:1"}, {"mlx5_2:1"}, {"mlx5_3:1"},
                                       {"mlx5_4:1"}, {"mlx5_5:1"}, {"mlx5_6:1"}, {"mlx5_7:1"}};
  EXPECT_EQ(rails_named(eight_nics(), {.local_ranks = 8}), expected);
  std::vector<RankRails> ranks;
  ASSERT_TRUE(plan_rails(eight_nics(), {.local_ranks = 8}, &ranks).ok());
  EXPECT_EQ(ranks[7].why, "nearest to GPU 0000:27:00.0");
}

TEST(Rails, FewerRanksHaveSeveral) {
  EXPECT_EQ(rails_named(eight_nics(), {.local_ranks = 2}),
            (std::vector<Names>{{"mlx5_0:1"}, {"mlx5_1:1"}}))
      << "GPUs 0 and 1 hang on one switch";
  EXPECT_EQ(rails_named(eight_nics(), {.local_ranks = 1}),
            (std::vector<Names>{{"mlx5_0:1", "mlx5_1:1"}}));
}

// The rank that asks, among eight: its first rail, and why.
std::string nearest_of(uint32_t local_rank, const char* visible, uint32_t local_ranks = 8) {
  std::vector<RankRails> ranks;
  RailRequest request = {.local_ranks = local_ranks, .local_rank = local_rank};
  request.cuda.visible_devices = visible;
  EXPECT_TRUE(plan_rails(eight_nics(), request, &ranks).ok());
  const RankRails& own = ranks[local_rank];
  return rail_name(own.rails[0]) + ", " + own.why + own.assumed;
}

// Given what launchers set, expect the NIC of the GPU that the rank will use, and by what it is
// taken for its.
TEST(Rails, TheGpusThatCudaShows) {
  // Two NICs are as near to it, and to its neighbour.
  const std::string last = "mlx5_6:1, nearest to GPU 0000:27:00.0, ";
  EXPECT_EQ(nearest_of(2, "7"), last + "the one that CUDA_VISIBLE_DEVICES shows");
  // Of a control group that shows each rank its own GPU alone, number 0 is another at each.
  EXPECT_NE(nearest_of(7, "0").find("nearest to GPU 0000:27:00.0, taken for that of local rank 7"),
            std::string::npos);
  EXPECT_EQ(nearest_of(0, "7,6,5,4,3,2,1,0"),
            last + "taken for that of local rank 0, by CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(nearest_of(0, "7", 1),
            last + "taken for that of local rank 0, by CUDA_VISIBLE_DEVICES");
  for (const char* none : {"", "-1", "3,3", "GPU-8f6c1a7e", "0,1"}) {
    EXPECT_NE(nearest_of(5, none).find("nearest to NUMA node 1, as "), std::string::npos) << none;
  }
  EXPECT_NE(nearest_of(5, "GPU-8f6c1a7e").find("names GPUs by UUID"), std::string::npos);
  std::vector<RankRails> ranks;
  ASSERT_TRUE(plan_rails(eight_nics(), {.local_ranks = 8}, &ranks).ok());
  EXPECT_EQ(ranks[3].assumed, ", taken for that of local rank 3");
}

TEST(Rails, MoreRanksThanGpusGoByNumaNode) {
  const std::vector<Names> named = rails_named(eight_nics(), {.local_ranks = 16});
  ASSERT_EQ(named.size(), 16u);
  EXPECT_EQ(named[0], Names{"mlx5_0:1"});
  EXPECT_EQ(named[4], Names{"mlx5_0:1"}) << "eight ranks share four";
  EXPECT_EQ(named[8], Names{"mlx5_4:1"}) << "of the other package";
  EXPECT_EQ(named[15], Names{"mlx5_7:1"});
}

TEST(Rails, WithoutGpusTheyGoByNumaNode) {
  EXPECT_EQ(rails_named(two_nics(), {.local_ranks = 2}),
            (std::vector<Names>{{"mlx5_0:1"}, {"mlx5_1:1"}}));
  EXPECT_EQ(rails_named(two_nics(), {.local_ranks = 4}),
            (std::vector<Names>{{"mlx5_0:1"}, {"mlx5_0:1"}, {"mlx5_1:1"}, {"mlx5_1:1"}}));
  EXPECT_EQ(rails_named(two_nics(), {.local_ranks = 1}),
            (std::vector<Names>{{"mlx5_0:1", "mlx5_1:1"}}))
      << "one rank has the whole machine, and both";
  std::vector<RankRails> ranks;
  ASSERT_TRUE(plan_rails(two_nics(), {.local_ranks = 2}, &ranks).ok());
  EXPECT_EQ(ranks[1].why, "nearest to NUMA node 1");
}

TEST(Rails, APortThatIsDownIsPassedBy) {
  Topology topology = two_nics();
  topology.nics[1].ports = {testkit::down_port()};
  EXPECT_EQ(rails_named(topology, {.local_ranks = 2}),
            (std::vector<Names>{{"mlx5_0:1"}, {"mlx5_0:1"}}));
  std::vector<RankRails> ranks;
  ASSERT_TRUE(plan_rails(topology, {.local_ranks = 2}, &ranks).ok());
  EXPECT_EQ(ranks[1].why, "none of those nearest to NUMA node 1 works");
  topology = eight_nics();
  topology.nics[1].ports = {testkit::down_port()};
  EXPECT_EQ(rails_named(topology, {.local_ranks = 8})[1], Names{"mlx5_0:1"}) << "its neighbour's";
}

TEST(Rails, SlowerPortsAndOtherLinkLayersAreNotMixedIn) {
  Topology topology = two_nics();
  topology.nics[1].ports[0].rate_mbit_s = 25'000;
  EXPECT_EQ(rails_named(topology, {.local_ranks = 1}), (std::vector<Names>{{"mlx5_0:1"}}));
  EXPECT_EQ(rails_named(topology, {.local_ranks = 2})[1], Names{"mlx5_1:1"}) << "the only one near";
  topology.nics[1].ports = {infiniband_port(9, 100'000)};
  EXPECT_EQ(rails_named(topology, {.local_ranks = 2})[0], Names{"mlx5_1:1"})
      << "InfiniBand at a tie";
}

TEST(Rails, PortsOfOneNic) {
  Topology topology = two_nics();
  topology.nics[0].ports.push_back(roce_port("eth3"));
  topology.nics[0].ports[1].number = 2;
  EXPECT_EQ(rails_named(topology, {.local_ranks = 2})[0], (Names{"mlx5_0:1", "mlx5_0:2"}));
  EXPECT_EQ(rails_named(topology, {.local_ranks = 4})[1], Names{"mlx5_0:2"});
}

TEST(Rails, ADeviceThatWasNamedIsTheOnlyOne) {
  EXPECT_EQ(rails_named(two_nics(), {.local_ranks = 2, .device = "mlx5_1"}),
            (std::vector<Names>{{"mlx5_1:1"}, {"mlx5_1:1"}}));
  EXPECT_EQ(rails_named(two_nics(), {.local_ranks = 1, .device = "mlx5_1:1"}),
            (std::vector<Names>{{"mlx5_1:1"}}));
  EXPECT_EQ(rails_named(eight_nics(), {.local_ranks = 1, .device = "mlx5_8"}),
            (std::vector<Names>{{"mlx5_8:1"}}))
      << "whatever else is faster";
}

TEST(Rails, SaysWhatWasAskedFor) {
  std::vector<RankRails> ranks;
  ASSERT_TRUE(plan_rails(eight_nics(), {.local_ranks = 1, .device = "mlx5_8"}, &ranks).ok());
  EXPECT_EQ(ranks[0].why, "mlx5_8 was asked for");
}

Status rails_refusal(const Topology& topology, const std::string& device = "") {
  std::vector<RankRails> ranks;
  return plan_rails(topology, {.local_ranks = 1, .device = device}, &ranks);
}

TEST(Rails, WhyThereIsNone) {
  Topology topology = two_nics();
  Status status = rails_refusal(topology, "mlx5_7");
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_EQ(status.message(), "there is no RDMA device mlx5_7, there are mlx5_0, mlx5_1");
  EXPECT_EQ(rails_refusal(topology, "mlx5_1:2").code(), PARALLAX_INVALID);
  topology.nics[0].ports = {testkit::down_port()};
  topology.nics[1].ports.clear();
  topology.nics[1].error = "Permission denied";
  status = rails_refusal(topology);
  EXPECT_EQ(status.code(), PARALLAX_UNSUPPORTED);
  EXPECT_EQ(status.message(),
            "no port of an RDMA device works: mlx5_0:1: it is down (physical state polling); "
            "mlx5_1: Permission denied");
  EXPECT_EQ(rails_refusal(topology, "mlx5_1").message(),
            "no port of an RDMA device works: mlx5_1: Permission denied");
  Topology none;
  none.no_nics_why = "no driver";
  EXPECT_EQ(rails_refusal(none).message(), "there is no RDMA device: no driver");
}

}  // namespace
}  // namespace parallax
