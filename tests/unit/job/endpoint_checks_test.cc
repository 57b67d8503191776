// SPDX-License-Identifier: Apache-2.0
#include "job/endpoint_checks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace parallax {
namespace {

std::vector<Endpoint> endpoints(uint32_t world, const std::string& host) {
  std::vector<Endpoint> all(world);
  for (uint32_t rank = 0; rank < world; ++rank) {
    all[rank].rank = rank;
    all[rank].lease_ms = 5000;
    all[rank].host = host;
    all[rank].machine = "boot";
  }
  return all;
}

HostMap map_of(const std::vector<Endpoint>& all) {
  std::vector<std::string> names;
  for (const Endpoint& endpoint : all) names.push_back(endpoint.host);
  return map_hosts(names);
}

TEST(EndpointChecks, LeasesAreAlike) {
  std::vector<Endpoint> all = endpoints(3, "a");
  EXPECT_TRUE(check_leases(all).ok());
  all[2].lease_ms = 100;
  const Status differs = check_leases(all);
  EXPECT_EQ(differs.code(), PARALLAX_MISMATCH);
  EXPECT_EQ(differs.message(), "open: option lease_ms: rank 0 has 5000, rank 2 has 100");
  EXPECT_EQ(differs.facts().field, "lease_ms");
  EXPECT_EQ(differs.facts().peer, 2u);
  EXPECT_EQ(differs.facts().host, "a");
}

TEST(EndpointChecks, OneHostIsOneMachine) {
  std::vector<Endpoint> all = endpoints(3, "a");
  EXPECT_TRUE(check_hosts(all, map_of(all), nullptr).ok());
  all[1].machine = "other";
  const Status apart = check_hosts(all, map_of(all), nullptr);
  EXPECT_EQ(apart.code(), PARALLAX_INVALID);
  EXPECT_EQ(apart.facts().field, "host");
  EXPECT_EQ(apart.facts().peer, 1u);
}

TEST(EndpointChecks, SharedMemoryAloneReachesNoOtherHost) {
  std::vector<Endpoint> all = endpoints(2, "a");
  EXPECT_TRUE(check_hosts(all, map_of(all), "shm").ok());
  all[1].host = "b";
  const Status far = check_hosts(all, map_of(all), "shm");
  EXPECT_EQ(far.code(), PARALLAX_INVALID);
  EXPECT_EQ(far.facts().field, "transport");
}

TEST(EndpointChecks, OneTransportIsOfEveryRank) {
  std::vector<Endpoint> all = endpoints(3, "a");
  all[2].host = "b";
  all[0].carrier = all[1].carrier = NetworkCarrier::kRdma;
  const Status mixed = check_hosts(all, map_of(all), "rdma");
  EXPECT_EQ(mixed.code(), PARALLAX_MISMATCH);
  EXPECT_EQ(mixed.facts().field, "transport");
  EXPECT_EQ(mixed.facts().peer, 2u);
  EXPECT_NE(mixed.message().find("rank 0 takes \"rdma\", rank 2 (host b) takes \"tcp\""),
            std::string::npos)
      << mixed.message();
  all[2].carrier = NetworkCarrier::kUcx;
  EXPECT_EQ(check_hosts(all, map_of(all), "ucx").code(), PARALLAX_MISMATCH);
  all[2].carrier = NetworkCarrier::kRdma;
  EXPECT_TRUE(check_hosts(all, map_of(all), "rdma").ok());
}

}  // namespace
}  // namespace parallax
