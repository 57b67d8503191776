// SPDX-License-Identifier: Apache-2.0
// Reports: what a rank tells of itself to whoever asks: its plan and its counts as JSON, and what a
// pending request waits for. It reads the parts that it is made of and changes nothing. A view,
// made where it is needed. Engine's owner only.
#ifndef PARALLAX_ENGINE_REPORTS_H_
#define PARALLAX_ENGINE_REPORTS_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/broadcast.h"
#include "engine/collective_rounds.h"
#include "engine/cost_probe.h"
#include "engine/device_calls.h"
#include "engine/goodbye.h"
#include "engine/peer_traffic.h"
#include "engine/request_pool.h"
#include "engine/row_calls.h"
#include "engine/split_calls.h"
#include "group/group.h"
#include "group/plan_control.h"
#include "group/step_pipeline.h"
#include "group/trees.h"
#include "message/outbox.h"
#include "planner/explain.h"
#include "variable/registry.h"

namespace parallax {

class Reports {
 public:
  struct Parts {
    parallax_plan_mode_t plan_mode;
    std::string_view transport;  // its name
    const Registry& registry;
    const Group& group;
    const PlanControl& plan_control;
    const StepPipeline& pipeline;
    const Trees& trees;
    const Broadcast& broadcast;
    const Goodbye& goodbye;
    const RowCalls& row_calls;
    const DeviceCalls& device_calls;
    RegisteredMemory registered = {};
    const SplitCalls& splits;
    const CollectiveRounds& collectives;
    const RequestPool& requests;
    const Outbox& outbox;
    const PeerTraffic& traffic;
    const CostProbe& probe;
    bool forms_communicator = false;  // out of the job's: the commit waits for it
  };

  // All parts outlive this.
  explicit Reports(const Parts& parts) : parts_(parts) {}

  std::string plan_json() const;
  std::string stats_json() const;
  // Of all variables; as Group's.
  uint64_t reserved_bytes() const { return parts_.group.reserved_bytes(); }
  uint64_t touched_bytes() const { return parts_.group.touched_bytes(); }
  // What a pending request waits for: the end of the sentence of its TIMEOUT, and whom and what
  // that names.
  Status missing(const Request& request) const;

  uint64_t early_rows() const { return parts_.group.pulls().early_rows(); }
  // Times that anything had to grow after commit; 0 in steady state.
  uint64_t growth_count() const {
    return parts_.requests.growth_count() + parts_.outbox.growth_count() +
           parts_.group.growth_count();
  }

 private:
  std::vector<uint32_t> committed_ids() const;
  FusedFacts fused_facts(uint32_t id) const;
  struct MemoryOfAll {
    Group::MemoryUse all;
    std::map<uint32_t, uint64_t> of_devices;  // bytes, by device
  };
  nlohmann::json variables_json(MemoryOfAll* memory_of_all) const;

  // Each returns a part of the sentence, and notes the first rank and variable that it names.
  std::string describe_missing(const Request& request, ErrorFacts& about) const;
  std::string waiting_for(std::vector<uint32_t> ranks, const std::string& what,
                          ErrorFacts& about) const;
  std::string tree_missing(TreeKind kind, const std::string& call, ErrorFacts& about) const;
  std::string votes_missing(const std::string& call, ErrorFacts& about) const;
  std::string commit_missing(ErrorFacts& about) const;
  std::string describe_collective_missing(const Request& request, ErrorFacts& about) const;
  std::string describe_step_missing(const Request& request, ErrorFacts& about) const;
  std::string describe_sum_missing(const Request& request, ErrorFacts& about) const;

  const Parts parts_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_REPORTS_H_
