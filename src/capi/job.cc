// SPDX-License-Identifier: Apache-2.0
// C ABI: the life of a job, and its variables. Contracts in parallax.h.
#include "base/environment.h"
#include "base/log.h"
#include "base/settings.h"
#include "capi/boundary.h"
#include "capi/wait.h"
#include "rendezvous/unique_id.h"

namespace parallax {

namespace {

constexpr int64_t kLogFlushMs = 1000;  // a close waits as long for the log's callback

// The caller's wish stands in the field itself, which a shorter struct lacks.
bool asks_for_touched(const parallax_job_info_t* info) {
  constexpr size_t kEnd = offsetof(parallax_job_info_t, bytes_touched) + sizeof info->bytes_touched;
  return info != nullptr && reinterpret_cast<uintptr_t>(info) % alignof(parallax_job_info_t) == 0 &&
         info->size >= kEnd && info->bytes_touched == 1;
}

}  // namespace

}  // namespace parallax

using parallax::Engine;
using parallax::Status;

extern "C" {

parallax_status_t parallax_unique_id(parallax_unique_id_t* id) {
  return parallax::guarded("unique_id", [&]() -> Status {
    if (id == nullptr) return parallax::invalid("unique_id: id is null").about_field("id");
    parallax::Settings settings;
    const Status loaded = settings.load({.environment = parallax::process_environment()});
    if (!loaded.ok()) return {loaded.code(), "unique_id: " + loaded.message()};
    return parallax::make_unique_id(settings.value("net_device").text, id);
  });
}

parallax_status_t parallax_open(const parallax_options_t* options, parallax_job_t** job) {
  return parallax::guarded("open", [&]() -> Status {
    if (job == nullptr) return parallax::invalid("open: job is null").about_field("job");
    *job = nullptr;
    parallax_options_t full;
    PARALLAX_RETURN_IF_ERROR(parallax::take_struct(options, "open: options", &full));
    auto handle = std::make_unique<parallax_job_t>();
    std::unique_ptr<parallax::Job> opened;
    PARALLAX_RETURN_IF_ERROR(parallax::Job::open(full, &opened));
    handle->job = opened.release();
    *job = handle.release();
    return {};
  });
}

parallax_status_t parallax_register(parallax_job_t* job, const parallax_variable_t* variable,
                                    uint32_t* id) {
  return parallax::guarded("register", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "register"));
    if (id == nullptr) return parallax::invalid("register: id is null").about_field("id");
    parallax_variable_t full;
    PARALLAX_RETURN_IF_ERROR(parallax::take_struct(variable, "register: variable", &full));
    job->job->devices().prepare(full);
    return job->job->progress().call(
        job->group, [&](Engine& engine) { return engine.job_calls().register_variable(full, id); });
  });
}

parallax_status_t parallax_commit(parallax_job_t* job) {
  return parallax::guarded("commit", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "commit"));
    parallax::Request* request = nullptr;
    PARALLAX_RETURN_IF_ERROR(job->job->progress().call(
        job->group, [&](Engine& engine) { return engine.job_calls().commit(&request); }));
    const Status committed = parallax::wait_for(*job->job, request, "commit");
    if (committed.code() != PARALLAX_TIMEOUT) return committed;
    const Status left = job->job->progress().call(job->group, [](Engine& engine) {
      engine.job_calls().leave_commit();
      return Status();
    });
    return left.ok() ? committed : left;
  });
}

parallax_status_t parallax_abort(parallax_job_t* job, const char* reason) {
  return parallax::guarded("abort", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "abort"));
    return job->job->progress().call(job->group, [&](Engine& engine) {
      engine.job_calls().abort(reason == nullptr ? "" : reason);
      return Status();
    });
  });
}

