// SPDX-License-Identifier: Apache-2.0
// VisibleGpus: which of a host's GPUs CUDA shows a process, by CUDA_VISIBLE_DEVICES. Pure but for
// cuda_variables(), which reads the environment. Any thread; nothing blocks.
#ifndef PARALLAX_TOPOLOGY_VISIBLE_GPUS_H_
#define PARALLAX_TOPOLOGY_VISIBLE_GPUS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "topology/topology.h"

namespace parallax {

// CUDA's variables of this process.
struct CudaVariables {
  std::optional<std::string> visible_devices = {};  // CUDA_VISIBLE_DEVICES; it may be set to ""
  std::string device_order = {};                    // CUDA_DEVICE_ORDER
};
CudaVariables cuda_variables();

struct VisibleGpus {
  bool all = true;                // no variable narrows them
  std::vector<size_t> gpus = {};  // of Topology::gpus, in the order in which CUDA numbers them
  // Why CUDA may number them in another order, or which they are is not known; "": they are known.
  std::string doubt = {};

  bool operator==(const VisibleGpus&) const = default;
};

// As CUDA reads its list: numbers count NVIDIA's GPUs, by PCI bus id; what is behind the first that
// is none is not looked at; a number that stands there twice makes all of it nothing. Names, by
// UUID, are not known here: then `gpus` is empty and `doubt` says so.
VisibleGpus visible_gpus(const Topology& topology, const CudaVariables& variables);

}  // namespace parallax

#endif  // PARALLAX_TOPOLOGY_VISIBLE_GPUS_H_
