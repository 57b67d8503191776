// SPDX-License-Identifier: Apache-2.0
// C ABI: requests. Contracts in parallax.h.
#include "capi/boundary.h"
#include "capi/waited_requests.h"

namespace parallax {

namespace {

Status wait_all(parallax_request_t* const* requests, size_t count, int64_t timeout_ms) {
  if (count == 0) return {};
  WaitedRequests waited("wait");
  PARALLAX_RETURN_IF_ERROR(waited.take(requests, count, timeout_ms));
  if (!waited.job().progress().wait_for(waited.all(), waited.timeout_ns())) {
    PARALLAX_RETURN_IF_ERROR(waited.missing(waited.all()));
  }
  return waited.outcome();
}

Status check_request(parallax_request_t* request, const char* call) {
  if (request == nullptr) {
    return invalid(std::string(call) + ": request is null").about_field("request");
  }
  return job_of(*from_c(request)).check_process(call);
}

}  // namespace

}  // namespace parallax

using parallax::Engine;
using parallax::Request;
using parallax::RequestKind;
using parallax::Status;

extern "C" {

parallax_status_t parallax_wait(parallax_request_t* const* requests, size_t count,
                                int64_t timeout_ms) {
  return parallax::guarded("wait", [&] { return parallax::wait_all(requests, count, timeout_ms); });
}

parallax_status_t parallax_request_test(parallax_request_t* request) {
  bool done = true;
  const parallax_status_t status = parallax::guarded("test", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_request(request, "test"));
    done = parallax::from_c(request)->done();
    return done ? parallax::from_c(request)->status : Status();
  });
  return done ? status : PARALLAX_PENDING;
}

parallax_status_t parallax_request_cancel(parallax_request_t* request) {
  return parallax::guarded("cancel", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_request(request, "cancel"));
    Request& cancelled = *parallax::from_c(request);
    return parallax::job_of(cancelled).progress().call(cancelled.group, [&](Engine& engine) {
      engine.cancel(cancelled);
      return Status();
    });
  });
}

const char* parallax_request_error(parallax_request_t* request) {
  if (request == nullptr || !parallax::from_c(request)->done()) return "";
  return parallax::from_c(request)->status.message().c_str();
}

parallax_status_t parallax_request_error_info(parallax_request_t* request,
                                              parallax_error_info_t* info) {
  return parallax::guarded("request_error_info", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_request(request, "request_error_info"));
    const Request& failed = *parallax::from_c(request);
    return parallax::give_struct(parallax::error_info_of(failed.done() ? failed.status : Status()),
                                 "request_error_info: info", info);
  });
}

parallax_status_t parallax_request_step(parallax_request_t* request, parallax_step_info_t* info) {
  return parallax::guarded("request_step", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_request(request, "request_step"));
    const Request& ended = *parallax::from_c(request);
    if (ended.kind != RequestKind::kStepEnd || !ended.done()) {
      return parallax::bad_state("request_step: the request is not a completed step_end");
    }
    if (ended.info.size == 0) {
      return parallax::bad_state("request_step: the step did not end: " + ended.status.message());
    }
    return parallax::give_struct(ended.info, "request_step: info", info);
  });
}

parallax_status_t parallax_request_rows(parallax_request_t* request, size_t index,
                                        const int64_t** ids, const void** values,
                                        uint64_t* row_count) {
  return parallax::guarded("request_rows", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_request(request, "request_rows"));
    if (ids == nullptr || values == nullptr || row_count == nullptr) {
      return parallax::invalid("request_rows: ids, values or row_count is null").about_field("ids");
    }
    const Request& reduced = *parallax::from_c(request);
    if (reduced.kind != RequestKind::kReduce || !reduced.done() || !reduced.status.ok()) {
      return parallax::bad_state("request_rows: the request is not a reduce completed OK");
    }
    if (index >= reduced.slices.size()) {
      return parallax::invalid("request_rows: index is " + std::to_string(index) +
                               ", the call had " + std::to_string(reduced.slices.size()) +
                               " slices")
          .about_field("index");
    }
    const parallax::RowsResult& rows = reduced.rows[index];
    *ids = rows.ids.data();
    *values = rows.values.data();
    *row_count = rows.ids.size();
    return {};
  });
}

parallax_status_t parallax_request_release(parallax_request_t* request) {
  if (request == nullptr) return PARALLAX_OK;
  return parallax::guarded("release", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_request(request, "release"));
    Request* released = parallax::from_c(request);
    parallax::Job* job = &parallax::job_of(*released);
    bool last = false;
    const Status status = job->release(released, &last);
    if (last) delete job;  // it was closed before
    return status;
  });
}

}  // extern "C"
