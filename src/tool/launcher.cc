// SPDX-License-Identifier: Apache-2.0
// Starting, passing on, ending. See launcher.h.
#include "tool/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/signal_block.h"
#include "base/unique_fd.h"
#include "rendezvous/ended_ranks.h"
#include "tool/guard.h"
#include "tool/tool.h"

namespace parallax::tool {

namespace {

constexpr int64_t kPartingNs = 1000 * kNanosecondsPerMillisecond;
constexpr int64_t kTellNs = 100 * kNanosecondsPerMillisecond;
constexpr size_t kLineBytesMax = 1 << 16;  // a longer line is passed on in pieces
constexpr int kExitCannotExecute = 127;
constexpr int kExitSignalBase = 128;

// False: errno says why.
bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) {  // whoever gave us this output does not want it to block
      pollfd polled = {.fd = fd, .events = POLLOUT, .revents = 0};
      if (poll(&polled, 1, -1) >= 0 || errno == EINTR) continue;
    }
    if (wrote <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return true;
}

// One of a process's outputs, passed on by whole lines.
struct Stream {
  UniqueFd fd;
  int to = STDOUT_FILENO;
  std::string tag;
  std::string partial;
  int error = 0;  // the first that kept output from being written

  void take(std::string_view bytes) {
    partial += bytes;
    std::string out;
    size_t from = 0;
    for (size_t end = partial.find('\n'); end != std::string::npos;
         end = partial.find('\n', from)) {
      out += tag + partial.substr(from, end + 1 - from);
      from = end + 1;
    }
    partial.erase(0, from);
    if (partial.size() > kLineBytesMax) out += tag + std::exchange(partial, "") + "\n";
    if (!write_all(to, out) && error == 0) error = errno;
  }
  // Reads what is there; false at the end.
  bool pump() {
    char bytes[1 << 14];
    while (true) {
      const ssize_t count = read(fd.get(), bytes, sizeof bytes);
      if (count > 0) {
        take({bytes, static_cast<size_t>(count)});
      } else if (count < 0 && errno == EINTR) {
        continue;
      } else {
        return count < 0 && errno == EAGAIN;
      }
    }
  }
  void finish() {
    if (!partial.empty()) take("\n");
    fd.reset();
  }
};

struct Process {
  const ProcessPlan* plan = nullptr;
  pid_t pid = 0;  // 0: ended
  UniqueFd stdin_held;
  size_t told_bytes = 0;  // of the lines of ended ranks, already written to its standard input
  Stream out, err;
};

class Launch {
 public:
  Launch(std::span<const ProcessPlan> plans, const LaunchOptions& options)
      : plans_(plans), options_(options) {}
  Status run(int* exit_status);

 private:
  Status catch_signals();
  Status start(const ProcessPlan& plan);
  [[noreturn]] void become(const ProcessPlan& plan, int in, int out, int err);
  void end_all(int signal);
  void on_signals();
  void on_children();
  void on_end(Process* process, const siginfo_t& how);
  void on_lost_output();
  void tell();
  void serve();

  const std::span<const ProcessPlan> plans_;
  const LaunchOptions& options_;
  const SteadyClock clock_;
  Guard guard_;
  UniqueFd signals_;
  sigset_t old_mask_ = {};
  std::vector<Process> processes_;
  UniqueFd ended_file_;
  std::string ended_;  // a line for each rank that has ended ended
  int64_t tell_at_ns_ = kNever;
  size_t running_ = 0;
  int exit_status_ = 0;
  bool ending_ = false;
  bool lost_output_ = false;
  int64_t term_at_ns_ = kNever;  // a rank has failed: the others end then
  int64_t kill_at_ns_ = kNever;
};

Status failed(const char* what) {
  return limit(std::string(what) + ": " + std::strerror(errno) +
               "; raise the limit (ulimit -n, ulimit -u) or start fewer ranks");
}

Status make_pipe(UniqueFd* read_end, UniqueFd* write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed("pipe");
  *read_end = UniqueFd(ends[0]);
  *write_end = UniqueFd(ends[1]);
  return {};
}

Status Launch::catch_signals() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  signal(SIGCHLD, SIG_DFL);  // ignored, as some parents leave it, no child's end would be told
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction inherited = {};
    sigaction(number, nullptr, &inherited);
    if (inherited.sa_handler != SIG_IGN) sigaddset(&mask, number);  // as nohup wants
  }
  if (sigprocmask(SIG_BLOCK, &mask, &old_mask_) != 0) return failed("sigprocmask");
  signals_ = UniqueFd(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  return signals_.valid() ? Status() : failed("signalfd");
}

