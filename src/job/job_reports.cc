// SPDX-License-Identifier: Apache-2.0
// What a job reports of itself. See job.h.
#include <nlohmann/json.hpp>

#include "job/connection.h"
#include "job/job.h"
#include "topology/topology.h"

namespace parallax {

std::string Job::stats_report(uint32_t group) const {
  PeerMemoryCounts counts;
  std::string report = progress_->look(group, [&](const Engine& engine) {
    if (PeerMemory* const memory = transport_->peer_memory()) counts = memory->counts();
    return engine.reports().stats_json();
  });
  report.pop_back();  // of an object with some keys
  report += R"(,"buffers":)" + buffers_.json(counts);
  const Progress::Counts waits = progress_->counts();
  report += R"(,"waiting":)" + nlohmann::json{{"spun", waits.waits_spun},
                                              {"blocked", waits.waits_blocked},
                                              {"thread_rests", waits.thread_rests},
                                              {"thread_sleeps", waits.thread_sleeps},
                                              {"thread_passes", waits.thread_passes},
                                              {"bells", waits.bells}}
                                   .dump();
  return report + progress_->with_groups([](JobGroups& groups) { return groups.writes_key(); }) +
         "}";
}

std::string Job::topology_report() const {
  Topology topology;
  const Status found = binding_.machine(&topology);
  nlohmann::json report = connection_report(connection_, hosts_);
  report["machine"] = nlohmann::json::parse(topology_json(topology));
  report["binding"] = binding_.report();
  report["transport"] = transport_->name();
  report["waiting"] = spin_report(spin_);
  report["cuda"] = devices_->report();
  if (faulty_ != nullptr) report["faults"] = faults_report(*faulty_);
  if (!found.ok()) report["machine_error"] = found.message();
  return report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace parallax
