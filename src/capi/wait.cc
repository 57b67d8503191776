// SPDX-License-Identifier: Apache-2.0
// Requests of the library's own. See wait.h.
#include "capi/wait.h"

#include <string>

namespace parallax {

Status wait_for(Job& job, Request* request, const char* call, uint32_t* part) {
  const uint32_t group = request->group;
  if (!job.progress().wait({&request, 1}, job.clock().now_ns() + job.timeout_ns())) {
    job.orphan(request);
    return job.progress()
        .look(group, [&](const Engine& engine) { return engine.reports().missing(*request); })
        .prefixed(std::string(call) + ": after " +
                  std::to_string(job.timeout_ns() / kNanosecondsPerMillisecond) + " ms ");
  }
  const Status status = request->status;
  if (part != nullptr) *part = request->part;
  const Status released =
      job.progress().call(group, [&](Engine& engine) { return engine.release(request); });
  return status.ok() ? released : status;
}

}  // namespace parallax
