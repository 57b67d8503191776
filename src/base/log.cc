// SPDX-License-Identifier: Apache-2.0
// Where lines go. See log.h.
#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <list>
#include <memory>
#include <new>
#include <set>
#include <thread>

#include "base/mutex.h"
#include "base/signal_block.h"
#include "base/text.h"
#include "base/threads.h"

namespace parallax {

namespace {

constexpr std::array<const char*, kLogSubsystems> kSubsystemNames = {"INIT", "ENV",  "NET",   "SHM",
                                                                     "PLAN", "STEP", "MEMBER"};
constexpr std::array kLevelNames = {"NONE", "WARN", "INFO", "DEBUG", "TRACE"};
constexpr size_t kHeadBytesMax = 160;
constexpr size_t kOnceMax = 256;  // texts remembered by log_write_once

struct Line {
  LogLevel level;
  LogSubsystem subsystem;
  std::string text;
};

using HostName = std::array<char, 65>;  // the kernel's longest is 64

HostName own_host() {
  HostName name = {};
  if (gethostname(name.data(), name.size() - 1) != 0) return {"localhost"};
  return name;
}

// Everything that the log keeps. Never destroyed: other threads may log while the process exits.
// It takes no heap for itself, so that a library that is unloaded leaves little behind: names that
// the options hold, and what was said once.
struct State {
  const HostName host = own_host();

  Mutex mutex;  // a leaf: nothing is called with it but write(2)
  CondVar changed;
  LogOptions options PARALLAX_GUARDED_BY(mutex);
  int fd PARALLAX_GUARDED_BY(mutex) = STDERR_FILENO;
  std::string path PARALLAX_GUARDED_BY(mutex);  // of fd, for the warning
  std::set<std::string> said PARALLAX_GUARDED_BY(mutex);

  parallax_log_fn callback PARALLAX_GUARDED_BY(mutex) = nullptr;
  void* context PARALLAX_GUARDED_BY(mutex) = nullptr;
  // kNone: as the options say.
  LogLevel callback_level PARALLAX_GUARDED_BY(mutex) = LogLevel::kNone;
  std::list<Line> queue PARALLAX_GUARDED_BY(mutex);
  uint64_t dropped PARALLAX_GUARDED_BY(mutex) = 0;
  bool calling PARALLAX_GUARDED_BY(mutex) = false;
  bool stopping PARALLAX_GUARDED_BY(mutex) = false;
  std::thread::id caller PARALLAX_GUARDED_BY(mutex);

  Mutex setters PARALLAX_ACQUIRED_BEFORE(mutex);  // held by log_set_callback
  std::unique_ptr<std::thread> thread PARALLAX_GUARDED_BY(setters);
};

State& state();

void before_fork() PARALLAX_ACQUIRE(state().mutex) { state().mutex.lock(); }
void after_fork() PARALLAX_RELEASE(state().mutex) { state().mutex.unlock(); }

// The child has none of our threads: what it logs goes to the descriptor.
// Not analysed: no other thread is there to change what setters guards, so it is not taken.
void forget_thread(State& own) PARALLAX_NO_THREAD_SAFETY_ANALYSIS {
  own.callback = nullptr;
  own.queue.clear();
  own.calling = false;
  own.caller = {};
  own.stopping = false;
  // These are the parent's; to destroy a condition that had a waiter there would block here.
  (void)own.thread.release();
  new (&own.changed) CondVar;
  // Anew as well: a thread of the parent may hold it, for as long as a callback takes, and the
  // thread that would give it back is not here. A fork does not wait for it, nor could it: it may
  // come from that very callback.
  new (&own.setters) Mutex;
}
void after_fork_in_child() PARALLAX_RELEASE(state().mutex) {
  forget_thread(state());
  state().mutex.unlock();
}

State& state() {
  static State* const own = [] {
    alignas(State) static std::byte place[sizeof(State)];
    auto* made = new (place) State;
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    return made;
  }();
  return *own;
}

// False: errno says why.
bool write_all(int fd, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t wrote = write(fd, bytes, count);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) {  // a pipe that nobody reads for long is given up
      constexpr int kReaderPatienceMs = 1000;
      pollfd polled = {.fd = fd, .events = POLLOUT, .revents = 0};
      const int ready = poll(&polled, 1, kReaderPatienceMs);
      if (ready > 0 || (ready < 0 && errno == EINTR)) continue;
      errno = EAGAIN;
    }
    if (wrote <= 0) return false;
    bytes += wrote;
    count -= static_cast<size_t>(wrote);
  }
  return true;
}

