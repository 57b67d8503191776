// SPDX-License-Identifier: Apache-2.0
// Log: levels and subsystems, files and what happens when they fail, and the callback.
#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "support/temporary_folder.h"

namespace parallax {
namespace {

std::string read_all(const std::string& path) {
  std::ifstream file(path);
  return {(std::istreambuf_iterator<char>(file)), {}};
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

class Log : public ::testing::Test {
 protected:
  ~Log() override {
    EXPECT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok());
    log_configure({});
  }

 private:
  const testkit::TemporaryFolder temporary_;

 protected:
  const std::string folder_ = temporary_.path();
};

// Given a level and subsystems, expect what they let pass, and warnings always.
TEST_F(Log, passes_by_level_and_subsystem) {
  const std::string file = folder_ + "/log";
  log_configure({.level = LogLevel::kInfo, .subsystems = "init,plan", .file = file});
  PARALLAX_LOG(kInfo, kInit, std::string("one"));
  PARALLAX_LOG(kDebug, kInit, std::string("two"));
  PARALLAX_LOG(kInfo, kNet, std::string("three"));
  PARALLAX_LOG(kWarn, kNet, std::string("four"));
  log_configure({.level = LogLevel::kDebug, .subsystems = "^net", .file = file});
  PARALLAX_LOG(kDebug, kInit, std::string("five"));
  PARALLAX_LOG(kInfo, kNet, std::string("six"));
  log_configure({.level = LogLevel::kNone, .subsystems = "all", .file = file});
  PARALLAX_LOG(kWarn, kNet, std::string("seven"));
  const std::string text = read_all(file);
  EXPECT_NE(text.find(" PARALLAX INFO INIT: one\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" PARALLAX WARN NET: four\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" PARALLAX DEBUG INIT: five\n"), std::string::npos) << text;
  EXPECT_EQ(count(text, "\n"), 3u) << text;
  EXPECT_NE(text.find(":" + std::to_string(getpid()) + ":"), std::string::npos) << text;
}

// Given a level that is off, expect the text not even to be made.
TEST_F(Log, makes_no_text_that_nobody_wants) {
  int made = 0;
  const auto text = [&made] {
    ++made;
    return std::string("text");
  };
  PARALLAX_LOG(kInfo, kStep, text());
  EXPECT_EQ(made, 0);
  log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = folder_ + "/log"});
  PARALLAX_LOG(kInfo, kStep, text());
  EXPECT_EQ(made, 1);
}

// Given a pattern, expect host, process and percent sign filled in.
TEST_F(Log, names_its_file_by_pattern) {
  char host[256] = "";
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  EXPECT_EQ(log_file_name("/a/%h.%p.%%.log%"),
            "/a/" + std::string(host) + "." + std::to_string(getpid()) + ".%.log%");
  log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = folder_ + "/%p.log"});
  PARALLAX_LOG(kInfo, kInit, std::string("here"));
  EXPECT_EQ(count(read_all(folder_ + "/" + std::to_string(getpid()) + ".log"), "here"), 1u);
}

// Given a text with line breaks or of great length, expect one line, cut.
TEST_F(Log, writes_one_line_per_text) {
  log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = folder_ + "/log"});
  PARALLAX_LOG(kInfo, kInit, "a\nb" + std::string(100000, 'x'));
  const std::string text = read_all(folder_ + "/log");
  EXPECT_EQ(count(text, "\n"), 1u);
  EXPECT_EQ(count(text, "x"), kLogTextBytesMax - 3);
}

// Runs `body` in a child whose standard error is a file, and gives what it wrote there.
template <typename Body>
std::string standard_error_of(const std::string& path, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, STDERR_FILENO);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return read_all(path);
}

// Given a file that cannot be opened, expect standard error, and one warning that says so.
TEST_F(Log, falls_back_when_a_file_cannot_be_opened) {
  const std::string text = standard_error_of(folder_ + "/stderr", [] {
    log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = "/nonexistent/log"});
    PARALLAX_LOG(kInfo, kInit, std::string("first"));
    PARALLAX_LOG(kInfo, kInit, std::string("second"));
  });
  EXPECT_EQ(count(text, "debug_file /nonexistent/log: No such file"), 1u) << text;
  EXPECT_EQ(count(text, "first"), 1u);
  EXPECT_EQ(count(text, "second"), 1u);
}

