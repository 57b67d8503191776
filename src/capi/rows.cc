// SPDX-License-Identifier: Apache-2.0
// C ABI: rows of a variable with their optimizer state. Contracts in parallax.h.
#include "capi/boundary.h"

namespace parallax {

namespace {

parallax_status_t post_rows(parallax_job_t* job, const parallax_rows_t* rows, bool write,
                            parallax_request_t** request) {
  const char* call = write ? "write" : "read";
  return guarded_post(call, request, [&]() -> Status {
    parallax_rows_t full;
    PARALLAX_RETURN_IF_ERROR(take_struct(rows, write ? "write: rows" : "read: rows", &full));
    return post(job, call, request, [&](Engine& engine, Request** posted) {
      return engine.row_calls().post(full, write, posted);
    });
  });
}

}  // namespace

}  // namespace parallax

extern "C" {

parallax_status_t parallax_read(parallax_job_t* job, const parallax_rows_t* rows,
                                parallax_request_t** request) {
  return parallax::post_rows(job, rows, false, request);
}

parallax_status_t parallax_write(parallax_job_t* job, const parallax_rows_t* rows,
                                 parallax_request_t** request) {
  return parallax::post_rows(job, rows, true, request);
}

}  // extern "C"
