// SPDX-License-Identifier: Apache-2.0
// See ucx_process.h.
#include "net/ucx_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

namespace parallax::net {
namespace {

constexpr const char* kRole = "PARALLAX_TEST_UCX_ROLE";
constexpr const char* kRank = "PARALLAX_TEST_UCX_RANK";
constexpr const char* kWorld = "PARALLAX_TEST_UCX_WORLD";
constexpr const char* kFolder = "PARALLAX_TEST_UCX_FOLDER";

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

using Clock = std::chrono::steady_clock;

}  // namespace

Process::Process(const RendezvousFolder& folder, const ProcessOptions& options) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  environment.push_back(std::string(kRole) + "=" + options.role);
  environment.push_back(std::string(kRank) + "=" + std::to_string(options.rank));
  environment.push_back(std::string(kWorld) + "=" + std::to_string(options.world));
  environment.push_back(std::string(kFolder) + "=" + folder.path());
  std::vector<char*> pointers;
  for (std::string& entry : environment) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string filter = "--gtest_filter=UcxProgram.*";
  char* arguments[] = {program.data(), filter.data(), nullptr};
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    execve(program.c_str(), arguments, pointers.data());
    _exit(127);
  }
  close(ends[1]);
  output_ = ends[0];
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(output_);
}

void Process::signal(int number) { kill(pid_, number); }

std::optional<std::string> Process::wait_line(const std::string& prefix,
                                              std::chrono::milliseconds patience) {
  const auto give_up = Clock::now() + patience;
  while (true) {
    for (size_t end; (end = buffer_.find('\n')) != std::string::npos;) {
      const std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (line.starts_with(prefix)) return line.substr(prefix.size());
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(give_up - Clock::now());
    if (!read_some(left)) return {};
  }
}

bool Process::read_some(std::chrono::milliseconds patience) {
  pollfd polled{output_, POLLIN, 0};
  if (patience.count() < 0 || ::poll(&polled, 1, static_cast<int>(patience.count())) <= 0) {
    return false;
  }
  char bytes[4096];
  const ssize_t count = read(output_, bytes, sizeof bytes);
  if (count <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(count));
  log_.append(bytes, static_cast<size_t>(count));
  return true;
}

int Process::wait_exit(std::chrono::milliseconds patience) {
  const auto give_up = Clock::now() + patience;
  while (Clock::now() < give_up) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      while (read_some(std::chrono::milliseconds(0))) {
      }
      if (status != 0) std::printf("%s", log_.c_str());
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    read_some(std::chrono::milliseconds(0));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return -1;
}

bool is_role(const std::string& role) { return setting(kRole) == role; }
uint32_t own_rank() { return static_cast<uint32_t>(std::stoul(setting(kRank))); }
uint32_t own_world() { return static_cast<uint32_t>(std::stoul(setting(kWorld))); }

void put_blob(const std::string& name, const std::string& bytes) {
  const std::string path = setting(kFolder) + "/" + name;
  const std::string draft = path + ".draft." + std::to_string(getpid());
  std::ofstream(draft, std::ios::binary) << bytes;
  std::filesystem::rename(draft, path);
}

std::string get_blob(const std::string& name) {
  const std::string path = setting(kFolder) + "/" + name;
  const auto give_up = Clock::now() + kProcessPatience;
  while (!std::filesystem::exists(path) && Clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A whole line at once, so that lines of gtest do not mix in.
void say(const std::string& line) {
  std::printf("\n%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace parallax::net
