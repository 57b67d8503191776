// SPDX-License-Identifier: Apache-2.0
// What a program of the net tests needs around its work: "--name value" options, lines to standard
// output, and an end on purpose at a marker. Tests only.
#ifndef PARALLAX_TESTS_NET_PROGRAMS_PROGRAM_H_
#define PARALLAX_TESTS_NET_PROGRAMS_PROGRAM_H_

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "net/ucx_suppressions.h"

namespace program {

inline long long clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A whole line, whichever threads say one at the same time.
__attribute__((format(printf, 1, 2))) inline void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  flockfile(stdout);
  std::vprintf(format, arguments);
  std::fputc('\n', stdout);
  std::fflush(stdout);
  funlockfile(stdout);
  va_end(arguments);
}

struct Settings {
  std::map<std::string, std::string> given;
  std::string text(const std::string& name, const std::string& otherwise = "") const {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : found->second;
  }
  uint64_t number(const std::string& name, uint64_t otherwise = 0) const {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : std::strtoull(found->second.c_str(), nullptr, 10);
  }
};

// Reads --name value pairs; every name must be in `usage`.
inline bool parse(int count, char** arguments, const std::string& usage, Settings* settings) {
  if (count % 2 == 0) return false;
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i];
    if (!name.starts_with("--") || usage.find(name + " ") == std::string::npos) return false;
    settings->given[name.substr(2)] = arguments[i + 1];
  }
  return true;
}

// Ends or stops this process at the marker it was told.
class Fate {
 public:
  explicit Fate(const Settings& settings)
      : at_(settings.text("die-at")),
        after_(settings.number("die-after-us")),
        stop_(settings.text("die-how", "kill") == "stop") {}

  void enter(const char* phase, uint64_t step) const {
    say("phase %s step %llu", phase, static_cast<unsigned long long>(step));
    if (std::string(phase) != "rendezvous") has_met_ = true;
    const std::string here = std::string(phase) + ":" + std::to_string(step);
    if (at_ == here && watched_round() < 0) meet();
  }
  // The rendezvous and the connecting are inside parallax_open: a thread sees by the files of the
  // rendezvous how far this rank has got; on a busy machine they may have come and gone between two
  // looks.
  void watch_rendezvous(const std::string& rendezvous, uint64_t rank) const {
    const int round = watched_round();
    if (round < 0) return;
    const std::string folder = rendezvous.substr(rendezvous.find(':') + 1);
    const std::string file =
        folder + (round == 0 ? "/keepalive." : "/blob.1.") + std::to_string(rank);
    std::thread([this, folder, file] {
      bool began = false;
      while (!has_met_ && access(file.c_str(), F_OK) != 0) {
        const bool there = access(folder.c_str(), F_OK) == 0;
        if (began && !there) break;  // it went with the last that needed it, before we looked
        began = there;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      std::this_thread::sleep_for(after_);
      meet();
    }).detach();
  }

 private:
  int watched_round() const {
    return at_.starts_with("rendezvous:") ? 0 : at_.starts_with("connect:") ? 1 : -1;
  }
  void meet() const {
    say("clock %lld", clock_ms());
    kill(getpid(), stop_ ? SIGSTOP : SIGKILL);
  }

  const std::string at_;
  const std::chrono::microseconds after_;  // of a marker inside open
  const bool stop_;
  mutable std::atomic<bool> has_met_{false};  // a phase behind the rendezvous was entered
};

}  // namespace program

#endif  // PARALLAX_TESTS_NET_PROGRAMS_PROGRAM_H_