// In the child. Its group is known to the guard before it can start anything.
void Launch::become(const ProcessPlan& plan, int in, int out, int err) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  guard_.watch(getpid());
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  dup2(in, STDIN_FILENO);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  for (const auto& [name, value] : plan.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& each : plan.argv) argv.push_back(const_cast<char*>(each.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const std::string why = plan.argv[0] + ": " + std::strerror(errno) + "\n";
  write_all(STDERR_FILENO, why);
  _exit(kExitCannotExecute);
}

Status Launch::start(const ProcessPlan& plan) {
  Process process;
  process.plan = &plan;
  UniqueFd in, out, err;
  if (plan.hold_stdin) {
    PARALLAX_RETURN_IF_ERROR(make_pipe(&in, &process.stdin_held));
    fcntl(process.stdin_held.get(), F_SETFL, O_NONBLOCK);
  } else {
    in = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  if (options_.tag_output) {
    PARALLAX_RETURN_IF_ERROR(make_pipe(&process.out.fd, &out));
    PARALLAX_RETURN_IF_ERROR(make_pipe(&process.err.fd, &err));
    for (Stream* stream : {&process.out, &process.err}) {
      fcntl(stream->fd.get(), F_SETFL, O_NONBLOCK);
      stream->tag = "[" + std::to_string(plan.rank) + "] ";
    }
    process.err.to = STDERR_FILENO;
  }
  process.pid = fork();
  if (process.pid < 0) return failed("fork");
  if (process.pid == 0) {
    become(plan, in.get(), out.valid() ? out.get() : -1, err.valid() ? err.get() : -1);
  }
  setpgid(process.pid, process.pid);  // whoever comes first
  guard_.watch(process.pid);
  processes_.push_back(std::move(process));
  ++running_;
  return {};
}

void Launch::end_all(int signal) {
  for (const Process& process : processes_) {
    if (process.pid != 0) kill(-process.pid, signal);
  }
  if (ending_) return;
  ending_ = true;
  kill_at_ns_ = clock_.now_ns() + options_.grace_ms * kNanosecondsPerMillisecond;
}

void Launch::on_end(Process* process, const siginfo_t& how) {
  kill(-process->pid, SIGKILL);  // the leader is not reaped yet: the number is still its group's
  waitpid(process->pid, nullptr, 0);
  guard_.forget(process->pid);
  process->pid = 0;
  process->stdin_held.reset();
  --running_;
  const bool exited = how.si_code == CLD_EXITED;
  const int status = exited ? how.si_status : kExitSignalBase + how.si_status;
  const std::string line =
      ended_line({.rank = process->plan->rank,
                  .host = process->plan->host,
                  .how = (exited ? "exited with status " : "killed by signal ") +
                         std::to_string(how.si_status)});
  ended_ += line;
  if (ended_file_.valid()) (void)write_all(ended_file_.get(), line);
  tell();
  if (status == 0 || ending_ || term_at_ns_ != kNever) return;
  exit_status_ = status;
  const std::string what = exited ? "ended with status " + std::to_string(how.si_status)
                                  : "was ended by signal " + std::to_string(how.si_status) + " (" +
                                        strsignal(how.si_status) + ")";
  process->out.pump();
  process->err.pump();
  write_all(STDERR_FILENO, "parallax run: rank " + std::to_string(process->plan->rank) + " (host " +
                               process->plan->host + ") " + what +
                               (running_ > 0 ? "; ending the other ranks\n" : "\n"));
  // The other ranks learn of the loss by themselves and print an error that names it; killing them
  // at once would cut that off.
  term_at_ns_ = clock_.now_ns() + kPartingNs;
}

void Launch::on_children() {
  for (Process& process : processes_) {
    if (process.pid == 0) continue;
    siginfo_t how = {};
    if (waitid(P_PID, static_cast<id_t>(process.pid), &how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        how.si_pid == process.pid) {
      on_end(&process, how);
    }
  }
}

void Launch::on_signals() {
  signalfd_siginfo info;
  bool children = false;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      children = true;
      continue;
    }
    if (exit_status_ == 0) exit_status_ = kExitSignalBase + number;
    end_all(number);
  }
  if (children) on_children();
}

// The ranks go on: their work is worth more than what they print. The exit status tells that output
// was lost.
void Launch::on_lost_output() {
  for (const Process& process : processes_) {
    for (const Stream* stream : {&process.out, &process.err}) {
      if (stream->error == 0 || lost_output_) continue;
      lost_output_ = true;
      write_all(STDERR_FILENO, std::string("parallax run: output of the ranks is lost: ") +
                                   std::strerror(stream->error) +
                                   "; make room, or send it elsewhere\n");
    }
  }
}

// Passes the lines on to remote hosts: ranks there that wait for one that has ended would otherwise
// wait until their deadline. Never blocks on a connection that takes nothing.
void Launch::tell() {
  tell_at_ns_ = kNever;
  const SignalBlock no_reader(SIGPIPE);
  for (Process& process : processes_) {
    if (!process.stdin_held.valid() || process.told_bytes == ended_.size()) continue;
    const std::string_view rest = std::string_view(ended_).substr(process.told_bytes);
    const ssize_t wrote = write(process.stdin_held.get(), rest.data(), rest.size());
    if (wrote > 0) process.told_bytes += static_cast<size_t>(wrote);
    if (process.told_bytes < ended_.size()) tell_at_ns_ = clock_.now_ns() + kTellNs;
  }
}

void Launch::serve() {
  while (running_ > 0) {
    std::vector<pollfd> polled = {{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    std::vector<Stream*> streams;
    for (Process& process : processes_) {
      for (Stream* stream : {&process.out, &process.err}) {
        if (!stream->fd.valid()) continue;
        polled.push_back({.fd = stream->fd.get(), .events = POLLIN, .revents = 0});
        streams.push_back(stream);
      }
    }
    int wait_ms = -1;
    const int64_t due_ns = std::min({term_at_ns_, kill_at_ns_, tell_at_ns_});
    if (due_ns != kNever) {
      const int64_t left_ns = due_ns - clock_.now_ns();
      wait_ms = static_cast<int>(std::max<int64_t>(0, left_ns / kNanosecondsPerMillisecond + 1));
    }
    if (poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR) {
      exit_status_ = kExitNo;
      end_all(SIGKILL);
      return;
    }
    for (size_t i = 0; i < streams.size(); ++i) {
      if (polled[i + 1].revents != 0 && !streams[i]->pump()) streams[i]->finish();
    }
    if (!lost_output_) on_lost_output();
    if ((polled[0].revents & POLLIN) != 0) on_signals();
    if (clock_.now_ns() >= tell_at_ns_) tell();
    if (clock_.now_ns() >= term_at_ns_) {
      term_at_ns_ = kNever;
      end_all(SIGTERM);
    }
    if (clock_.now_ns() >= kill_at_ns_) {
      kill_at_ns_ = kNever;
      end_all(SIGKILL);
    }
  }
}

Status Launch::run(int* exit_status) {
  PARALLAX_RETURN_IF_ERROR(guard_.start(options_.remove_folder));
  PARALLAX_RETURN_IF_ERROR(catch_signals());
  if (!options_.ended_file.empty()) {
    ended_file_ = UniqueFd(open(options_.ended_file.c_str(),
                                O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!ended_file_.valid()) return io_error(options_.ended_file + ": " + std::strerror(errno));
  }
  processes_.reserve(plans_.size());
  Status started;
  for (const ProcessPlan& plan : plans_) {
    started = start(plan);
    if (!started.ok()) break;
  }
  if (!started.ok()) end_all(SIGKILL);
  serve();
  for (Process& process : processes_) {
    for (Stream* stream : {&process.out, &process.err}) {
      if (!stream->fd.valid()) continue;
      stream->pump();
      stream->finish();
    }
  }
  on_lost_output();
  guard_.finish();
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  *exit_status = exit_status_ == 0 && lost_output_ ? kExitNo : exit_status_;
  return started;
}

}  // namespace

Status launch(std::span<const ProcessPlan> plans, const LaunchOptions& options, int* exit_status) {
  return Launch(plans, options).run(exit_status);
}

}  // namespace parallax::tool