parallax_status_t parallax_close(parallax_job_t* job) {
  if (job == nullptr) return PARALLAX_OK;
  return parallax::guarded("close", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "close"));
    if (job->group != 0) {
      const std::unique_ptr<parallax_job_t> part(job);
      return part->job->close_part(part->group);
    }
    const uint32_t parts = job->job->part_count();
    if (parts > 0) {
      return parallax::bad_state("close: parts that parallax_split made are open, " +
                                 std::to_string(parts) + " of them; close them first");
    }
    const std::unique_ptr<parallax_job_t> handle(job);
    std::unique_ptr<parallax::Job> closing(job->job);
    const Status status = closing->close();
    // Requests not released yet keep the job alive; releasing the last one frees it.
    if (!closing->abandon()) [[maybe_unused]]
      parallax::Job* kept = closing.release();
    parallax::log_flush(parallax::kLogFlushMs);
    return status;
  });
}

parallax_status_t parallax_query(parallax_job_t* job, parallax_job_info_t* info) {
  return parallax::guarded("query", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "query"));
    const bool count_touched = parallax::asks_for_touched(info);
    const auto look = [count_touched](const Engine& engine) {
      const parallax::Columns& columns = engine.columns();
      parallax_job_info_t seen = {};
      seen.rank = columns.rank();
      seen.world = columns.world();
      seen.host = columns.host();
      seen.hosts = columns.host_count();
      seen.local_rank = columns.local();
      seen.local_world = static_cast<uint32_t>(columns.locals().size());
      seen.variables = engine.variable_count();
      seen.committed = engine.committed() ? 1 : 0;
      seen.step = engine.window().begun();
      seen.step_committed = engine.window().finished();
      seen.job_rank = parallax::job_rank(columns.map(), columns.rank());
      seen.epoch = engine.options().view.epoch;
      seen.bytes_reserved = engine.reports().reserved_bytes();
      if (count_touched) seen.bytes_touched = engine.reports().touched_bytes();
      const parallax::LateRank& late = engine.late();
      if (late.steps > 0) {
        seen.late_phase = static_cast<uint32_t>(late.phase) + 1;
        seen.late_rank = late.rank;
        seen.late_ms = late.late_ms;
        seen.late_steps = late.steps;
      }
      return seen;
    };
    parallax_job_info_t full = job->job->progress().look(job->group, look);
    full.wait_fd = job->job->progress().completion_fd();
    return parallax::give_struct(full, "query: info", info);
  });
}

parallax_status_t parallax_set(parallax_job_t* job, const char* name, const char* value) {
  return parallax::guarded("set", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "set"));
    if (name == nullptr) return parallax::invalid("set: name is null").about_field("name");
    if (value == nullptr) return parallax::invalid("set: value is null").about_field("value");
    return job->job->set(name, value);
  });
}

parallax_status_t parallax_progress(parallax_job_t* job) {
  return parallax::guarded("progress", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "progress"));
    job->job->progress().drive_once();
    return {};
  });
}

parallax_status_t parallax_report(parallax_job_t* job, uint32_t report, char* buffer,
                                  size_t* bytes) {
  return parallax::guarded("report", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "report"));
    if (bytes == nullptr) return parallax::invalid("report: bytes is null").about_field("bytes");
    std::string text;
    switch (report) {
      case PARALLAX_REPORT_PLAN:
        text = job->job->progress().look(
            job->group, [](const Engine& engine) { return engine.reports().plan_json(); });
        break;
      case PARALLAX_REPORT_STATS:
        text = job->job->stats_report(job->group);
        break;
      case PARALLAX_REPORT_TOPOLOGY:
        text = job->job->topology_report();
        break;
      case PARALLAX_REPORT_SETTINGS:
        text = job->job->settings_report();
        break;
      default:
        return parallax::invalid("report: report is " + std::to_string(report) +
                                 "; it must be PARALLAX_REPORT_PLAN, _STATS, _TOPOLOGY or "
                                 "_SETTINGS")
            .about_field("report");
    }
    const size_t room = *bytes;
    *bytes = text.size() + 1;
    if (buffer == nullptr || room < text.size() + 1) {
      return parallax::limit("report: the buffer holds " + std::to_string(room) +
                             " bytes, the report needs " + std::to_string(text.size() + 1))
          .about_field("bytes");
    }
    std::memcpy(buffer, text.c_str(), text.size() + 1);
    return {};
  });
}

}  // extern "C"
