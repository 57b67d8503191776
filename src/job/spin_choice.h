// SPDX-License-Identifier: Apache-2.0
// SpinChoice: how this rank's waiters look for what they wait for (spin_time.h), by the settings
// spin_us and spin_yield and by what is found at open: the job's ranks on this machine, whichever
// hosts they say they are of, and the cores that they may use. A rank that looks without giving its
// core away keeps it from whom it waits for, where the two share it.
//
// Cores are those of all these ranks' affinities together. A quota of control groups counts once
// for all ranks of one group; ranks of several groups have the sum, and what a group above those
// allows them together is not looked at.
//
// Plain values; pure.
#ifndef PARALLAX_JOB_SPIN_CHOICE_H_
#define PARALLAX_JOB_SPIN_CHOICE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/settings.h"
#include "base/usable_cores.h"
#include "job/spin_time.h"
#include "transport/endpoint.h"

namespace parallax {

struct SpinChoice {
  SpinOptions options;
  uint32_t ranks = 1;              // of the job on this machine
  uint32_t cores = 0;              // that they may run on; 0: the kernel does not say
  uint64_t quota_thousandths = 0;  // of cores, where quotas leave them less than `cores`; else 0
  std::string why;                 // of options.yield
};

SpinOptions spin_options(const Settings& settings, bool one_host = false);

// Of the ranks on the machine of `rank`, which is first. `host_of`: by rank.
std::vector<UsableCores> cores_on_machine(std::span<const Endpoint> all,
                                          std::span<const uint32_t> host_of, uint32_t rank);

// `ranks`: as cores_on_machine has them, at least one.
SpinChoice choose_spin(const SpinOptions& asked, std::span<const UsableCores> ranks);

// The key "waiting" of the topology report.
nlohmann::json spin_report(const SpinChoice& choice);

}  // namespace parallax

#endif  // PARALLAX_JOB_SPIN_CHOICE_H_
