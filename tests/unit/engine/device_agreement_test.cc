// SPDX-License-Identifier: Apache-2.0
// Which variables devices sum among themselves, over whole engines.
#include "engine/device_agreement.h"

#include <gtest/gtest.h>

#include <memory>

#include "support/engine_world.h"
#include "support/words.h"
#include "unit/collectives/fake_communicator.h"

namespace parallax::testkit {
namespace {

TEST(DeviceAgreement, WhatHostMemoryIsNeededForIsSaid) {
  Variable variable;
  variable.rows = variable.row_elements = 1;
  variable.memory = PARALLAX_MEMORY_CUDA;
  EXPECT_EQ(DeviceAgreement::why_not(variable), "");
  for (uint32_t change = 0; change < 6; ++change) {
    Variable other = variable;
    if (change == 0) other.rule = PARALLAX_RULE_SGD;
    if (change == 1) other.rows_max = 1;
    if (change == 2) other.accumulate = true;
    if (change == 3) other.refuse_nonfinite = true;
    if (change == 4) other.reduction = PARALLAX_MEAN_CONTRIBUTORS;
    if (change == 5) other.reduction = PARALLAX_MEAN_WORLD, other.dtype = PARALLAX_I32;
    EXPECT_NE(DeviceAgreement::why_not(other), "") << change;
  }
}

class DeviceAgreementTest : public testing::Test {
 protected:
  struct Share {
    FormingDevices devices;
    PinnedPool pinned{devices, 0};
  };
  // What commit answers on each rank.
  std::vector<Status> commit(const std::vector<uint32_t>& hosts,
                             const std::function<void(uint32_t, Share&, EngineOptions*)>& adjust) {
    world_ = std::make_unique<EngineWorld>(
        WorldOptions{.hosts = hosts, .adjust = [&](uint32_t rank, EngineOptions* options) {
                       Share* share = shares_.emplace_back(std::make_unique<Share>()).get();
                       options->devices = [share](DeviceShare* given) {
                         *given = {&share->devices, &share->pinned};
                         return Status();
                       };
                       adjust(rank, *share, options);
                     }});
    parallax_variable_t variable = dense_variable("w", 2, 2);
    variable.memory = PARALLAX_MEMORY_CUDA;
    return world_->commit({&variable, 1});
  }
  std::string plan(uint32_t rank) { return world_->engine(rank).reports().plan_json(); }

  std::vector<std::unique_ptr<Share>> shares_;
  std::unique_ptr<EngineWorld> world_;
};

TEST_F(DeviceAgreementTest, AllCan) {
  for (const Status& status : commit({0, 0, 1}, [](uint32_t, Share&, EngineOptions*) {})) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_NE(plan(2).find("among the devices, by NCCL 2.28.9"), std::string::npos) << plan(2);
}

TEST_F(DeviceAgreementTest, OneThatCannotIsNamedToAll) {
  const auto committed = commit({0, 0, 1}, [](uint32_t rank, Share& share, EngineOptions*) {
    if (rank != 2) return;
    share.devices.support.there = false;
    share.devices.support.why = "NCCL was not found";
  });
  for (const Status& status : committed) EXPECT_TRUE(status.ok()) << status.message();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_NE(plan(rank).find("go by host memory: rank 2"), std::string::npos) << plan(rank);
    EXPECT_NE(plan(rank).find("NCCL was not found"), std::string::npos) << plan(rank);
  }
}

TEST_F(DeviceAgreementTest, RanksOfOneDeviceAreNamedToAll) {
  const auto one_device = [](uint32_t, Share& share, EngineOptions*) {
    share.devices.support.devices = 1;
    share.devices.support.places = {{.bus = "0000:3b:00.0", .uuid = {}}};
  };
  for (const Status& status : commit({0, 1, 1}, one_device)) EXPECT_TRUE(status.ok());
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_NE(plan(rank).find("ranks 1 and 2 have one device (0000:3b:00.0)"), std::string::npos)
        << plan(rank);
  }
  world_.reset();
  shares_.clear();
  // Hosts have devices of their own, and ranks of one go on to the next device.
  const auto committed = commit({0, 1, 1}, [](uint32_t, Share& share, EngineOptions*) {
    share.devices.support.devices = 2;
    share.devices.support.places = {{.bus = "0000:3b:00.0", .uuid = {}},
                                    {.bus = "0000:3c:00.0", .uuid = {}}};
  });
  for (const Status& status : committed) EXPECT_TRUE(status.ok());
  EXPECT_NE(plan(2).find("among the devices"), std::string::npos) << plan(2);
}

