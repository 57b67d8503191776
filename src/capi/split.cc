// SPDX-License-Identifier: Apache-2.0
// C ABI: parts of a job. Contracts in parallax.h.
#include "capi/boundary.h"
#include "capi/wait.h"

using parallax::Engine;
using parallax::Request;
using parallax::Status;

extern "C" {

parallax_status_t parallax_split(parallax_job_t* job, const uint32_t* ranks, size_t count,
                                 parallax_job_t** part) {
  return parallax::guarded("split", [&]() -> Status {
    if (part == nullptr) return parallax::invalid("split: part is null").about_field("part");
    *part = nullptr;
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "split"));
    if (ranks == nullptr) return parallax::invalid("split: ranks is null").about_field("ranks");
    if (reinterpret_cast<uintptr_t>(ranks) % alignof(uint32_t) != 0) {
      return parallax::invalid("split: ranks is not aligned to 4 bytes").about_field("ranks");
    }
    if (count == 0 || count > PARALLAX_WORLD_MAX) {
      return parallax::invalid("split: count is " + std::to_string(count) + "; it must be 1.." +
                               std::to_string(PARALLAX_WORLD_MAX))
          .about_field("count");
    }
    auto handle = std::make_unique<parallax_job_t>();
    handle->job = job->job;
    Request* request = nullptr;
    PARALLAX_RETURN_IF_ERROR(job->job->progress().call(job->group, [&](Engine& engine) {
      return engine.job_calls().split({ranks, count}, &request);
    }));
    const Status met = parallax::wait_for(*job->job, request, "split", &handle->group);
    if (met.code() == PARALLAX_TIMEOUT) {
      // It stays under way until the job closes, which those that have not called may do too.
      PARALLAX_RETURN_IF_ERROR(job->job->progress().call(job->group, [&](Engine& engine) {
        engine.job_calls().splits().leave(*request);
        return Status();
      }));
    }
    PARALLAX_RETURN_IF_ERROR(met);
    job->job->hold(handle->group);
    *part = handle.release();
    return {};
  });
}

}  // extern "C"
