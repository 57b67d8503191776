// SPDX-License-Identifier: Apache-2.0
// See two_hosts.h.
#include "net/two_hosts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace parallax::net {

bool run_command(const std::string& command, std::string* said) {
  said->clear();
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return false;
  std::array<char, 256> bytes;
  while (std::fgets(bytes.data(), bytes.size(), pipe) != nullptr) *said += bytes.data();
  const int status = pclose(pipe);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

namespace {

// Of tests that were killed before they could remove theirs.
void remove_left_behind() {
  std::string said;
  run_command("ip netns list", &said);
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    int pid = 0, host = 0;
    if (std::sscanf(line.c_str(), "plx%dh%d", &pid, &host) != 2 || kill(pid, 0) == 0) continue;
    std::string ignored;
    run_command("ip netns del " + line.substr(0, line.find(' ')), &ignored);
  }
}

}  // namespace

TwoHosts::TwoHosts() {
  if (geteuid() != 0) {
    why_not_ = "network namespaces need root";
    return;
  }
  remove_left_behind();
  for (int host = 0; host < 2; ++host) {
    names_.push_back("plx" + std::to_string(getpid()) + "h" + std::to_string(host));
  }
  const std::string& a = names_[0];
  const std::string& b = names_[1];
  std::vector<std::string> commands = {
      "ip netns add " + a, "ip netns add " + b,
      "ip -n " + a + " link add " + kDevice + " type veth peer name " + kDevice + " netns " + b};
  for (int host = 0; host < 2; ++host) {
    const std::string in = "ip -n " + names_[host] + " ";
    // IPv6 would talk on its own, into the counters.
    commands.push_back("ip netns exec " + names_[host] +
                       " sh -c 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true'");
    commands.push_back(in + "addr add 10.77.0." + std::to_string(host + 1) + "/24 dev " + kDevice);
    commands.push_back(in + "link set lo up");
    commands.push_back(in + "link set " + kDevice + " up");
  }
  // The kernel takes up to a second to see that both ends are up.
  for (const std::string& name : names_) {
    commands.push_back("ip netns exec " + name + " timeout 5 sh -c 'until grep -q up /sys/class/" +
                       "net/" + kDevice + "/operstate; do sleep 0.02; done'");
  }
  for (const std::string& command : commands) {
    std::string said;
    if (why_not_.empty() && !run_command(command, &said)) {
      why_not_ = "no network namespaces here: '" + command + "': " + said;
    }
  }
}

TwoHosts::~TwoHosts() {
  std::string said;
  for (const std::string& name : names_) run_command("ip netns del " + name, &said);
}

void TwoHosts::join_again() const {
  const std::string device = kSecondDevice;
  on_host(0, "ip link add " + device + " type veth peer name " + device + " netns " + names_[1]);
  for (size_t host = 0; host < 2; ++host) {
    on_host(host, "ip addr add 10.78.0." + std::to_string(host + 1) + "/24 dev " + device);
    on_host(host, "ip link set " + device + " up");
  }
}

void TwoHosts::speak_six() {
  for (size_t host = 0; host < 2; ++host) {
    const std::string number = std::to_string(host + 1), device = kDevice;
    std::string said;
    if (!run_command("ip netns exec " + names_[host] + " sh -c 'echo 0 > /proc/sys/" +
                         "net/ipv6/conf/" + device + "/disable_ipv6'",
                     &said)) {
      why_not_ = "no IPv6 here: " + said;
      return;
    }
    // Without the search for duplicates, which takes a second.
    on_host(host, "ip addr add fd00:77::" + number + "/64 dev " + device + " nodad");
    on_host(host, "ip addr del 10.77.0." + number + "/24 dev " + device);
  }
}

double TwoHosts::counter(size_t host, const std::string& name, const char* device) const {
  std::string said;
  EXPECT_TRUE(run_command("ip netns exec " + names_[host] + " cat /sys/class/" + "net/" + device +
                              "/statistics/" + name,
                          &said))
      << said;
  return std::atof(said.c_str());
}

void TwoHosts::on_host(size_t host, const std::string& command) const {
  std::string said;
  EXPECT_TRUE(run_command("ip netns exec " + names_[host] + " " + command, &said))
      << command << ": " << said;
}

void TwoHosts::cut(size_t host, const char* device) const {
  on_host(host, std::string("ip link set ") + device + " down");
}

void TwoHosts::mend(size_t host) const {
  on_host(host, std::string("ip link set ") + kDevice + " up");
}

// By a hardware address that no interface has.
void TwoHosts::silence(size_t host) const {
  on_host(host, "ip neigh replace 10.77.0." + std::to_string(2 - host) +
                    " lladdr 02:00:00:00:00:99 dev " + kDevice + " nud permanent");
}

// The end of a veth pair drops what is longer than its own MTU, and says nothing.
void TwoHosts::swallow_longer_than(size_t bytes, size_t host) const {
  on_host(host, std::string("ip link set ") + kDevice + " mtu " + std::to_string(bytes));
}

// Segments of one packet each: what is segmented behind the interface would pass.
void TwoHosts::stop_offload() const {
  for (size_t host = 0; host < 2; ++host) {
    on_host(host, std::string("ip link set ") + kDevice + " gso_max_segs 1");
  }
}

}  // namespace parallax::net
