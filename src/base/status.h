// SPDX-License-Identifier: Apache-2.0
// Status: the outcome of an operation below the C ABI: a code of parallax.h and, for failures, one
// sentence that names the thing and the remedy. Value type; success never allocates.
#ifndef PARALLAX_BASE_STATUS_H_
#define PARALLAX_BASE_STATUS_H_

#include <string>
#include <utility>

#include "parallax/parallax.h"

namespace parallax {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(parallax_status_t code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == PARALLAX_OK; }
  parallax_status_t code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  parallax_status_t code_ = PARALLAX_OK;
  std::string message_;
};

inline Status invalid(std::string message) { return {PARALLAX_INVALID, std::move(message)}; }
inline Status unsupported(std::string message) {
  return {PARALLAX_UNSUPPORTED, std::move(message)};
}
inline Status bad_state(std::string message) { return {PARALLAX_STATE, std::move(message)}; }
inline Status timed_out(std::string message) { return {PARALLAX_TIMEOUT, std::move(message)}; }
inline Status peer_lost(std::string message) { return {PARALLAX_PEER_LOST, std::move(message)}; }
inline Status limit(std::string message) { return {PARALLAX_LIMIT, std::move(message)}; }
inline Status io_error(std::string message) { return {PARALLAX_IO, std::move(message)}; }
inline Status internal(std::string message) { return {PARALLAX_INTERNAL, std::move(message)}; }

#define PARALLAX_RETURN_IF_ERROR(expression)             \
  do {                                                   \
    ::parallax::Status parallax_status_ = (expression);  \
    if (!parallax_status_.ok()) return parallax_status_; \
  } while (0)

}  // namespace parallax

#endif  // PARALLAX_BASE_STATUS_H_
