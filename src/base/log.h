// SPDX-License-Identifier: Apache-2.0
// Log: lines for a person who looks for the reason of something. Errors are not logged: they are
// Status, and reach the caller. One line is
//
//   2026-01-31T12:00:00.123456Z HOST:PID:THREAD PARALLAX INFO INIT: text
//
// It goes to standard error, to the file of `debug_file`, or to the callback of
// parallax_set_log_callback, which takes the place of both. A file that cannot be opened or written
// (read-only, a symbolic link, a full disk, beyond ulimit -f) is left for standard error, with one
// warning; the line that did not fit is said again there.
//
// The state is the process's: lines of all jobs of a process go to one place (docs/adr/0015).
//
// Threads: any. What is switched off costs one relaxed load and a compare, and no allocation: the
// text is not even made. A line to a descriptor is one write under a leaf lock; a line for the
// callback is queued, and the log's own thread calls it, so that it never runs under a lock of
// ours, not even under that of the engine. The queue is bounded; lines beyond it are counted, and
// the next line says so. A child after fork logs to the descriptor, and may set a callback of its
// own, whatever a thread of its parent was doing to the parent's.
#ifndef PARALLAX_BASE_LOG_H_
#define PARALLAX_BASE_LOG_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace parallax {

// As parallax_log_level_t; in the order of the setting `debug`.
enum class LogLevel : uint8_t { kNone, kWarn, kInfo, kDebug, kTrace };

// In the order of the setting `debug_subsys`.
enum class LogSubsystem : uint8_t { kInit, kEnv, kNet, kShm, kPlan, kStep, kMember };
inline constexpr size_t kLogSubsystems = 7;

inline constexpr size_t kLogTextBytesMax = 4000;  // a longer text is cut
inline constexpr size_t kLogQueueMax = 1024;      // lines that wait for the callback

struct LogOptions {
  LogLevel level = LogLevel::kWarn;
  std::string subsystems = "all";  // "init,net", "^shm", as in the setting
  std::string file;                // pattern with %h, %p, %%; empty: standard error
};

// The highest level that passes, by subsystem. Read on hot paths.
inline std::array<std::atomic<LogLevel>, kLogSubsystems> log_levels = {
    LogLevel::kWarn, LogLevel::kWarn, LogLevel::kWarn, LogLevel::kWarn,
    LogLevel::kWarn, LogLevel::kWarn, LogLevel::kWarn};

inline bool log_enabled(LogLevel level, LogSubsystem subsystem) {
  return level <= log_levels[static_cast<size_t>(subsystem)].load(std::memory_order_relaxed);
}

// The text is an expression of type std::string, made only if the line passes.
#define PARALLAX_LOG(level, subsystem, text)                                                  \
  do {                                                                                        \
    if (::parallax::log_enabled(::parallax::LogLevel::level,                                  \
                                ::parallax::LogSubsystem::subsystem)) {                       \
      ::parallax::log_write(::parallax::LogLevel::level, ::parallax::LogSubsystem::subsystem, \
                            (text));                                                          \
    }                                                                                         \
  } while (0)

void log_write(LogLevel level, LogSubsystem subsystem, std::string_view text) noexcept;

// The options' strings have been checked against the table of settings. A repeated call with the
// same options changes nothing; other options hold for every job of the process.
void log_configure(const LogOptions& options);

// A line that is worth saying once in a process, such as a warning about its environment.
void log_write_once(LogLevel level, LogSubsystem subsystem, const std::string& text);

// As parallax_set_log_callback. Returns after the last call of the one before has returned. STATE
// from within a callback.
Status log_set_callback(parallax_log_fn callback, void* context, LogLevel level);

// Opens `path` to append lines: a descriptor, or -1 and errno. No symbolic link is followed but
// /dev/stdout and /dev/stderr, and a pipe that nobody reads is refused (ENXIO), not waited for.
int open_log_file(const std::string& path);

// Waits until the callback has seen what was logged before, at most timeout_ms; from within the
// callback not at all.
void log_flush(int64_t timeout_ms);

std::string log_file_name(std::string_view pattern);     // with %h, %p and %% filled in
const char* log_level_name(LogLevel level);              // "INFO"
const char* log_subsystem_name(LogSubsystem subsystem);  // "INIT"

}  // namespace parallax

#endif  // PARALLAX_BASE_LOG_H_
