// SPDX-License-Identifier: Apache-2.0
// Status: the outcome of an operation below the C ABI: a code of parallax.h and, for failures, one
// sentence that names the thing and the remedy, with what it names as data beside it. Value type;
// success never allocates, and copies of a failure share what it says.
#ifndef PARALLAX_BASE_STATUS_H_
#define PARALLAX_BASE_STATUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "parallax/parallax.h"

namespace parallax {

// What a failure is about; parallax_error_info_t says what each means.
struct ErrorFacts {
  uint32_t rank = PARALLAX_NO_RANK;
  uint32_t peer = PARALLAX_NO_RANK;
  uint32_t variable = PARALLAX_NO_VARIABLE;
  uint32_t slice = PARALLAX_NO_SLICE;
  uint64_t step = PARALLAX_NO_STEP;
  uint64_t step_committed = PARALLAX_NO_STEP;
  int64_t row = PARALLAX_NO_ROW;
  std::string host;
  std::string field;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(parallax_status_t code, std::string message)
      : code_(code), failure_(std::make_shared<Failure>()) {
    failure_->message = std::move(message);
  }
  // Where there is no memory for a sentence.
  static Status out_of_memory() noexcept {
    Status status;
    status.code_ = PARALLAX_LIMIT;
    return status;
  }

  bool ok() const { return code_ == PARALLAX_OK; }
  parallax_status_t code() const { return code_; }
  const std::string& message() const {
    static const std::string none, no_memory = "out of memory";
    if (failure_ != nullptr) return failure_->message;
    return ok() ? none : no_memory;
  }
  // All unknown where there are none.
  const ErrorFacts& facts() const {
    static const ErrorFacts none;
    return failure_ != nullptr ? failure_->facts : none;
  }

  // The same failure in other words.
  Status reworded(std::string message) const {
    return Status(code_, std::move(message)).about(facts());
  }
  Status prefixed(const std::string& lead) const { return reworded(lead + message()); }

  // What a new failure is about: invalid("...").about_field("rows_max").
  Status&& about(ErrorFacts facts) && {
    failure_->facts = std::move(facts);
    return std::move(*this);
  }
  Status&& about_field(std::string_view field) && {
    failure_->facts.field = field;
    return std::move(*this);
  }
  Status&& about_variable(uint32_t variable) && {
    failure_->facts.variable = variable;
    return std::move(*this);
  }
  Status&& about_slice(size_t slice) && {
    failure_->facts.slice = static_cast<uint32_t>(slice);
    return std::move(*this);
  }
  Status&& about_row(int64_t row) && {
    failure_->facts.row = row;
    return std::move(*this);
  }
  Status&& about_step(uint64_t step) && {
    failure_->facts.step = step;
    return std::move(*this);
  }
  Status&& about_peer(uint32_t peer, std::string_view host = {}) && {
    failure_->facts.peer = peer;
    failure_->facts.host = host;
    return std::move(*this);
  }

 private:
  struct Failure {
    std::string message;
    ErrorFacts facts;
  };

  parallax_status_t code_ = PARALLAX_OK;
  std::shared_ptr<Failure> failure_;  // written before it is shared
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
