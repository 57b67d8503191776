// SPDX-License-Identifier: Apache-2.0
// The last error of each thread, and the library's own names. See boundary.h.
#include "capi/boundary.h"

#include <algorithm>
#include <span>
#include <type_traits>

#include "base/sentence.h"
#include "base/text.h"
#include "base/version.h"

namespace parallax {

namespace {

constexpr parallax_error_info_t no_error() {
  parallax_error_info_t info = {};
  info.size = sizeof info;
  info.rank = PARALLAX_NO_RANK;
  info.peer = PARALLAX_NO_RANK;
  info.variable = PARALLAX_NO_VARIABLE;
  info.slice = PARALLAX_NO_SLICE;
  info.step = PARALLAX_NO_STEP;
  info.step_committed = PARALLAX_NO_STEP;
  info.row = PARALLAX_NO_ROW;
  return info;
}

// A thread's last failure; a pointer to its sentence must outlive later calls of other threads.
struct LastFailure {
  Sentence sentence;
  parallax_error_info_t info = no_error();
};
static_assert(std::is_trivially_destructible_v<LastFailure>);
constinit thread_local LastFailure last_failure;

void copy_text(const std::string& text, std::span<char> out) {
  const size_t bytes = std::min(text.size(), out.size() - 1);
  std::memcpy(out.data(), text.data(), bytes);
  out[bytes] = '\0';
}

}  // namespace

parallax_error_info_t error_info_of(const Status& status) noexcept {
  parallax_error_info_t info = no_error();
  const ErrorFacts& facts = status.facts();
  info.status = status.code();
  info.rank = facts.rank;
  info.peer = facts.peer;
  info.variable = facts.variable;
  info.slice = facts.slice;
  info.step = facts.step;
  info.step_committed = facts.step_committed;
  info.row = facts.row;
  copy_text(facts.host, info.host);
  copy_text(facts.field, info.field);
  return info;
}

parallax_status_t report_failure(const Status& failure) noexcept {
  last_failure.info = error_info_of(failure);
  try {
    last_failure.sentence.assign(printable(failure.message()));
  } catch (...) {
    last_failure.sentence.assign("there was no memory for the sentence of this failure");
  }
  return failure.code();
}

Status no_job(const char* call) { return invalid(std::string(call) + ": job is null"); }

parallax_status_t report_exception(const char* call) noexcept {
  last_failure.sentence.assign(call);
  last_failure.info = no_error();
  last_failure.info.status = PARALLAX_INTERNAL;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    last_failure.sentence.append(": out of memory");
    last_failure.info.status = PARALLAX_LIMIT;
    return PARALLAX_LIMIT;
  } catch (const std::exception& error) {
    last_failure.sentence.append(": ");
    last_failure.sentence.append(error.what());
  } catch (...) {
    last_failure.sentence.append(": unknown exception");
  }
  return PARALLAX_INTERNAL;
}

}  // namespace parallax

extern "C" {

const char* parallax_last_error(void) { return parallax::last_failure.sentence.c_str(); }

parallax_status_t parallax_last_error_info(parallax_error_info_t* info) {
  const parallax_error_info_t last = parallax::last_failure.info;
  // Of its own failure only the status: the last one stays.
  try {
    return parallax::give_struct(last, "last_error_info: info", info).code();
  } catch (...) {
    return PARALLAX_LIMIT;  // no memory for a sentence that nobody would read
  }
}

const char* parallax_version_string(void) { return parallax::kVersionText; }

uint32_t parallax_version(void) { return parallax::kVersion; }

const char* parallax_status_string(int status) {
  switch (status) {
    case PARALLAX_OK:
      return "OK";
    case PARALLAX_PENDING:
      return "PENDING";
    case PARALLAX_INVALID:
      return "INVALID";
    case PARALLAX_UNSUPPORTED:
      return "UNSUPPORTED";
    case PARALLAX_STATE:
      return "STATE";
    case PARALLAX_TIMEOUT:
      return "TIMEOUT";
    case PARALLAX_PEER_LOST:
      return "PEER_LOST";
    case PARALLAX_CANCELED:
      return "CANCELED";
    case PARALLAX_ABORTED:
      return "ABORTED";
    case PARALLAX_MISMATCH:
      return "MISMATCH";
    case PARALLAX_LIMIT:
      return "LIMIT";
    case PARALLAX_IO:
      return "IO";
    case PARALLAX_INTERNAL:
      return "INTERNAL";
    default:
      return "UNKNOWN";
  }
}

}  // extern "C"
