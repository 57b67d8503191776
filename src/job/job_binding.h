// SPDX-License-Identifier: Apache-2.0
// JobBinding: what a job does with topology/binding_plan.h: the settings `bind` and `topology_xml`
// are read and checked before the rendezvous; the binding is decided after it, when the rank's
// number among those of its host is known; the report tells the outcome. Owned by the job; its
// opener calls prepare() and decide(), any thread report().
#ifndef PARALLAX_JOB_JOB_BINDING_H_
#define PARALLAX_JOB_JOB_BINDING_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/binding.h"
#include "base/status.h"
#include "topology/binding_plan.h"
#include "topology/topology.h"

namespace parallax {

class JobBinding {
 public:
  // Both are the texts of the settings. With `xml_path` the machine is the one in that file, and
  // nothing is bound. INVALID, IO: the message names setting, value and remedy. May block for tens
  // of milliseconds on a machine with several NUMA nodes, or caches of the last level.
  Status prepare(const std::string& bind, const std::string& xml_path);
  // After the rendezvous, before the first thread starts.
  Status decide(uint32_t local_rank, uint32_t local_world);
  // From decide() on.
  Binding& binding() const { return *binding_; }

  // From decide() on, the NUMA nodes on which the job runs; empty: any.
  const std::vector<uint32_t>& nodes() const { return plan_.nodes; }

  // From decide() on: where this rank is bound to, or may run.
  const NearMemory& place() const { return place_; }

  // The machine in full, live or from the file. Asks the kernel: tens of milliseconds.
  Status machine(Topology* topology) const;
  // The key "binding" of the topology report.
  nlohmann::json report() const;

 private:
  std::string bind_text_;
  std::string xml_path_, xml_;  // both empty: the live machine
  BindingRequest request_;
  bool decidable_ = false;  // topology_ is known
  Topology topology_;       // without devices
  BindingPlan plan_;
  NearMemory place_;
  std::string place_why_ = "no memory of the machine is nearer to some ranks, as far as was looked";
  std::unique_ptr<Binding> binding_;
};

}  // namespace parallax

#endif  // PARALLAX_JOB_JOB_BINDING_H_