size_t put_line(const State& own, LogLevel level, LogSubsystem subsystem, std::string_view text,
                char* out) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  tm date = {};
  gmtime_r(&now.tv_sec, &date);
  char when[32];
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &date);
  const int head =
      snprintf(out, kHeadBytesMax, "%s.%06ldZ %s:%d:%ld PARALLAX %s %s: ", when, now.tv_nsec / 1000,
               own.host.data(), static_cast<int>(getpid()), static_cast<long>(syscall(SYS_gettid)),
               log_level_name(level), log_subsystem_name(subsystem));
  size_t bytes = std::min(static_cast<size_t>(head), kHeadBytesMax - 1);
  bytes += text.copy(out + bytes, kLogTextBytesMax);
  out[bytes++] = '\n';
  return bytes;
}

void write_line(State& own, LogLevel level, LogSubsystem subsystem, std::string_view text)
    PARALLAX_REQUIRES(own.mutex) {
  char line[kHeadBytesMax + kLogTextBytesMax + 1];
  // One line is one record, and no terminal takes orders from it.
  const std::string plain = printable(text.substr(0, kLogTextBytesMax));
  const size_t bytes = put_line(own, level, subsystem, plain, line);
  const SignalBlock too_large(SIGXFSZ);
  const SignalBlock no_reader(SIGPIPE);
  if (write_all(own.fd, line, bytes) || own.fd == STDERR_FILENO) return;
  const int error = errno;
  close(own.fd);
  own.fd = STDERR_FILENO;
  const std::string why = "debug_file " + own.path + ": " + std::strerror(error) +
                          "; the log goes on to standard error";
  write_line(own, LogLevel::kWarn, LogSubsystem::kEnv, why);
  write_all(own.fd, line, bytes);
}

void enqueue(State& own, LogLevel level, LogSubsystem subsystem, std::string_view text)
    PARALLAX_REQUIRES(own.mutex) {
  if (own.queue.size() >= kLogQueueMax) {
    ++own.dropped;
    return;
  }
  if (own.dropped > 0) {
    own.queue.push_back({LogLevel::kWarn, LogSubsystem::kEnv,
                         std::to_string(own.dropped) + " lines were dropped: the log's callback "
                                                       "is slower than they come"});
    own.dropped = 0;
  }
  own.queue.push_back({level, subsystem, printable(text.substr(0, kLogTextBytesMax))});
  own.changed.notify_all();
}

void call_back(State& own) {
  MutexLock lock(own.mutex);
  own.caller = std::this_thread::get_id();
  while (true) {
    while (!own.stopping && own.queue.empty()) own.changed.wait(own.mutex);
    if (own.queue.empty()) return;  // stopping, and all is said
    const Line line = std::move(own.queue.front());
    own.queue.pop_front();
    own.calling = true;
    const parallax_log_fn callback = own.callback;
    void* const context = own.context;
    lock.unlock();
    callback(context, static_cast<int>(line.level), log_subsystem_name(line.subsystem),
             line.text.c_str());
    lock.lock();
    own.calling = false;
    own.changed.notify_all();
  }
}

// ",net," in ",init,net,": the name as the setting spells it.
bool listed(const std::string& list, LogSubsystem subsystem) {
  std::string padded = ",";
  for (const char each : list) {
    if (each != ' ' && each != '^') padded += static_cast<char>(std::tolower(each));
  }
  padded += ',';
  std::string name = ",";
  for (const char* at = log_subsystem_name(subsystem); *at != '\0'; ++at) {
    name += static_cast<char>(std::tolower(*at));
  }
  return padded.find(name + ",") != std::string::npos || padded.find(",all,") != std::string::npos;
}

