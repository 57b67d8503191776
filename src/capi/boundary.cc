// SPDX-License-Identifier: Apache-2.0
// The last error of each thread, and the library's own names. See boundary.h.
#include "capi/boundary.h"

namespace parallax {

namespace {

// A thread's last failure; a pointer to it must outlive later calls of other threads.
std::string& last_error() {
  thread_local std::string sentence;
  return sentence;
}

}  // namespace

parallax_status_t report_status(const Status& status) noexcept {
  if (status.ok()) return PARALLAX_OK;
  try {
    last_error() = status.message();
  } catch (...) {  // no memory even for the sentence: the code must do
    last_error().clear();
  }
  return status.code();
}

parallax_status_t report_exception(const char* call) noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return report_status(limit(std::string(call) + ": out of memory"));
    } catch (const std::exception& error) {
      return report_status(internal(std::string(call) + ": " + error.what()));
    } catch (...) {
      return report_status(internal(std::string(call) + ": unknown exception"));
    }
  } catch (...) {  // no memory even for the sentence
    last_error().clear();
    return PARALLAX_LIMIT;
  }
}

}  // namespace parallax

extern "C" {

const char* parallax_last_error(void) { return parallax::last_error().c_str(); }

const char* parallax_version_string(void) {
#define PARALLAX_TEXT_OF(x) #x
#define PARALLAX_TEXT(x) PARALLAX_TEXT_OF(x)
  return PARALLAX_TEXT(PARALLAX_VERSION_MAJOR) "." PARALLAX_TEXT(
      PARALLAX_VERSION_MINOR) "." PARALLAX_TEXT(PARALLAX_VERSION_PATCH);
}

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
