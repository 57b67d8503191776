// SPDX-License-Identifier: Apache-2.0
// The last error of each thread, and the library's own names. See boundary.h.
#include "capi/boundary.h"

#include <type_traits>

#include "base/sentence.h"
#include "base/text.h"
#include "base/version.h"

namespace parallax {

namespace {

// A thread's last failure; a pointer to it must outlive later calls of other threads.
static_assert(std::is_trivially_destructible_v<Sentence>);
constinit thread_local Sentence last_error;

}  // namespace

parallax_status_t report_status(const Status& status) noexcept {
  if (status.ok()) return PARALLAX_OK;
  try {
    last_error.assign(printable(status.message()));
  } catch (...) {
    last_error.assign("there was no memory for the sentence of this failure");
  }
  return status.code();
}

parallax_status_t report_exception(const char* call) noexcept {
  last_error.assign(call);
  try {
    throw;
  } catch (const std::bad_alloc&) {
    last_error.append(": out of memory");
    return PARALLAX_LIMIT;
  } catch (const std::exception& error) {
    last_error.append(": ");
    last_error.append(error.what());
  } catch (...) {
    last_error.append(": unknown exception");
  }
  return PARALLAX_INTERNAL;
}

}  // namespace parallax

extern "C" {

const char* parallax_last_error(void) { return parallax::last_error.c_str(); }

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