void set_levels(const State& own) PARALLAX_REQUIRES(own.mutex) {
  const bool called = own.callback != nullptr && own.callback_level != LogLevel::kNone;
  const LogLevel level = called ? own.callback_level : own.options.level;
  const bool except = own.options.subsystems.starts_with('^');
  for (size_t i = 0; i < kLogSubsystems; ++i) {
    const bool in = listed(own.options.subsystems, static_cast<LogSubsystem>(i)) != except;
    log_levels[i].store(in ? level : std::min(level, LogLevel::kWarn), std::memory_order_relaxed);
  }
}

void open_file(State& own) PARALLAX_REQUIRES(own.mutex) {
  if (own.fd != STDERR_FILENO) close(own.fd);
  own.fd = STDERR_FILENO;
  own.path.clear();
  if (own.options.file.empty()) return;
  own.path = log_file_name(own.options.file);
  const int fd = open_log_file(own.path);
  if (fd >= 0) {
    own.fd = fd;
    return;
  }
  write_line(
      own, LogLevel::kWarn, LogSubsystem::kEnv,
      "debug_file " + own.path + ": " + std::strerror(errno) + "; the log goes to standard error");
}

}  // namespace

const char* log_level_name(LogLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

const char* log_subsystem_name(LogSubsystem subsystem) {
  return kSubsystemNames[static_cast<size_t>(subsystem)];
}

void log_write(LogLevel level, LogSubsystem subsystem, std::string_view text) noexcept {
  try {
    State& own = state();
    const MutexLock lock(own.mutex);
    if (own.callback != nullptr) {
      enqueue(own, level, subsystem, text);
    } else {
      write_line(own, level, subsystem, text);
    }
  } catch (...) {  // no memory for a line: there is nowhere to say so
  }
}

void log_write_once(LogLevel level, LogSubsystem subsystem, const std::string& text) {
  if (!log_enabled(level, subsystem)) return;
  {
    State& own = state();
    const MutexLock lock(own.mutex);
    if (own.said.size() >= kOnceMax || !own.said.insert(text).second) return;
  }
  log_write(level, subsystem, text);
}

void log_configure(const LogOptions& options) {
  State& own = state();
  const MutexLock lock(own.mutex);
  const bool same_file = own.options.file == options.file;
  own.options = options;
  set_levels(own);
  if (!same_file) open_file(own);
}

std::string log_file_name(std::string_view pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'h') {
      name += own_host().data();
    } else if (next == 'p') {
      name += std::to_string(getpid());
    } else if (next == '%') {
      name += '%';
    } else {
      name += pattern[i];
      continue;
    }
    ++i;
  }
  return name;
}

int open_log_file(const std::string& path) {
  int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  // Those two are the system's own links.
  if (path != "/dev/stdout" && path != "/dev/stderr") flags |= O_NOFOLLOW;
  return open(path.c_str(), flags, 0644);
}

Status log_set_callback(parallax_log_fn callback, void* context, LogLevel level) {
  State& own = state();
  {
    const MutexLock lock(own.mutex);
    if (own.caller == std::this_thread::get_id()) {
      return bad_state("set_log_callback: called from the log callback; call it elsewhere");
    }
  }
  const MutexLock setting(own.setters);
  if (own.thread != nullptr) {
    {
      const MutexLock lock(own.mutex);
      own.stopping = true;
      own.changed.notify_all();
    }
    own.thread->join();
    own.thread.reset();
  }
  const MutexLock lock(own.mutex);
  own.stopping = false;
  own.caller = {};
  own.callback = nullptr;
  for (const Line& line : own.queue) write_line(own, line.level, line.subsystem, line.text);
  own.queue.clear();
  if (callback != nullptr) {
    const SignalsHeldBack held_back;
    own.thread = std::make_unique<std::thread>([&own] { call_back(own); });
    own.callback = callback;
    own.context = context;
    own.callback_level = level;
  }
  set_levels(own);
  return {};
}

void log_flush(int64_t timeout_ms) {
  State& own = state();
  const MutexLock lock(own.mutex);
  if (own.callback == nullptr || own.caller == std::this_thread::get_id()) return;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while ((!own.queue.empty() || own.calling) && own.changed.wait_until(own.mutex, until)) continue;
}

}  // namespace parallax
