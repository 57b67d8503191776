// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES, read. See visible_gpus.h.
#include "topology/visible_gpus.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/environment.h"

namespace parallax {

namespace {

// By PCI bus id, as Topology has them.
std::vector<size_t> gpus_of_cuda(const Topology& topology) {
  std::vector<size_t> gpus;
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    if (topology.gpus[i].vendor == "NVIDIA") gpus.push_back(i);
  }
  return gpus;
}

// Unless it is told otherwise CUDA numbers the fastest first.
bool may_be_ordered_otherwise(const Topology& topology, const std::vector<size_t>& gpus,
                              const CudaVariables& variables) {
  return variables.device_order != "PCI_BUS_ID" &&
         std::any_of(gpus.begin(), gpus.end(), [&](size_t gpu) {
           return topology.gpus[gpu].model != topology.gpus[gpus[0]].model;
         });
}

std::string_view trimmed(std::string_view word) {
  while (word.starts_with(' ')) word.remove_prefix(1);
  while (word.ends_with(' ')) word.remove_suffix(1);
  return word;
}

}  // namespace

CudaVariables cuda_variables() {
  CudaVariables variables = {.device_order = process_variable("CUDA_DEVICE_ORDER")};
  if (const char* const text = variable("CUDA_VISIBLE_DEVICES")) variables.visible_devices = text;
  return variables;
}

VisibleGpus visible_gpus(const Topology& topology, const CudaVariables& variables) {
  const std::vector<size_t> here = gpus_of_cuda(topology);
  VisibleGpus visible;
  if (may_be_ordered_otherwise(topology, here, variables)) {
    visible.doubt = "CUDA counts them so under CUDA_DEVICE_ORDER=PCI_BUS_ID";
  }
  if (!variables.visible_devices) return visible;
  visible.all = false;
  std::string_view list = *variables.visible_devices;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view word = trimmed(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (word.starts_with("GPU-") || word.starts_with("MIG-")) {
      return {.all = false, .gpus = {}, .doubt = "CUDA_VISIBLE_DEVICES names GPUs by UUID"};
    }
    size_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size() || number >= here.size()) break;
    const bool again =
        std::find(visible.gpus.begin(), visible.gpus.end(), here[number]) != visible.gpus.end();
    if (again) return {.all = false, .gpus = {}, .doubt = {}};
    visible.gpus.push_back(here[number]);
  }
  return visible;
}

}  // namespace parallax
