// SPDX-License-Identifier: Apache-2.0
#include "job/network_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace parallax {
namespace {

parallax_options_t options_of(const char* device) {
  parallax_options_t options = {};
  options.net_device = device;
  return options;
}

Nic nic(const std::string& name, int32_t node, const std::vector<std::string>& states) {
  Nic made = {.name = name, .pci_bus_id = "", .numa_node = node, .ports = {}};
  for (const std::string& state : states) {
    const auto number = static_cast<uint32_t>(made.ports.size() + 1);
    made.ports.push_back({.number = number, .state = state, .link_layer = "infiniband"});
  }
  return made;
}

struct Asked {
  const char* device = nullptr;
  std::vector<int32_t> nodes = {};  // of the machine; empty: none is known
  uint32_t local_rank = 0;
  uint32_t local_ranks = 1;
  UcxVariables ucx = {};
  std::string rails = "auto";
};

Topology machine_of(const std::vector<Nic>& nics, const std::vector<int32_t>& nodes) {
  Topology topology;
  topology.nics = nics;
  for (const int32_t index : nodes) {
    NumaNode node;
    node.index = static_cast<uint32_t>(index);
    node.pu_indices = node.allowed = {2 * node.index, 2 * node.index + 1};
    node.pus = 2;
    topology.pus_allowed += node.pus;
    for (const Nic& each : nics) {
      if (each.numa_node == index) node.nics.push_back(each.name);
    }
    topology.numa_nodes.push_back(node);
  }
  return topology;
}

Status choose(const std::vector<Nic>& nics, const Asked& asked, NetworkChoice* choice) {
  const parallax_options_t options = options_of(asked.device);
  const NetworkRequest request = {.options = &options,
                                  .net_device_where = "code",
                                  .rails = asked.rails,
                                  .local_rank = asked.local_rank,
                                  .local_ranks = asked.local_ranks};
  return choose_rdma(request, asked.ucx, machine_of(nics, asked.nodes), choice);
}

// The device chosen, or the sentence that says why none.
std::string chosen(const std::vector<Nic>& nics, const Asked& asked = {}) {
  NetworkChoice choice;
  const Status status = choose(nics, asked, &choice);
  if (!status.ok()) return status.message();
  EXPECT_EQ(choice.transports, "rc,dc,ud");
  EXPECT_FALSE(choice.why.empty());
  return choice.device;
}

TEST(NetworkChoice, OfEthernetIsWhatIsNamedOrLoopbackOrUcxs) {
  NetworkChoice choice;
  parallax_options_t options = options_of("eth7");
  ASSERT_TRUE(choose_network({.options = &options, .net_device_where = "code"}, &choice).ok());
  EXPECT_EQ(choice.device, "eth7");
  EXPECT_EQ(choice.why, "net_device, from code");
  options.net_device = nullptr;
  ASSERT_TRUE(choose_network({.options = &options, .one_machine = true}, &choice).ok());
  EXPECT_EQ(choice.device, "lo");
  EXPECT_EQ(choice.transports, "");
  ASSERT_TRUE(choose_network({.options = &options,
                              .tcp_address_where = "environment PARALLAX_TCP_ADDRESS",
                              .one_machine = true},
                             &choice)
                  .ok());
  EXPECT_EQ(choice.device, "") << "any interface that has the address";
  EXPECT_EQ(choice.why, "tcp_address, from environment PARALLAX_TCP_ADDRESS");
  ASSERT_TRUE(choose_network({.options = &options}, &choice).ok());
  EXPECT_EQ(choice.device, "");
  EXPECT_EQ(choice.why, "of the default route, as net_device is not set");
  ASSERT_TRUE(choose_network({.carrier = NetworkCarrier::kUcx, .options = &options}, &choice).ok());
  EXPECT_EQ(choice.why, "the network library's own choice, as net_device is not set");
}

// Given UCX's own variables where nobody said which transport, expect a warning that they count for
// nothing, and none where somebody did or there are none.
TEST(NetworkChoice, WhatUcxWasToldIsNotLeftOutWithoutAWord) {
  parallax_options_t options = options_of(nullptr);
  const NetworkRequest request = {.options = &options};
  EXPECT_NE(ucx_left_out(request, {.transports = "rc,sm"}).find("UCX_TLS=rc,sm says nothing"),
            std::string::npos);
  EXPECT_TRUE(
      ucx_left_out(request, {.net_devices = "mlx5_0:1"}).starts_with("UCX_NET_DEVICES=mlx5_0:1"));
  EXPECT_EQ(ucx_left_out(request, {}), "");
  EXPECT_EQ(
      ucx_left_out({.carrier = NetworkCarrier::kRdma, .options = &options}, {.transports = "rc"}),
      "");
  options.transport = "tcp";
  EXPECT_EQ(ucx_left_out(request, {.transports = "rc"}), "");
}

// Given RDMA for no other reason than a device's name, expect a refusal to say so.
TEST(NetworkChoice, WhoNamedNoTransportIsToldWhyItIsRdma) {
  const std::vector<Nic> nics = {nic("mlx5_0", 0, {"active"})};
  const std::string why = "(\"rdma\" since net_device is 'mlx5_0:1', from code)";
  const std::string said = chosen(nics, {.device = "mlx5_0:1", .ucx = {.transports = "rc,sm"}});
  EXPECT_TRUE(said.ends_with(why)) << said;
  EXPECT_EQ(chosen(nics, {.ucx = {.transports = "rc,sm"}}).find(why), std::string::npos);
}

TEST(NetworkChoice, TheNearestActiveDevice) {
  const std::vector<Nic> nics = {nic("a", 0, {"active"}), nic("b", 1, {"down", "active"}),
                                 nic("c", 1, {"down"})};
  EXPECT_EQ(chosen(nics, {.nodes = {0, 1}, .local_rank = 0, .local_ranks = 2}), "a:1");
  EXPECT_EQ(chosen(nics, {.nodes = {0, 1}, .local_rank = 1, .local_ranks = 2}), "b:2");
  const Asked second = {.nodes = {0, 1}, .local_rank = 1, .local_ranks = 2};
  EXPECT_EQ(chosen({nic("a", 0, {"active"})}, second), "a:1") << "none is near: any";
}

TEST(NetworkChoice, RanksShareOutWhatIsAsNear) {
  const std::vector<Nic> nics = {nic("a", 0, {"active"}), nic("b", 0, {"active"}),
                                 nic("c", 1, {"active"})};
  EXPECT_EQ(chosen(nics, {.nodes = {0, 1}, .local_rank = 0, .local_ranks = 6}), "a:1");
  EXPECT_EQ(chosen(nics, {.nodes = {0, 1}, .local_rank = 1, .local_ranks = 6}), "b:1");
  EXPECT_EQ(chosen(nics, {.nodes = {0, 1}, .local_rank = 2, .local_ranks = 6}), "a:1");
  EXPECT_EQ(chosen(nics, {.nodes = {0, 1}, .local_rank = 3, .local_ranks = 6}), "c:1");
}

TEST(NetworkChoice, SaysWhatItChoseFromAndWhy) {
  const std::vector<Nic> nics = {nic("a", 0, {"active", "active"}), nic("b", 1, {"active"})};
  NetworkChoice choice;
  ASSERT_TRUE(choose(nics, {.nodes = {0, 1}, .local_rank = 1, .local_ranks = 2}, &choice).ok());
  EXPECT_EQ(choice.device, "b:1");
  EXPECT_EQ(choice.why, "of 3 active ports of this host: nearest to NUMA node 1");
  ASSERT_TRUE(choose({nic("a", 0, {"active", "down"})}, {}, &choice).ok());
  EXPECT_EQ(choice.why, "the only RDMA device that is active");
}

TEST(NetworkChoice, APortWithoutAnAddressIsNone) {
  std::vector<Nic> nics = {nic("a", 0, {"active"}), nic("b", 0, {"active"})};
  nics[0].ports[0].link_layer = "ethernet";
  nics[1].ports[0].link_layer = "infiniband";
  EXPECT_EQ(chosen(nics), "b:1");
  EXPECT_NE(chosen(nics, {.device = "a"}).find("it has no RoCE address"), std::string::npos);
}

TEST(NetworkChoice, WhatIsNamedIsTakenOrRefused) {
  const std::vector<Nic> nics = {nic("a", 0, {"active"}), nic("b", 1, {"init", "active"})};
  EXPECT_EQ(chosen(nics, {.device = "b", .nodes = {0}}), "b:2");
  EXPECT_EQ(chosen(nics, {.device = "a:1", .nodes = {1}}), "a:1");
  EXPECT_EQ(chosen(nics, {.device = "eth0"}),
            "open: transport is \"rdma\", but 'eth0' (code) is no RDMA device; there are: a port 1 "
            "is active, b port 1 is init, b port 2 is active (\"rdma\" since net_device is 'eth0', "
            "from code)");
  EXPECT_NE(chosen(nics, {.device = "b:3"}).find("'b:3' (code) is no port of it"),
            std::string::npos);
  EXPECT_NE(chosen(nics, {.device = "b:1"})
                .find("of 'b:1' (code) it is init (physical state unknown); a port becomes active"),
            std::string::npos);
}

TEST(NetworkChoice, NoActivePortIsNeverAnotherNetwork) {
  NetworkChoice choice;
  const Status none = choose({}, {}, &choice);
  EXPECT_EQ(none.code(), PARALLAX_IO);
  EXPECT_EQ(none.facts().field, "transport");
  EXPECT_NE(none.message().find("no RDMA device that libibverbs can see"), std::string::npos);
  EXPECT_NE(chosen({nic("a", 0, {})}).find("but a could not be opened: is /dev/infiniband there"),
            std::string::npos);
  EXPECT_NE(
      chosen({nic("a", 0, {"down"}), nic("b", 0, {"init"})})
          .find("no port of an RDMA device works: a:1: it is down (physical state unknown); b:1: "
                "it is init"),
      std::string::npos);
  EXPECT_EQ(choice.device, "");
}

// UCX's own variables win over ours: what they allow must be verbs.
TEST(NetworkChoice, UcxsVariablesMayNotLeadElsewhere) {
  const std::vector<Nic> nics = {nic("a", 0, {"active"}), nic("b", 1, {"active"})};
  for (const char* fine : {"rc", "ud_verbs", "rc_x,ud:aux,self", "ib,cuda_copy"}) {
    EXPECT_EQ(chosen(nics, {.device = "b", .ucx = {.transports = fine}}), "b:1") << fine;
  }
  for (const char* wrong : {"tcp", "rc,tcp", "all", "^tcp", "sm", "shm,rc"}) {
    EXPECT_NE(chosen(nics, {.ucx = {.transports = wrong}}).find(std::string("UCX_TLS=") + wrong),
              std::string::npos)
        << wrong;
  }
  EXPECT_EQ(chosen(nics, {.device = "a", .ucx = {.net_devices = "b:1,a:1"}}), "b:1,a:1");
  EXPECT_NE(chosen(nics, {.ucx = {.net_devices = "b:1,eth0"}})
                .find("'eth0' (UCX_NET_DEVICES) is no RDMA device"),
            std::string::npos);
  EXPECT_NE(chosen(nics, {.ucx = {.net_devices = "all"}}).find("'all' (UCX_NET_DEVICES)"),
            std::string::npos);
}

// All devices of a rank, "a:1 b:1"; or the sentence that says why there is none.
std::string rails_chosen(const std::vector<Nic>& nics, const Asked& asked) {
  NetworkChoice choice;
  const Status status = choose(nics, asked, &choice);
  if (!status.ok()) {
    EXPECT_NE(status.facts().field, "") << status.message();
    return status.message();
  }
  std::string all = choice.device;
  for (const std::string& each : choice.more_devices) all += " " + each;
  return all;
}

TEST(NetworkChoice, ARankUsesThePortsThatAreItsOwn) {
  const std::vector<Nic> nics = {nic("a", 0, {"active"}), nic("b", 0, {"active"}),
                                 nic("c", 1, {"active"}), nic("d", 1, {"down"})};
  EXPECT_EQ(rails_chosen(nics, {.nodes = {0, 1}, .local_rank = 0, .local_ranks = 2}), "a:1 b:1");
  EXPECT_EQ(rails_chosen(nics, {.nodes = {0, 1}, .local_rank = 1, .local_ranks = 2}), "c:1");
  EXPECT_EQ(rails_chosen(nics, {.nodes = {0, 1}, .local_rank = 1, .local_ranks = 4}), "b:1");
  EXPECT_EQ(rails_chosen(nics, {.nodes = {0, 1}}), "a:1 b:1 c:1");
  EXPECT_EQ(rails_chosen(nics, {.device = "b", .nodes = {0, 1}}), "b:1") << "it was named";
  EXPECT_EQ(rails_chosen(nics, {.ucx = {.net_devices = "b:1,a:1"}}), "b:1,a:1") << "as UCX does";
}

TEST(NetworkChoice, TheSettingSaysHowManyRails) {
  std::vector<Nic> nics;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) nics.push_back(nic(name, 0, {"active"}));
  EXPECT_EQ(rails_chosen(nics, {}), "a:1 b:1 c:1 d:1") << "by itself four at most";
  EXPECT_EQ(rails_chosen(nics, {.rails = "1"}), "a:1");
  EXPECT_EQ(rails_chosen(nics, {.rails = "3"}), "a:1 b:1 c:1");
  EXPECT_EQ(rails_chosen(nics, {.rails = "8"}), "a:1 b:1 c:1 d:1 e:1 f:1");
  for (const char* wrong : {"0", "9", "12", ",", "a,b,c,d,e,f,a,b,c"}) {
    EXPECT_NE(
        rails_chosen(nics, {.rails = wrong}).find("it must be auto, 1 to 8, or as many names"),
        std::string::npos)
        << wrong;
  }
}

