// SPDX-License-Identifier: Apache-2.0
// Requests of the library's own. See wait.h.
#include "capi/wait.h"

#include <string>

namespace parallax {

Status missing_of(Job& job, const Request& request, const char* call, int64_t waited_ns) {
  const Status missing = job.progress().look(request.group, [&](const Engine& engine) {
    return request.done() ? Status() : engine.reports().missing(request);
  });
  if (missing.ok()) return missing;
  return missing.prefixed(std::string(call) + ": after " +
                          std::to_string(waited_ns / kNanosecondsPerMillisecond) + " ms ");
}

Status wait_for(Job& job, Request* request, const char* call, uint32_t* part) {
  const uint32_t group = request->group;
  const int64_t timeout_ns = job.timeout_ns();
  if (!job.progress().wait({&request, 1}, job.clock().now_ns() + timeout_ns)) {
    const Status missing = missing_of(job, *request, call, timeout_ns);
    if (!missing.ok()) {
      job.orphan(request);
      return missing;
    }
  }
  const Status status = request->status;
  if (part != nullptr) *part = request->part;
  const Status released =
      job.progress().call(group, [&](Engine& engine) { return engine.release(request); });
  return status.ok() ? released : status;
}

}  // namespace parallax
