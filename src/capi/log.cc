// SPDX-License-Identifier: Apache-2.0
// C ABI: the log. Contracts in parallax.h.
#include "base/log.h"

#include "capi/boundary.h"

extern "C" {

parallax_status_t parallax_set_log_callback(parallax_log_fn callback, void* context,
                                            uint32_t level) {
  return parallax::guarded("set_log_callback", [&]() -> parallax::Status {
    if (level > PARALLAX_LOG_TRACE) {
      return parallax::invalid("set_log_callback: level is " + std::to_string(level) +
                               "; it must be 0 or PARALLAX_LOG_WARN, _INFO, _DEBUG or _TRACE")
          .about_field("level");
    }
    return parallax::log_set_callback(callback, context, static_cast<parallax::LogLevel>(level));
  });
}

}  // extern "C"