TEST(NetworkChoice, TheSettingNamesRails) {
  const std::vector<Nic> nics = {nic("a", 0, {"active", "active"}), nic("b", 1, {"init"})};
  NetworkChoice choice;
  ASSERT_TRUE(choose(nics, {.rails = "a:2,a:1"}, &choice).ok());
  EXPECT_EQ(choice.device, "a:2");
  EXPECT_EQ(choice.more_devices, std::vector<std::string>{"a:1"});
  EXPECT_TRUE(choice.more_devices_asked) << "where one does not open, open fails";
  EXPECT_EQ(choice.why, "named by rails");
  NetworkChoice unasked;
  ASSERT_TRUE(choose(nics, {}, &unasked).ok());
  EXPECT_FALSE(unasked.more_devices_asked);
  const auto refused = [&nics](const Asked& asked, const std::string& words) {
    EXPECT_NE(rails_chosen(nics, asked).find(words), std::string::npos)
        << rails_chosen(nics, asked);
  };
  refused({.rails = "a:1,a"}, "rails is 'a:1,a', which names a:1 twice");
  refused({.rails = "a:1,b:1"}, "of 'b:1' (rails) it is init");
  refused({.rails = "a:1,eth0"}, "'eth0' (rails) is no RDMA device");
  refused({.device = "a", .rails = "a:1"}, "rails is 'a:1' and net_device names devices too");
  refused({.ucx = {.net_devices = "a:1"}, .rails = "a:1"}, "and UCX_NET_DEVICES names devices too");
}

