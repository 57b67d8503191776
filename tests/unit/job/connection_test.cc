// SPDX-License-Identifier: Apache-2.0
#include "job/connection.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/version.h"

namespace parallax {
namespace {

HostMap map_of(const std::vector<std::string>& names) { return map_hosts(names); }

std::string lead(const std::string& rank_of_world) {
  return "rank " + rank_of_world + ": libparallax " + kVersionText + ", host 'a', ";
}

TEST(Connection, TheFirstLineSaysByWhatAndWhy) {
  Connection connection;
  EXPECT_EQ(start_line(connection, map_of({"a"}), 0),
            lead("0 of 1") + "1 host; transport inproc: one rank alone");
  connection.one_process = true;
  EXPECT_EQ(start_line(connection, map_of({"a", "b"}), 0),
            lead("0 of 2") + "2 hosts; transport inproc: the ranks are threads of one process");
  connection.one_process = false;
  EXPECT_EQ(start_line(connection, map_of({"a", "a", "a"}), 2),
            lead("2 of 3") + "1 host; transport shm to ranks 0-1 of this host");
  connection.carrier = "UCX 1.13.1";
  connection.carrier_why = "transport, from the program";
  connection.network = "tcp on lo";
  connection.network_why = "every rank is on this machine";
  EXPECT_EQ(start_line(connection, map_of({"a", "b", "a"}), 0),
            lead("0 of 3") +
                "2 hosts; transport shm to rank 2 of this host, UCX 1.13.1 between hosts "
                "(transport, from the program): tcp on lo "
                "(every rank is on this machine), to rank 1");
  EXPECT_TRUE(start_line(connection, map_of({"b", "a", "b", "b", "b"}), 1)
                  .ends_with(", 2 hosts; UCX 1.13.1 between hosts (transport, from the program): "
                             "tcp on lo (every rank is on this "
                             "machine), to ranks 0,2-4"));
  EXPECT_EQ(start_line(connection, map_of({"a", "b"}), 0),
            lead("0 of 2") +
                "2 hosts; UCX 1.13.1 between hosts (transport, from the program): tcp on lo (every "
                "rank is on this machine), to "
                "rank 1");
}

TEST(Connection, TheReportNamesDomainsOfMemory) {
  HostMap hosts = map_of({"a", "a", "b", "a"});
  set_domains(&hosts, std::vector<NearMemory>{{1, 0}, {0, 0}, {0, 0}, {1, 0}});
  const nlohmann::json report = connection_report({}, hosts);
  EXPECT_EQ(report["hosts"][0]["domains"], (std::vector<std::vector<uint32_t>>{{0, 3}, {1}}));
  EXPECT_EQ(report["hosts"][1]["domains"], (std::vector<std::vector<uint32_t>>{{2}}));
}

Connection over_rdma() {
  Connection connection;
  connection.carrier = "UCX 1.13.1";
  connection.carrier_why = "asked for";
  connection.network = "rc,dc,ud on mlx5_0:1";
  connection.network_why = "near";
  connection.ways.resize(7);
  for (const size_t rank : {2, 3, 5}) connection.ways[rank].text = "rc_verbs/mlx5_0:1 to mlx5_0:1";
  connection.ways[4] = {.text = "ud_verbs/mlx5_0:1 to mlx5_1:1", .lacks = "slow"};
  return connection;
}

// Given ranks that are reached in different ways, and one not yet, expect each way with its ranks.
TEST(Connection, TheFirstLineGroupsRanksByTheirWay) {
  EXPECT_EQ(
      start_line(over_rdma(), map_of({"a", "a", "b", "b", "c", "c", "d"}), 0),
      lead("0 of 7") +
          "4 hosts; transport shm to rank 1 of this host, UCX 1.13.1 between hosts (asked "
          "for): rc,dc,ud on mlx5_0:1 (near), to ranks 2-3,5: rc_verbs/mlx5_0:1 to mlx5_0:1; to "
          "rank 4: ud_verbs/mlx5_0:1 to mlx5_1:1; to rank 6");
}

TEST(Connection, WaysThatLackSomethingAreWarnedOf) {
  Connection connection = over_rdma();
  EXPECT_EQ(way_warnings(connection, 0),
            std::vector<std::string>({"open: rank 0 reaches rank 4 by ud_verbs/mlx5_0:1 to "
                                      "mlx5_1:1, of rc,dc,ud on mlx5_0:1: slow"}));
  connection.ways[6] = connection.ways[4];
  ASSERT_EQ(way_warnings(connection, 0).size(), 1u);
  EXPECT_NE(way_warnings(connection, 0)[0].find("ranks 4,6"), std::string::npos);
  connection.ways[4].lacks = connection.ways[6].lacks = "";
  EXPECT_TRUE(way_warnings(connection, 0).empty());
}

TEST(Connection, TheReportNamesHostsAndModule) {
  Connection connection;
  connection.carrier_why = "the default";
  connection.network = "tcp on lo";
  connection.ways = {{}, {.text = "tcp/lo to lo"}, {}};
  connection.module.path = "/lib/module.so";
  connection.module.tried = {"/other.so: no such file"};
  const nlohmann::json report = connection_report(connection, map_of({"a", "b", "a"}));
  EXPECT_EQ(report["hosts"][0]["name"], "a");
  EXPECT_EQ(report["hosts"][0]["ranks"], (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(report["hosts"][1]["ranks"], (std::vector<uint32_t>{1}));
  EXPECT_FALSE(report["hosts"][0].contains("domains"));
  EXPECT_EQ(report["network"], "tcp on lo");
  EXPECT_EQ(report["carrier_why"], "the default");
  EXPECT_EQ(report["ways"], (std::vector<std::string>{"", "tcp/lo to lo", ""}));
  EXPECT_EQ(report["module"]["path"], "/lib/module.so");
  EXPECT_EQ(report["module"]["tried"][0], "/other.so: no such file");
}

}  // namespace
}  // namespace parallax
