// SPDX-License-Identifier: Apache-2.0
// C ABI: collectives on any buffer. Contracts in parallax.h.
#include "capi/boundary.h"

using parallax::Engine;
using parallax::Request;
using parallax::Status;

extern "C" {

parallax_status_t parallax_collective(parallax_job_t* job, const parallax_collective_t* what,
                                      parallax_request_t** request) {
  return parallax::guarded_post("collective", request, [&]() -> Status {
    parallax_collective_t full = {};
    PARALLAX_RETURN_IF_ERROR(parallax::take_struct(what, "collective: what", &full));
    return parallax::post(job, "collective", request, [&](Engine& engine, Request** posted) {
      return engine.collective_calls().collective(full, posted);
    });
  });
}

}  // extern "C"
