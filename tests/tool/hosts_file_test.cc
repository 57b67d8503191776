// SPDX-License-Identifier: Apache-2.0
// The file of hosts: which names are hosts.
#include "tool/hosts_file.h"

#include <gtest/gtest.h>

namespace parallax::tool {
namespace {

// Given names, expect those to be taken that ssh and a shell take for a host and nothing else.
TEST(HostsFile, takes_names_of_hosts_alone) {
  struct Row {
    const char* name;
    bool taken;
  };
  const Row rows[] = {
      {"gpu07", true},
      {"gpu07.cluster-a.example.org", true},
      {"10.0.0.7", true},
      {"me@gpu07", true},
      {"first.last_2@gpu-07", true},
      {"-oProxyCommand=id", false},
      {"-x", false},
      {"me@-x", false},
      {"me@-oProxyCommand", false},
      {"-l@gpu07", false},
      {"@gpu07", false},
      {"me@", false},
      {"@", false},
      {"a@b@c", false},
      {"a;id", false},
      {"$(id)", false},
      {"`id`", false},
      {"a b", false},
      {"a/b", false},
      {"a\x1b", false},
  };
  for (const Row& row : rows) {
    std::vector<HostLine> hosts;
    const Status status = parse_hosts(row.name, "hosts", &hosts);
    EXPECT_EQ(status.ok(), row.taken) << row.name << ": " << status.message();
    if (status.ok()) {
      EXPECT_EQ(hosts[0].name, row.name);
    }
  }
}

}  // namespace
}  // namespace parallax::tool
