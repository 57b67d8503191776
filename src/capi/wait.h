// SPDX-License-Identifier: Apache-2.0
// Waits for requests that the library itself makes: for calls of the C ABI that block. Any thread;
// blocks up to the job's deadline.
#ifndef PARALLAX_CAPI_WAIT_H_
#define PARALLAX_CAPI_WAIT_H_

#include <cstdint>

#include "base/status.h"
#include "engine/request.h"
#include "job/job.h"

namespace parallax {

// What a request still waits for after so long: TIMEOUT. OK: it has completed meanwhile.
Status missing_of(Job& job, const Request& request, const char* call, int64_t waited_ns);

// The request's outcome; it is released, or, where it is still pending, the job's to release. Of a
// split that is OK, *part is the number of its part.
Status wait_for(Job& job, Request* request, const char* call, uint32_t* part = nullptr);

}  // namespace parallax

#endif  // PARALLAX_CAPI_WAIT_H_