// Given a symbolic link where the log should go, expect it not to be followed; the system's own for
// standard output is.
TEST_F(Log, follows_no_symbolic_link) {
  const std::string precious = folder_ + "/precious";
  for (const bool exists : {false, true}) {
    if (exists) std::ofstream(precious) << "kept";
    const std::string link = folder_ + (exists ? "/to_file" : "/to_nothing");
    std::filesystem::create_symlink(precious, link);
    const std::string text = standard_error_of(folder_ + "/stderr", [&link] {
      log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = link});
      PARALLAX_LOG(kInfo, kInit, std::string("first"));
    });
    EXPECT_EQ(count(text, "debug_file " + link + ": Too many levels of symbolic links"), 1u);
    EXPECT_EQ(count(text, "first"), 1u) << text;
    EXPECT_EQ(std::filesystem::exists(precious), exists);
  }
  EXPECT_EQ(read_all(precious), "kept");
  const std::string text = standard_error_of(folder_ + "/stderr", [] {
    log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = "/dev/stderr"});
    PARALLAX_LOG(kInfo, kInit, std::string("first"));
  });
  EXPECT_EQ(count(text, "debug_file"), 0u) << text;
  EXPECT_EQ(count(text, "first"), 1u) << text;
}

// Given a text that would drive a terminal, expect it escaped, in a file and for the callback.
TEST_F(Log, has_no_control_bytes) {
  log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = folder_ + "/log"});
  PARALLAX_LOG(kInfo, kInit, std::string("\x1b]0;owned\x07"));
  EXPECT_EQ(count(read_all(folder_ + "/log"), "INIT: \\x1b]0;owned\\x07\n"), 1u);
  std::string heard;
  const auto hear = [](void* to, int, const char*, const char* text) {
    *static_cast<std::string*>(to) += text;
  };
  ASSERT_TRUE(log_set_callback(hear, &heard, LogLevel::kInfo).ok());
  PARALLAX_LOG(kInfo, kInit, std::string("\x1b[2J"));
  ASSERT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok());
  EXPECT_EQ(heard, "\\x1b[2J");
}

// Given a full disk, expect every line on standard error, and one warning.
TEST_F(Log, falls_back_when_the_disk_is_full) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "this machine has no /dev/full";
  const std::string text = standard_error_of(folder_ + "/stderr", [] {
    log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = "/dev/full"});
    PARALLAX_LOG(kInfo, kInit, std::string("first"));
    PARALLAX_LOG(kInfo, kInit, std::string("second"));
  });
  EXPECT_EQ(count(text, "No space left"), 1u) << text;
  EXPECT_EQ(count(text, "first"), 1u) << text;
  EXPECT_EQ(count(text, "second"), 1u) << text;
}

// Given a limit on the size of files, expect the process to live, the file to hold what fits, and
// every line to be whole in one of the two places.
TEST_F(Log, falls_back_beyond_the_limit_of_file_sizes) {
  constexpr rlim_t kLimitBytes = 400;
  constexpr int kLines = 9;
  const std::string file = folder_ + "/log";
  int ends[2];  // standard error is a pipe: the limit would hold for a file, too
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    const rlimit small = {.rlim_cur = kLimitBytes, .rlim_max = kLimitBytes};
    setrlimit(RLIMIT_FSIZE, &small);
    log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = file});
    for (int i = 0; i < kLines; ++i) PARALLAX_LOG(kInfo, kInit, "line " + std::to_string(i));
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t got = 0; (got = read(ends[0], bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(count(text, "debug_file " + file + ": File too large"), 1u) << text;
  const std::string kept = read_all(file);
  EXPECT_LE(kept.size(), kLimitBytes);
  EXPECT_EQ(count(kept, "line 0\n"), 1u);
  for (int i = 0; i < kLines; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    EXPECT_EQ(count(kept, line) + count(text, line), 1u) << i;
  }
}

// Given a pipe that nobody reads, expect no wait, and standard error.
TEST_F(Log, does_not_wait_for_the_reader_of_a_pipe) {
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string text = standard_error_of(folder_ + "/stderr", [&] {
    log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = fifo});
    PARALLAX_LOG(kInfo, kInit, std::string("said"));
  });
  EXPECT_EQ(count(text, "debug_file " + fifo), 1u) << text;
  EXPECT_EQ(count(text, "said"), 1u) << text;
}

