// SPDX-License-Identifier: Apache-2.0
// Each finding about RDMA is provoked by a port table, or a folder, that has the trouble.
#include "tool/doctor_rdma.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "support/nic_tables.h"
#include "support/temporary_folder.h"

namespace parallax::tool {
namespace {

using testkit::gid_entry;
using testkit::infiniband_port;
using testkit::nic_with;
using testkit::roce_port;

RdmaFacts facts_of(std::vector<Nic> nics) {
  RdmaFacts facts;
  facts.topology.nics = std::move(nics);
  return facts;
}

RdmaFacts with_port(const NicPort& port) { return facts_of({nic_with("mlx5_0", {port})}); }

// "WARN text -> remedy" of each finding of that name.
std::vector<std::string> said(const RdmaFacts& facts, const std::string& check) {
  Findings findings;
  check_rdma(facts, &findings);
  std::vector<std::string> lines;
  for (const Finding& each : findings.list()) {
    EXPECT_EQ(each.remedy.empty(), each.verdict == Verdict::kOk) << each.check;
    if (each.check != check) continue;
    lines.push_back(verdict_name(each.verdict) + std::string(" ") + each.text + " -> " +
                    each.remedy);
  }
  return lines;
}

void expect(const RdmaFacts& facts, const std::string& check, const std::string& verdict,
            const std::vector<std::string>& words) {
  const std::vector<std::string> lines = said(facts, check);
  for (const std::string& line : lines) {
    bool all = line.starts_with(verdict + " ");
    for (const std::string& word : words) all = all && line.find(word) != std::string::npos;
    if (all) return;
  }
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  ADD_FAILURE() << "no finding " << check << " " << verdict << " " << words[0] << " in:\n" << all;
}

TEST(DoctorRdma, SoundPortsAreWell) {
  for (const NicPort& port : {infiniband_port(), roce_port()}) {
    const RdmaFacts facts = with_port(port);
    expect(facts, "rdma", "OK", {"mlx5_0:1"});
    expect(facts, "rdma_port", "OK", {"mlx5_0:1: active"});
    expect(facts, "rdma_permission", "OK", {"can be opened"});
    expect(facts, "rdma_ucx", "OK", {"verbs"});
    expect(facts, "rdma_mtu", "OK", {"MTU 4096"});
  }
  expect(with_port(roce_port()), "rdma_gid", "OK", {"UCX takes 3, ::ffff:10.1.2.3 (RoCE v2, IPv4"});
  EXPECT_TRUE(said(with_port(infiniband_port()), "rdma_gid").empty());
}

TEST(DoctorRdma, NoDevice) {
  RdmaFacts facts;
  facts.topology.no_nics_why = "no driver";
  expect(facts, "rdma", "OK", {"no RDMA device: no driver", "Ethernet"});
  facts.is_wanted = true;
  expect(facts, "rdma", "FAIL", {"no RDMA device: no driver", "unset PARALLAX_TRANSPORT"});
  EXPECT_TRUE(said(facts, "rdma_port").empty());
}

TEST(DoctorRdma, ADeviceThatWasNamedAndIsNotHere) {
  RdmaFacts facts = with_port(roce_port());
  facts.device = "mlx5_7";
  facts.is_wanted = true;
  expect(facts, "rdma", "FAIL", {"there is no RDMA device mlx5_7"});
}

TEST(DoctorRdma, PortDown) {
  RdmaFacts facts = with_port(testkit::down_port());
  expect(facts, "rdma_port", "WARN", {"mlx5_0:1: down (polling)", "check cable and switch"});
  expect(facts, "rdma", "WARN", {"no port of an RDMA device works"});
  facts.is_wanted = true;
  expect(facts, "rdma_port", "FAIL", {"mlx5_0:1: down"});
  facts.topology.nics.push_back(nic_with("mlx5_1", {infiniband_port()}));
  expect(facts, "rdma_port", "WARN", {"mlx5_0:1: down"});
  NicPort port = roce_port();
  port.state = "down";
  port.physical_state = "disabled";
  expect(with_port(port), "rdma_port", "WARN", {"ip link set eth2 up"});
  port = infiniband_port(0);
  port.state = "init";
  expect(with_port(port), "rdma_port", "WARN", {"init (link_up)", "subnet manager (opensm)"});
}

TEST(DoctorRdma, OnlyTheNamedPortCounts) {
  RdmaFacts facts = facts_of(
      {nic_with("mlx5_0", {testkit::down_port()}), nic_with("mlx5_1", {infiniband_port()})});
  facts.is_wanted = true;
  facts.device = "mlx5_0:1";
  expect(facts, "rdma_port", "FAIL", {"mlx5_0:1: down"});
  facts.device = "mlx5_1";
  EXPECT_EQ(said(facts, "rdma_port").size(), 1u);
}

TEST(DoctorRdma, AddressesOfRoceV1Alone) {
  NicPort port = roce_port();
  std::erase_if(port.gids, [](const NicGid& gid) { return gid.type == "roce_v2"; });
  expect(with_port(port), "rdma_gid", "WARN",
         {"RoCE v1 alone", "UCX takes 2, ::ffff:10.1.2.3", "cma_roce_mode"});
}

TEST(DoctorRdma, LinkLocalAddressesAlone) {
  NicPort port = roce_port();
  port.gids.resize(2);
  RdmaFacts facts = with_port(port);
  expect(facts, "rdma_gid", "WARN", {"is link-local", "ip addr add A.B.C.D/N dev eth2"});
  facts.is_wanted = true;
  expect(facts, "rdma_gid", "FAIL", {"is link-local"});
}

TEST(DoctorRdma, NoAddressOfIpv4) {
  NicPort port = roce_port();
  port.gids = {gid_entry(1, "fd00::3", "roce_v2", "eth2", 9000)};
  expect(with_port(port), "rdma_gid", "OK", {"no IPv4 address is there"});
}

TEST(DoctorRdma, NoAddress) {
  NicPort port = roce_port();
  port.gids.clear();
  expect(with_port(port), "rdma_gid", "WARN", {"it has no RoCE address", "ip addr add"});
}

TEST(DoctorRdma, AnIndexThatUcxWouldNotTake) {
  RdmaFacts facts = with_port(roce_port());
  for (const char* fine : {"", "auto", "3"}) {
    facts.gid_index = fine;
    EXPECT_EQ(said(facts, "rdma_gid").size(), 1u) << fine;
  }
  facts.gid_index = "0";
  expect(facts, "rdma_gid", "WARN",
         {"UCX_IB_GID_INDEX is 0, fe80::", "RoCE v1", "unset UCX_IB_GID_INDEX; UCX then takes 3"});
  facts.gid_index = "9";
  expect(facts, "rdma_gid", "WARN", {"has nothing there"});
  facts.gid_index = "3x";
  expect(facts, "rdma_gid", "WARN", {"which is no number"});
  facts.is_wanted = true;
  expect(facts, "rdma_gid", "FAIL", {"which is no number"});
}

TEST(DoctorRdma, MtusThatDiffer) {
  NicPort port = roce_port("eth2", 1500);
  expect(with_port(port), "rdma_mtu", "FAIL",
         {"MTU 4096, but eth2 has 1500, into which at most 1024", "ip link set eth2 mtu 9000"});
  port.mtu_bytes = 1024;
  expect(with_port(port), "rdma_mtu", "OK", {"MTU 1024, as eth2 has 1500"});
  port = roce_port();
  port.mtu_bytes = 1024;
  expect(with_port(port), "rdma_mtu", "WARN", {"MTU 1024, though eth2 has 9000", "4096"});
  for (NicGid& gid : port.gids) gid.net_mtu_bytes = 0;
  expect(with_port(port), "rdma_mtu", "WARN", {"not known here"});
}

TEST(DoctorRdma, FlowControlIsUnknown) {
  expect(with_port(roce_port()), "rdma_pfc_ecn", "WARN", {"unknown", "mlnx_qos -i eth2"});
  EXPECT_TRUE(said(with_port(infiniband_port()), "rdma_pfc_ecn").empty());
}

TEST(DoctorRdma, FilesThatCannotBeOpened) {
  RdmaFacts facts = with_port(infiniband_port());
  facts.no_files = "/dev/infiniband/uverbs0: Permission denied";
  expect(facts, "rdma_permission", "WARN", {"uverbs0: Permission denied", "chmod 666"});
  facts.is_wanted = true;
  expect(facts, "rdma_permission", "FAIL", {"uverbs0"});
}

TEST(DoctorRdma, UcxWithoutVerbs) {
  RdmaFacts facts = with_port(infiniband_port());
  facts.no_verbs = "UCX has no part for verbs: there is no /x/libuct_ib.so.0";
  expect(facts, "rdma_ucx", "WARN", {"without a word", "install UCX with verbs"});
}

TEST(DoctorRdma, WhichFilesAreClosed) {
  const testkit::TemporaryFolder folder;
  EXPECT_EQ(closed_files(folder.path()), folder.path() + " has no file uverbs*");
  EXPECT_EQ(closed_files(folder.path() + "/none"),
            folder.path() + "/none cannot be read: No such file or directory");
  const std::string file = folder.write("uverbs0", "");
  (void)folder.write("rdma_cm", "");
  EXPECT_EQ(closed_files(folder.path()), "");
  ASSERT_EQ(chmod(file.c_str(), 0), 0);
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  // In a child that is not root, who may open any file.
  constexpr unsigned kNobody = 65534;
  EXPECT_EXIT(
      {
        const bool dropped = geteuid() != 0 || (setgid(kNobody) == 0 && setuid(kNobody) == 0);
        const bool told = closed_files(folder.path()) == file + ": Permission denied";
        std::_Exit(dropped && told ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(DoctorRdma, WhichUcxHasVerbs) {
  const testkit::TemporaryFolder folder;
  EXPECT_EQ(ucx_without_verbs(folder.path()),
            "UCX has no part for verbs: there is no " + folder.path() + "/libuct_ib.so.0");
  (void)folder.write("libuct_ib.so.0", "no library");
  EXPECT_NE(ucx_without_verbs(folder.path()).find("UCX cannot load its part for verbs: "),
            std::string::npos);
}

TEST(DoctorRdma, CardsOfRanks) {
  RdmaFacts facts = with_port(roce_port());
  const RdmaCard expected = {.port = "mlx5_0:1",
                             .link_layer = "ethernet",
                             .gid = "roce_v2 IPv4",
                             .rate_mbit_s = 100'000,
                             .mtu_bytes = 4096};
  EXPECT_EQ(rdma_card(facts, 0, 1), expected);
  facts.topology.nics[0].ports[0].state = "down";
  EXPECT_EQ(rdma_card(facts, 0, 1).port, "");
  EXPECT_NE(rdma_card(facts, 0, 1).why, "");
}

TEST(DoctorRdma, RanksThatDoNotFit) {
  const RdmaCard own = rdma_card(with_port(roce_port()), 0, 1);
  struct Case {
    std::function<void(RdmaCard*)> change;
    const char* verdict;
    const char* words;
  };
  const Case cases[] = {
      {[](RdmaCard*) {}, "OK", "like mlx5_0:1"},
      {[](RdmaCard* card) { *card = {.why = "no driver"}; }, "FAIL", "no driver"},
      {[](RdmaCard* card) { card->link_layer = "infiniband"; }, "FAIL", "do not meet"},
      {[](RdmaCard* card) { card->gid = "roce_v1 IPv4"; }, "FAIL", "addresses are roce_v1"},
      {[](RdmaCard* card) { card->mtu_bytes = 1024; }, "WARN", "MTU 1024 there, 4096 here"},
      {[](RdmaCard* card) { card->rate_mbit_s = 25'000; }, "WARN", "rate 25 Gbit/s there"}};
  for (const Case& each : cases) {
    RdmaCard other = own;
    each.change(&other);
    for (const bool is_wanted : {true, false}) {
      Findings findings;
      compare_rdma(own, {{"rank 1 (host b)", other}}, is_wanted, &findings);
      ASSERT_EQ(findings.list().size(), 1u) << each.words;
      const Finding& found = findings.list()[0];
      EXPECT_EQ(found.check, "rdma_ranks");
      const std::string verdict = verdict_name(found.verdict);
      EXPECT_EQ(verdict, !is_wanted && each.verdict == std::string("FAIL") ? "WARN" : each.verdict);
      EXPECT_NE(found.text.find(each.words), std::string::npos) << found.text;
    }
  }
  Findings findings;
  compare_rdma({}, {{"rank 1 (host b)", own}}, true, &findings);
  EXPECT_TRUE(findings.list().empty()) << "what is missing here was said";
}

}  // namespace
}  // namespace parallax::tool
