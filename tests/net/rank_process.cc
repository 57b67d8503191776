// SPDX-License-Identifier: Apache-2.0
// See rank_process.h.
#include "net/rank_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "net/ucx_suppressions.h"

namespace parallax::net {

namespace {

constexpr std::chrono::milliseconds kPollPause{2};
constexpr size_t kTailLines = 6;

}  // namespace

std::string program_path(const std::string& name) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  return (self.parent_path() / ("parallax_net_" + name)).string();
}

int64_t monotonic_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

RankProcess::RankProcess(std::vector<std::string> arguments, const std::string& net_namespace) {
  arguments[0] = program_path(arguments[0]);
  if (!net_namespace.empty()) {
    arguments.insert(arguments.begin(), {"ip", "netns", "exec", net_namespace});
  }
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    close_range(STDERR_FILENO + 1, ~0U, 0);  // UCX leaves some that outlive an exec
    execvp(pointers[0], pointers.data());
    _exit(127);
  }
  ::close(ends[1]);
  output_ = ends[0];
  fcntl(output_, F_SETFL, O_NONBLOCK);
}

RankProcess::~RankProcess() {
  if (running() && pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ::close(output_);
}

void RankProcess::signal(int number) {
  if (!running()) return;
  kill(pid_, number);
  if (number == SIGCONT) stopped_ = false;
}

void RankProcess::poll() {
  // The state first: what it wrote before its end is then all there.
  int status = 0;
  std::optional<int> ended;
  if (running() && waitpid(pid_, &status, WNOHANG | WUNTRACED) == pid_) {
    if (WIFSTOPPED(status)) {
      stopped_ = true;
    } else {
      ended = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
  }
  char bytes[4096];
  for (ssize_t count; (count = read(output_, bytes, sizeof bytes)) > 0;) {
    partial_.append(bytes, static_cast<size_t>(count));
  }
  size_t from = 0;
  for (size_t end; (end = partial_.find('\n', from)) != std::string::npos; from = end + 1) {
    lines_.push_back(partial_.substr(from, end - from));
  }
  partial_.erase(0, from);
  if (ended.has_value()) exit_ = ended;
}

std::optional<std::string> RankProcess::line(const std::string& prefix) const {
  for (const std::string& line : lines_) {
    if (line.starts_with(prefix)) return line.substr(prefix.size());
  }
  return {};
}

std::vector<std::string> RankProcess::lines(const std::string& prefix) const {
  std::vector<std::string> found;
  for (const std::string& line : lines_) {
    if (line.starts_with(prefix)) found.push_back(line.substr(prefix.size()));
  }
  return found;
}

std::string RankProcess::tail() const {
  std::string text;
  const size_t first = lines_.size() > kTailLines ? lines_.size() - kTailLines : 0;
  for (size_t i = first; i < lines_.size(); ++i) text += "    " + lines_[i].substr(0, 400) + "\n";
  return text;
}

RankJob::RankJob(RankJobOptions options) : options_(std::move(options)), ranks_(world()) {}

std::string RankJob::name(uint32_t rank) const {
  return "rank " + std::to_string(rank) + " (host host" + std::to_string(options_.host_of[rank]) +
         ")";
}

void RankJob::start(uint32_t rank, const std::vector<std::string>& more) {
  std::string hosts;
  for (const uint32_t host : options_.host_of) {
    if (!hosts.empty()) hosts += ',';
    hosts += std::to_string(host);
  }
  std::vector<std::string> arguments = {options_.program,
                                        "--rendezvous",
                                        "file:" + folder_.path() + "/rendezvous",
                                        "--rank",
                                        std::to_string(rank),
                                        "--hosts",
                                        hosts};
  arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  const uint32_t host = options_.host_of[rank];
  ranks_[rank] = std::make_unique<RankProcess>(
      arguments, options_.net_namespaces.empty() ? "" : options_.net_namespaces[host]);
}

void RankJob::start_all() {
  for (uint32_t rank = 0; rank < world(); ++rank) start(rank);
}

bool RankJob::wait_until(const std::function<bool()>& done, std::chrono::milliseconds patience) {
  const int64_t give_up_ms = monotonic_ms() + patience.count();
  for (;;) {
    for (const auto& rank : ranks_) {
      if (rank != nullptr) rank->poll();
    }
    if (done()) return true;
    if (monotonic_ms() >= give_up_ms) return false;
    std::this_thread::sleep_for(kPollPause);
  }
}

bool RankJob::wait_exit(std::chrono::milliseconds patience) {
  return wait_until(
      [this] {
        for (const auto& rank : ranks_) {
          if (rank != nullptr && rank->running()) return false;
        }
        return true;
      },
      patience);
}

}  // namespace parallax::net