// Given what the program and its environment say, or nothing, expect tcp wherever nobody asked for
// another way.
TEST(NetworkChoice, OfCarriersIsTcpUnlessAnotherIsAskedFor) {
  const auto carrier_of = [](const char* transport, bool device_is_rdma = false) {
    return choose_carrier(transport, "the program", device_is_rdma);
  };
  EXPECT_EQ(carrier_of(nullptr).carrier, NetworkCarrier::kTcp);
  EXPECT_EQ(carrier_of(nullptr).why, "the default");
  EXPECT_EQ(carrier_of(nullptr, true).carrier, NetworkCarrier::kRdma);
  EXPECT_EQ(carrier_of(nullptr, true).why, "net_device names an RDMA device");
  for (const bool device_is_rdma : {false, true}) {
    EXPECT_EQ(carrier_of("tcp", device_is_rdma).carrier, NetworkCarrier::kTcp);
    EXPECT_EQ(carrier_of("ucx", device_is_rdma).carrier, NetworkCarrier::kUcx);
    EXPECT_EQ(carrier_of("rdma", device_is_rdma).carrier, NetworkCarrier::kRdma);
    EXPECT_EQ(carrier_of("ucx", device_is_rdma).why, "transport, from the program");
  }
}

}  // namespace
}  // namespace parallax
