// SPDX-License-Identifier: Apache-2.0
// C ABI: memory that a job knows of. Contracts in parallax.h.
#include "capi/boundary.h"

using parallax::Status;

extern "C" {

parallax_status_t parallax_buffer_alloc(parallax_job_t* job, size_t bytes,
                                        const parallax_buffer_options_t* options, void** pointer) {
  return parallax::guarded("buffer_alloc", [&]() -> Status {
    if (pointer == nullptr) {
      return parallax::invalid("buffer_alloc: pointer is null").about_field("pointer");
    }
    *pointer = nullptr;
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "buffer_alloc"));
    parallax_buffer_options_t full = {};
    full.size = sizeof full;
    if (options != nullptr) {
      PARALLAX_RETURN_IF_ERROR(parallax::take_struct(options, "buffer_alloc: options", &full));
    }
    return job->job->allocate_buffer(bytes, full, pointer);
  });
}

parallax_status_t parallax_buffer_free(parallax_job_t* job, void* pointer) {
  return parallax::guarded("buffer_free", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "buffer_free"));
    if (pointer == nullptr) return {};
    return job->job->free_buffer(pointer);
  });
}

parallax_status_t parallax_buffer_register(parallax_job_t* job, void* pointer, size_t bytes) {
  return parallax::guarded("buffer_register", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "buffer_register"));
    return job->job->register_buffer(pointer, bytes);
  });
}

parallax_status_t parallax_buffer_unregister(parallax_job_t* job, void* pointer) {
  return parallax::guarded("buffer_unregister", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "buffer_unregister"));
    return job->job->unregister_buffer(pointer);
  });
}

}  // extern "C"
