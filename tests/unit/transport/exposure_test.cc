// SPDX-License-Identifier: Apache-2.0
// Whose UCX strangers may reach, and who has said that they may.
#include "transport/exposure.h"

#include <gtest/gtest.h>

#include <vector>

#include "transport/endpoint.h"

namespace parallax {
namespace {

// Given what program and environment say of the network, expect tcp to be seen wherever UCX may
// take it.
TEST(Exposure, follows_from_transports_and_devices) {
  struct Row {
    NetworkWish wish;
    NetworkReach expected;
  };
  const Row rows[] = {
      {{}, NetworkReach::kByChoice},
      {{.net_device = "lo"}, NetworkReach::kClosed},
      {{.net_device = "eth0"}, NetworkReach::kOpen},
      {{.net_device = "mlx5_0:1", .is_rdma = true}, NetworkReach::kClosed},
      {{.net_device = "mlx5_0:1", .is_rdma = true, .ucx_transports = "tcp"}, NetworkReach::kOpen},
      {{.ucx_transports = "rc,sm"}, NetworkReach::kClosed},
      {{.ucx_transports = "rc,tcp"}, NetworkReach::kByChoice},
      {{.ucx_transports = "all"}, NetworkReach::kByChoice},
      {{.ucx_transports = "^tcp"}, NetworkReach::kClosed},
      {{.ucx_transports = "^sm"}, NetworkReach::kByChoice},
      {{.ucx_transports = "^sm,tcp"}, NetworkReach::kClosed},
      {{.net_device = "eth0", .ucx_net_devices = "lo"}, NetworkReach::kClosed},
      {{.net_device = "lo", .ucx_net_devices = "eth0"}, NetworkReach::kOpen},
      {{.ucx_net_devices = "all"}, NetworkReach::kOpen},
      {{.net_device = "eth0", .ucx_transports = "ud"}, NetworkReach::kClosed},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(reach_of(row.wish), row.expected)
        << row.wish.net_device << " " << row.wish.ucx_transports << " " << row.wish.ucx_net_devices;
  }
}

// Two ranks; the second is on another machine, if `apart`.
std::vector<Endpoint> ranks(bool apart, NetworkReach reach, bool first_says, bool second_says) {
  std::vector<Endpoint> all(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    all[rank].rank = rank;
    all[rank].host = "h" + std::to_string(rank);
    all[rank].machine = apart && rank == 1 ? "b" : "a";
    all[rank].reach = reach;
    all[rank].says_ucx = rank == 0 ? first_says : second_says;
  }
  return all;
}

// Given ranks that strangers could reach, expect the word of each to be asked for; of no others.
TEST(Exposure, takes_the_word_of_every_rank) {
  struct Row {
    bool apart;
    NetworkReach reach;
    bool first_says, second_says;
    const char* refused;  // who is named; null: it goes on
  };
  const Row rows[] = {
      {false, NetworkReach::kByChoice, false, false, nullptr},
      {true, NetworkReach::kByChoice, false, false, "rank 0 (host h0)"},
      {true, NetworkReach::kByChoice, true, false, "rank 1 (host h1)"},
      {true, NetworkReach::kByChoice, false, true, "rank 0 (host h0)"},
      {true, NetworkReach::kByChoice, true, true, nullptr},
      {false, NetworkReach::kOpen, false, false, "rank 0 (host h0)"},
      {true, NetworkReach::kOpen, true, false, "rank 1 (host h1)"},
      {true, NetworkReach::kOpen, true, true, nullptr},
      {false, NetworkReach::kClosed, false, false, nullptr},
      {true, NetworkReach::kClosed, false, false, nullptr},
  };
  for (const Row& row : rows) {
    const Status status =
        check_exposure(ranks(row.apart, row.reach, row.first_says, row.second_says));
    ASSERT_EQ(status.ok(), row.refused == nullptr) << status.message();
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), PARALLAX_UNSUPPORTED);
    for (const char* word : {row.refused, "\"ucx\"", "PARALLAX_TRANSPORT=ucx", "run code"}) {
      EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    }
  }
}

// Given ranks whose own transport lets no stranger in, expect none to be asked for the word.
TEST(Exposure, asks_nothing_of_tcp) {
  std::vector<Endpoint> all = ranks(true, NetworkReach::kOpen, false, false);
  for (Endpoint& endpoint : all) endpoint.carrier = NetworkCarrier::kTcp;
  EXPECT_TRUE(check_exposure(all).ok());
  all[1].carrier = NetworkCarrier::kUcx;
  EXPECT_FALSE(check_exposure(all).ok());
}

}  // namespace
}  // namespace parallax
