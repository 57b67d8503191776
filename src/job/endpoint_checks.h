// SPDX-License-Identifier: Apache-2.0
// EndpointChecks: what the ranks of a job must have alike, or may not have together, by what each
// of them told at the rendezvous. Every rank finds the same. Pure; any thread; nothing blocks.
#ifndef PARALLAX_JOB_ENDPOINT_CHECKS_H_
#define PARALLAX_JOB_ENDPOINT_CHECKS_H_

#include <vector>

#include "base/status.h"
#include "transport/endpoint.h"
#include "world/host_map.h"

namespace parallax {

// A heartbeat comes by its sender's lease and is judged by its receiver's. MISMATCH.
Status check_leases(const std::vector<Endpoint>& all);

// Ranks reach each other by one transport alone. Of ranks on several hosts. MISMATCH.
Status check_carriers(const std::vector<Endpoint>& all);

// One name makes ranks one host for the engine, whether or not they can share memory. `transport`
// is the caller's, or null. INVALID, MISMATCH.
Status check_hosts(const std::vector<Endpoint>& all, const HostMap& hosts, const char* transport);

}  // namespace parallax

#endif  // PARALLAX_JOB_ENDPOINT_CHECKS_H_