// Given a pipe whose reader goes, expect the process to live, and the line on standard error.
TEST_F(Log, survives_a_reader_that_goes) {
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string text = standard_error_of(folder_ + "/stderr", [&] {
    const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
    log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = fifo});
    PARALLAX_LOG(kInfo, kInit, std::string("first"));
    close(reader);
    PARALLAX_LOG(kInfo, kInit, std::string("second"));
  });
  EXPECT_EQ(count(text, "Broken pipe"), 1u) << text;
  EXPECT_EQ(count(text, "first"), 0u) << text;
  EXPECT_EQ(count(text, "second"), 1u) << text;
}

// Given a warning said once, expect it once however often it is said.
TEST_F(Log, says_some_things_once) {
  log_configure({.file = folder_ + "/log"});
  for (int i = 0; i < 3; ++i) log_write_once(LogLevel::kWarn, LogSubsystem::kEnv, "only once");
  EXPECT_EQ(count(read_all(folder_ + "/log"), "only once"), 1u);
}

struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> lines;
  std::vector<std::thread::id> threads;
  Status again;
  bool held = false;

  void await_call() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !lines.empty(); });
  }
  void release() {
    const std::lock_guard lock(mutex);
    held = false;
    changed.notify_all();
  }
  static void hear(void* context, int level, const char* subsystem, const char* message) {
    auto* self = static_cast<Heard*>(context);
    std::unique_lock lock(self->mutex);
    self->lines.push_back(std::to_string(level) + " " + subsystem + " " + message);
    self->threads.push_back(std::this_thread::get_id());
    self->changed.notify_all();
    self->changed.wait(lock, [&] { return !self->held; });
  }
  static void hear_and_set(void* context, int, const char*, const char*) {
    static_cast<Heard*>(context)->again = log_set_callback(nullptr, nullptr, LogLevel::kNone);
  }
};

// Given a callback, expect the lines there, in order, from the log's thread, and no longer once it
// is taken away.
TEST_F(Log, calls_back_from_its_own_thread) {
  Heard heard;
  ASSERT_TRUE(log_set_callback(Heard::hear, &heard, LogLevel::kInfo).ok());
  PARALLAX_LOG(kInfo, kInit, std::string("one"));
  PARALLAX_LOG(kWarn, kNet, std::string("two"));
  PARALLAX_LOG(kDebug, kNet, std::string("three"));
  log_flush(10000);
  ASSERT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok());
  PARALLAX_LOG(kWarn, kEnv, std::string("to standard error, as the test wants"));
  ASSERT_EQ(heard.lines, (std::vector<std::string>{"2 INIT one", "1 NET two"}));
  EXPECT_EQ(heard.threads[0], heard.threads[1]);
  EXPECT_NE(heard.threads[0], std::this_thread::get_id());
  EXPECT_FALSE(log_enabled(LogLevel::kInfo, LogSubsystem::kInit));
}

// Given a callback that blocks, expect writers not to, and to be told what was lost.
TEST_F(Log, does_not_wait_for_a_slow_callback) {
  Heard heard;
  heard.held = true;
  ASSERT_TRUE(log_set_callback(Heard::hear, &heard, LogLevel::kInfo).ok());
  const size_t lines = kLogQueueMax + 100;
  for (size_t i = 0; i < lines; ++i) PARALLAX_LOG(kInfo, kInit, std::to_string(i));
  heard.release();
  log_flush(10000);
  PARALLAX_LOG(kInfo, kInit, std::string("after"));
  ASSERT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok());
  ASSERT_GE(heard.lines.size(), kLogQueueMax);
  EXPECT_LT(heard.lines.size(), lines);
  EXPECT_NE(heard.lines[heard.lines.size() - 2].find("lines were dropped"), std::string::npos);
  EXPECT_EQ(heard.lines.back(), "2 INIT after");
}

// Given a callback that sets another, expect STATE, not a deadlock.
TEST_F(Log, cannot_be_set_from_its_callback) {
  Heard heard;
  ASSERT_TRUE(log_set_callback(Heard::hear_and_set, &heard, LogLevel::kInfo).ok());
  PARALLAX_LOG(kInfo, kInit, std::string("one"));
  ASSERT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok());
  EXPECT_EQ(heard.again.code(), PARALLAX_STATE);
}

