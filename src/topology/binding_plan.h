// SPDX-License-Identifier: Apache-2.0
// BindingPlan: which PUs the threads of one rank's library go to, and which NUMA nodes its memory.
// Pure: from a Topology, the rank's place on its host, and the setting `bind`; nothing is bound
// here, so that machines of any size can be tried from a file. Any thread; nothing blocks.
//
// Automatically: the NUMA nodes of a host are shared out evenly to its ranks, in order; with fewer
// ranks than nodes a rank has several. A process that was bound before (by mpirun, Slurm, taskset)
// keeps within its PUs, on the node that has most of them; nodes that tie are shared out. Where
// there is no choice, one node or one rank, nothing is bound.
#ifndef PARALLAX_TOPOLOGY_BINDING_PLAN_H_
#define PARALLAX_TOPOLOGY_BINDING_PLAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/topology.h"

namespace parallax {

// The setting `bind`.
struct Bind {
  enum class Mode : uint8_t { kAuto, kNone, kNode, kPus };
  Mode mode = Mode::kAuto;
  uint32_t node = 0;          // kNode
  std::vector<uint32_t> pus;  // kPus: ascending, not empty

  bool operator==(const Bind&) const = default;
};

// "auto" or "", "none", "node:N", "pus:LIST". INVALID with what is allowed.
Status parse_bind(std::string_view text, Bind* bind);

struct BindingRequest {
  Bind bind;
  uint32_t local_rank = 0;   // of
  uint32_t local_world = 1;  // the ranks of this host
};

struct BindingPlan {
  std::vector<uint32_t> pus;    // for threads; ascending; empty: not bound
  std::vector<uint32_t> nodes;  // for memory; ascending; empty: by first touch
  std::string why;              // for people

  bool operator==(const BindingPlan&) const = default;
};

// INVALID: `bind` names a node or a PU that the topology lacks, or a node without an allowed PU.
Status plan_binding(const Topology& topology, const BindingRequest& request, BindingPlan* plan);

}  // namespace parallax

#endif  // PARALLAX_TOPOLOGY_BINDING_PLAN_H_