// Cut names of two devices could be one: the host sums, and says why.
TEST_F(DeviceAgreementTest, ADeviceWhoseNameIsTooLongIsSaid) {
  const std::string name(DevicePlace::kTextMax, 'u');
  for (const bool fits : {true, false}) {
    const auto committed = commit({0, 0}, [&](uint32_t rank, Share& share, EngineOptions*) {
      share.devices.support.places = {{.bus = {}, .uuid = name + (fits ? "" : "0")},
                                      {.bus = {}, .uuid = "of rank " + std::to_string(rank)}};
    });
    for (const Status& status : committed) EXPECT_TRUE(status.ok()) << status.message();
    const char* const words = fits ? "among the devices, by NCCL"
                                   : "device 0 says by more than 128 bytes which one it is";
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_NE(plan(rank).find(words), std::string::npos) << plan(rank);
    }
    world_.reset();
    shares_.clear();
  }
}

TEST_F(DeviceAgreementTest, ASettingOfOneRankIsEnough) {
  const auto committed = commit({0, 1}, [](uint32_t rank, Share&, EngineOptions* options) {
    options->nccl = rank == 1 ? AmongDevices::kNever : AmongDevices::kWorld;
  });
  for (const Status& status : committed) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_NE(plan(0).find("the setting nccl is off"), std::string::npos) << plan(0);
}

TEST_F(DeviceAgreementTest, SumsWithinHostsAreSaidAndWhyNot) {
  const auto by_host = [](uint32_t, Share&, EngineOptions* options) {
    options->nccl = AmongDevices::kHost;
  };
  const auto expect = [&](const std::vector<uint32_t>& hosts, const auto& adjust,
                          const std::string& words) {
    for (const Status& status : commit(hosts, adjust)) EXPECT_TRUE(status.ok()) << status.message();
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      EXPECT_NE(plan(rank).find(words), std::string::npos) << plan(rank);
    }
    world_.reset();
    shares_.clear();
  };
  expect({0, 0, 1}, by_host, "among the devices, by NCCL 2.28.9 and a driver of CUDA 13.0, within");
  expect({0, 0}, by_host, "among the devices, by NCCL 2.28.9 and a driver of CUDA 13.0\"");
  expect({0, 1}, by_host, "every host has one rank");
  expect(
      {0, 0, 1},
      [&](uint32_t rank, Share&, EngineOptions* options) {
        options->nccl = rank == 2 ? AmongDevices::kWorld : AmongDevices::kHost;
      },
      "host on some ranks and world on others");
  expect(
      {0, 0, 1},
      [&](uint32_t rank, Share& share, EngineOptions* options) {
        by_host(rank, share, options);
        options->deterministic = true;
      },
      "nccl is host, and deterministic is 1");
}

// Given sums in order, expect ranks of the communicator to be numbered as these are added.
TEST_F(DeviceAgreementTest, SumsInOrderAddHostByHost) {
  const auto committed = commit({0, 1, 0, 2, 1}, [](uint32_t, Share&, EngineOptions* options) {
    options->deterministic = true;
  });
  for (const Status& status : committed) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_NE(plan(0).find("among the devices, by NCCL 2.28.9"), std::string::npos) << plan(0);
}

TEST_F(DeviceAgreementTest, ARankThatCannotSumInOrderIsNamedToAll) {
  for (const uint32_t most : {0, 1}) {
    const auto committed = commit({0, 1}, [&](uint32_t rank, Share& share, EngineOptions* options) {
      options->deterministic = true;
      if (rank != 1) return;
      share.devices.support.ordered_ranks_max = most;
      share.devices.support.why_not_ordered = "it has no kernels";
    });
    for (const Status& status : committed) EXPECT_TRUE(status.ok()) << status.message();
    for (const char* words : {"go by host memory: rank 1", "deterministic is 1",
                              most == 0 ? "it has no kernels" : "at most 1 ranks"}) {
      EXPECT_NE(plan(0).find(words), std::string::npos) << plan(0);
    }
    world_.reset();
  }
}

TEST_F(DeviceAgreementTest, VersionsThatDoNotFitAreAMismatch) {
  const auto committed = commit({0, 1, 2}, [](uint32_t rank, Share& share, EngineOptions*) {
    if (rank == 2) share.devices.support.library_version = 21805;
  });
  for (const Status& status : committed) {
    EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
    for (const char* words : {"versions of NCCL do not fit", "rank 2", "2.28.9", "2.18.5"}) {
      EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    }
  }
}

}  // namespace
}  // namespace parallax::testkit