// A fork amid the start of the callback's thread leaves the child with a sanitizer's locks held.
void await_thread() {
  PARALLAX_LOG(kInfo, kInit, std::string("to have it called"));
  log_flush(10000);
}

// Given a fork while a callback is set, expect the child to log to standard error.
TEST_F(Log, survives_fork) {
  Heard heard;
  ASSERT_TRUE(log_set_callback(Heard::hear, &heard, LogLevel::kInfo).ok());
  await_thread();
  const std::string text = standard_error_of(
      folder_ + "/stderr", [] { PARALLAX_LOG(kWarn, kInit, std::string("in the child")); });
  EXPECT_EQ(count(text, "in the child"), 1u) << text;
  ASSERT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok());
  EXPECT_EQ(heard.lines.size(), 1u);
}

// Given the same, expect the child to be able to set a callback of its own.
TEST_F(Log, takes_a_callback_in_a_forked_child) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer allows no new threads after a fork with threads";
#endif
  Heard heard;
  ASSERT_TRUE(log_set_callback(Heard::hear, &heard, LogLevel::kInfo).ok());
  await_thread();
  standard_error_of(folder_ + "/stderr", [] {
    Heard own;
    if (!log_set_callback(Heard::hear, &own, LogLevel::kInfo).ok()) _exit(1);
    PARALLAX_LOG(kInfo, kInit, std::string("called"));
    if (!log_set_callback(nullptr, nullptr, LogLevel::kNone).ok()) _exit(2);
    if (own.lines.size() != 1) _exit(3);
  });
  ASSERT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok());
  EXPECT_EQ(heard.lines.size(), 1u);
}

// Waits until a thread of this process sleeps in the kernel.
void await_sleep(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  // "PID (NAME) STATE ...": the name may hold anything.
  const auto sleeps = [&path] {
    const std::string stat = read_all(path);
    const size_t name_end = stat.rfind(')');
    return name_end != std::string::npos && stat.substr(name_end + 2, 1) == "S";
  };
  while (!sleeps()) std::this_thread::yield();
}

// Given a fork while another thread sets a callback, and waits for the call of the one before to
// return, expect the child to be able to set one of its own.
TEST_F(Log, takes_a_callback_in_a_child_forked_while_one_is_set) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer allows no new threads after a fork with threads";
#endif
  constexpr unsigned kPatienceSeconds = 30;  // then the child is stuck
  Heard heard;
  heard.held = true;
  ASSERT_TRUE(log_set_callback(Heard::hear, &heard, LogLevel::kInfo).ok());
  PARALLAX_LOG(kInfo, kInit, std::string("to have it called"));
  std::atomic<pid_t> setter = 0;
  std::thread setting([&setter] {
    setter = static_cast<pid_t>(syscall(SYS_gettid));
    // Sleeps nowhere but for the call that is held: nobody else holds a lock of the log by then.
    EXPECT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok());
  });
  heard.await_call();
  while (setter == 0) std::this_thread::yield();
  await_sleep(setter);
  standard_error_of(folder_ + "/stderr", [] {
    alarm(kPatienceSeconds);
    Heard own;
    if (!log_set_callback(Heard::hear, &own, LogLevel::kInfo).ok()) _exit(1);
    PARALLAX_LOG(kInfo, kInit, std::string("called"));
    if (!log_set_callback(nullptr, nullptr, LogLevel::kNone).ok()) _exit(2);
    if (own.lines.size() != 1) _exit(3);
  });
  heard.release();
  setting.join();
  EXPECT_EQ(heard.lines.size(), 1u);
}

// Given many threads that log while callback and options change, expect every line to arrive
// whole somewhere, and ThreadSanitizer to be content.
TEST_F(Log, may_be_used_by_any_thread) {
  const std::string file = folder_ + "/log";
  log_configure({.level = LogLevel::kInfo, .subsystems = "all", .file = file});
  constexpr int kThreads = 4, kLines = 200;
  Heard heard;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([] {
      for (int line = 0; line < kLines; ++line) PARALLAX_LOG(kInfo, kStep, std::string("a line"));
    });
  }
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(log_set_callback(Heard::hear, &heard, LogLevel::kInfo).ok());
    ASSERT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok());
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = read_all(file);
  EXPECT_EQ(count(text, "STEP: a line\n") + heard.lines.size(), size_t{kThreads} * kLines);
}

}  // namespace
}  // namespace parallax
