// SPDX-License-Identifier: Apache-2.0
// Boundary: what every function of the C ABI does around its body: structs of any size are copied
// in and out, exceptions are caught, and the message of a failure is kept for the calling thread.
// Any thread; nothing blocks.
#ifndef PARALLAX_CAPI_BOUNDARY_H_
#define PARALLAX_CAPI_BOUNDARY_H_

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "base/status.h"
#include "engine/request.h"
#include "job/job.h"
#include "parallax/parallax.h"

// A group of a job, as its caller holds it: the whole, or a part that parallax_split made.
struct parallax_job {
  parallax::Job* job = nullptr;  // owned by the handle of the whole
  uint32_t group = 0;            // JobGroups numbers them
};

namespace parallax {

// Keeps the message of a failure for parallax_last_error and returns its code.
parallax_status_t report_failure(const Status& failure) noexcept;
inline parallax_status_t report_status(const Status& status) noexcept {
  return status.ok() ? PARALLAX_OK : report_failure(status);
}
parallax_status_t report_exception(const char* call) noexcept;
// What a failure names, as the C ABI has it.
parallax_error_info_t error_info_of(const Status& status) noexcept;

// Runs a body that returns a Status; no exception leaves it.
template <typename Body>
parallax_status_t guarded(const char* call, Body body) noexcept {
  try {
    return report_status(body());
  } catch (...) {
    return report_exception(call);
  }
}

// To be called before a field of the struct is read.
template <typename Struct>
Status check_pointer(const Struct* pointer, const char* what) {
  if (pointer == nullptr) return invalid(std::string(what) + " is null");
  if (reinterpret_cast<uintptr_t>(pointer) % alignof(Struct) == 0) return {};
  return invalid(std::string(what) + " is not aligned to " + std::to_string(alignof(Struct)));
}

// A size that no version of the struct can have had, such as one that cuts a pointer in two.
template <typename Struct>
Status check_size(size_t size, const char* what) {
  constexpr size_t kSizeMax = 65536;
  if (size >= sizeof(size_t) && size <= kSizeMax && size % alignof(Struct) == 0) return {};
  return invalid(std::string(what) + ": size is " + std::to_string(size) +
                 "; set it to sizeof the struct");
}

// Copies a caller's struct into ours: a shorter one is filled up with zeros, a longer one must end
// in zeros. `what` names it: "open: options".
template <typename Struct>
Status take_struct(const Struct* in, const char* what, Struct* out) {
  PARALLAX_RETURN_IF_ERROR(check_pointer(in, what));
  const size_t size = in->size;
  PARALLAX_RETURN_IF_ERROR(check_size<Struct>(size, what));
  if (size == sizeof *out) {  // most callers'
    *out = *in;
    return {};
  }
  *out = Struct();
  std::memcpy(static_cast<void*>(out), in, size < sizeof *out ? size : sizeof *out);
  out->size = sizeof *out;
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (size_t i = sizeof *out; i < size; ++i) {
    if (bytes[i] != 0) {
      return unsupported(std::string(what) + ": byte " + std::to_string(i) +
                         " belongs to a newer version and is not zero; load a newer libparallax");
    }
  }
  return {};
}

// Copies ours into a caller's struct of any size, as far as it goes.
template <typename Struct>
Status give_struct(const Struct& in, const char* what, Struct* out) {
  PARALLAX_RETURN_IF_ERROR(check_pointer(out, what));
  const size_t size = out->size;
  PARALLAX_RETURN_IF_ERROR(check_size<Struct>(size, what));
  std::memcpy(static_cast<void*>(out), &in, size < sizeof in ? size : sizeof in);
  out->size = size;
  return {};
}

Status no_job(const char* call);
inline Status check_job(const parallax_job_t* job, const char* call) {
  return job == nullptr ? no_job(call) : job->job->check_process(call);
}

// The C ABI's request is the engine's, under another name.
inline parallax_request_t* to_c(Request* request) {
  return reinterpret_cast<parallax_request_t*>(request);
}
inline Request* from_c(parallax_request_t* request) { return reinterpret_cast<Request*>(request); }
inline Job& job_of(const Request& request) { return *static_cast<Job*>(request.owner); }

// Runs the body of a call that hands out a request, which is null unless the call was OK.
template <typename Body>
parallax_status_t guarded_post(const char* call, parallax_request_t** request, Body body) noexcept {
  if (request != nullptr) *request = nullptr;
  return guarded(call, body);
}

// Posts a call to the engine and hands out its request. `key`: as Progress::call.
template <typename Post>
Status post(parallax_job_t* job, const char* call, parallax_request_t** request, Post post_call,
            const uint32_t* key = nullptr) {
  PARALLAX_RETURN_IF_ERROR(check_job(job, call));
  if (request == nullptr) return invalid(std::string(call) + ": request is null");
  Request* posted = nullptr;
  PARALLAX_RETURN_IF_ERROR(job->job->progress().call(
      job->group,
      [&](Engine& engine) {
        const Status status = post_call(engine, &posted);
        if (status.ok()) posted->owner = job->job;
        return status;
      },
      key));
  *request = to_c(posted);
  return {};
}

}  // namespace parallax

#endif  // PARALLAX_CAPI_BOUNDARY_H_
