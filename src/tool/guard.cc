// SPDX-License-Identifier: Apache-2.0
// See guard.h: the process that cleans up behind the launcher.
#include "tool/guard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>

namespace parallax::tool {

namespace {

// What goes through the pipe, whole: it is smaller than PIPE_BUF. Negative: forget.
using Word = int32_t;

[[noreturn]] void guard_process(int pipe, const std::string& remove_folder) {
  setsid();  // no terminal signals it
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(number, SIG_IGN);
  std::set<pid_t> groups;
  Word word = 0;
  while (true) {
    const ssize_t bytes = read(pipe, &word, sizeof word);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes != sizeof word) break;
    if (word > 0) {
      groups.insert(word);
    } else {
      groups.erase(-word);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  std::error_code ignored;
  if (!remove_folder.empty()) std::filesystem::remove_all(remove_folder, ignored);
  _exit(0);
}

void send(int pipe, Word word) {
  while (write(pipe, &word, sizeof word) < 0 && errno == EINTR) {
  }
}

}  // namespace

Status Guard::start(const std::string& remove_folder) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return limit(std::string("pipe: ") + std::strerror(errno));
  pid_ = fork();
  if (pid_ < 0) return limit(std::string("fork: ") + std::strerror(errno));
  if (pid_ == 0) {
    close(ends[1]);
    guard_process(ends[0], remove_folder);
  }
  close(ends[0]);
  pipe_ = ends[1];
  return {};
}

void Guard::watch(pid_t group) const { send(pipe_, group); }
void Guard::forget(pid_t group) const { send(pipe_, -group); }

void Guard::finish() {
  if (pipe_ < 0) return;
  close(pipe_);
  pipe_ = -1;
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace parallax::tool
