// SPDX-License-Identifier: Apache-2.0
#include "topology/visible_gpus.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

// One of AMD between those that CUDA counts.
Topology three_gpus(const std::vector<std::string>& models = {"H100", "H100", "H100"}) {
  Topology topology;
  for (const std::string& model : models) {
    topology.gpus.push_back({.pci_bus_id = {}, .vendor = "NVIDIA", .model = model, .nics = {}});
  }
  topology.gpus.insert(topology.gpus.begin() + 1,
                       {.pci_bus_id = {}, .vendor = "AMD", .model = "MI300", .nics = {}});
  return topology;
}

using Shown = std::vector<size_t>;

Shown shown_by(const char* list) {
  const VisibleGpus visible = visible_gpus(three_gpus(), {.visible_devices = list});
  EXPECT_FALSE(visible.all);
  EXPECT_EQ(visible.doubt, "");
  return visible.gpus;
}

TEST(VisibleGpus, AreReadAsCudaReadsThem) {
  EXPECT_TRUE(visible_gpus(three_gpus(), {}).all);
  EXPECT_EQ(shown_by("0"), Shown{0});
  EXPECT_EQ(shown_by("2,1,0"), (Shown{3, 2, 0})) << "of NVIDIA's alone";
  EXPECT_EQ(shown_by(" 1 , 0"), (Shown{2, 0}));
  EXPECT_EQ(shown_by("1,3,0"), Shown{2}) << "what is behind a number of none is not shown";
  EXPECT_EQ(shown_by("1,-1,0"), Shown{2});
  EXPECT_EQ(shown_by("1,x"), Shown{2});
  for (const char* none : {"", "-1", "NoDevFiles", "1,0,1", ",1", "99999999999999999999"}) {
    EXPECT_EQ(shown_by(none), Shown{}) << none;
  }
}

TEST(VisibleGpus, WhatIsNotKnownIsSaid) {
  for (const char* list : {"GPU-8f6c1a7e", "0,GPU-8f6c1a7e", "MIG-1"}) {
    const VisibleGpus visible = visible_gpus(three_gpus(), {.visible_devices = list});
    EXPECT_EQ(visible.gpus, Shown{}) << list;
    EXPECT_EQ(visible.doubt, "CUDA_VISIBLE_DEVICES names GPUs by UUID");
  }
  const Topology mixed = three_gpus({"H100", "A10", "H100"});
  EXPECT_NE(visible_gpus(mixed, {}).doubt.find("CUDA_DEVICE_ORDER=PCI_BUS_ID"), std::string::npos);
  EXPECT_EQ(visible_gpus(mixed, {.device_order = "PCI_BUS_ID"}).doubt, "");
  EXPECT_TRUE(visible_gpus({}, {}).all);
}

}  // namespace
}  // namespace parallax
