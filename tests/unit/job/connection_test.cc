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

TEST(Connection, TheReportNamesHostsAndModule) {
  Connection connection;
  connection.carrier_why = "the default";
  connection.network = "tcp on lo";
  connection.module.path = "/lib/module.so";
  connection.module.tried = {"/other.so: no such file"};
  const nlohmann::json report = connection_report(connection, map_of({"a", "b", "a"}));
  EXPECT_EQ(report["hosts"][0]["name"], "a");
  EXPECT_EQ(report["hosts"][0]["ranks"], (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(report["hosts"][1]["ranks"], (std::vector<uint32_t>{1}));
  EXPECT_FALSE(report["hosts"][0].contains("domains"));
  EXPECT_EQ(report["network"], "tcp on lo");
  EXPECT_EQ(report["carrier_why"], "the default");
  EXPECT_EQ(report["module"]["path"], "/lib/module.so");
  EXPECT_EQ(report["module"]["tried"][0], "/other.so: no such file");
}

}  // namespace
}  // namespace parallax
