// SPDX-License-Identifier: Apache-2.0
// Asking the kernel for one. See tcp_congestion.h.
#include "transport/tcp/tcp_congestion.h"

// Has the shortest round trip, which netinet/tcp.h lacks; the two exclude each other.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>

#include "base/log.h"

namespace parallax {

namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kSystem = "system";

// The first that the kernel has and lets this process have: the second one each kernel has.
constexpr std::string_view kForRanks[] = {"cubic", "reno"};

// As the kernel holds a name, with the zero behind it.
constexpr size_t kNameBytesMax = 16;

bool ask_for(const UniqueFd& socket, std::string_view algorithm) {
  return setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, algorithm.data(),
                    static_cast<socklen_t>(algorithm.size())) == 0;
}

std::string algorithm_of(const UniqueFd& socket) {
  std::array<char, kNameBytesMax> name = {};
  socklen_t bytes = name.size() - 1;
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) != 0) return {};
  return name.data();
}

// The shortest so far, from the kernel's own handshake on: of the others some waited in queues, or
// for an acknowledgement that was held back. UINT32_MAX: not known.
uint32_t round_trip_us(const UniqueFd& connection) {
  tcp_info info = {};
  socklen_t bytes = sizeof info;
  const bool told = getsockopt(connection.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
                    bytes >= offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt;
  return told ? info.tcpi_min_rtt : UINT32_MAX;
}

std::string line_of(const char* path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

}  // namespace

Status check_tcp_congestion(std::string_view setting) {
  if (setting == kAuto || setting == kSystem) return {};
  std::string why = "is no name of one; the kernel has ";
  const char* those = "/proc/sys/net/ipv4/tcp_available_congestion_control";
  if (!setting.empty() && setting.size() < kNameBytesMax &&
      setting.find('\0') == std::string_view::npos) {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Without a socket nothing is known of it, and connections have troubles of their own.
    if (!socket.valid() || ask_for(socket, setting)) return {};
    why = "the kernel has not (" + std::string(std::strerror(errno)) + "); it has ";
    if (errno == EPERM) {
      why = "the system does not let this process have; it lets it have ";
      those = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    }
  }
  return invalid("open: tcp_congestion is '" + std::string(setting.substr(0, 32)) +
                 "', an algorithm of congestion control that " + why + line_of(those) +
                 "; give one of these, auto, or system")
      .about_field("tcp_congestion");
}

bool suits_ranks(std::string_view algorithm, uint32_t round_trip_us) {
  // And bbr2, bbr3.
  return algorithm.substr(0, 3) != "bbr" || round_trip_us >= kNearRoundTripUs;
}

void set_tcp_congestion(const UniqueFd& connection, std::string_view setting) {
  if (setting == kSystem) return;
  if (setting != kAuto) {
    if (ask_for(connection, setting)) return;
    const std::string refused = std::strerror(errno);
    return log_write_once(LogLevel::kWarn, LogSubsystem::kNet,
                          "tcp_congestion is " + std::string(setting) +
                              ", which the kernel refuses for a connection (" + refused +
                              "); it keeps " + algorithm_of(connection));
  }
  const std::string own = algorithm_of(connection);
  if (suits_ranks(own, round_trip_us(connection))) return;
  const auto* const had =
      std::find_if(std::begin(kForRanks), std::end(kForRanks),
                   [&](std::string_view each) { return ask_for(connection, each); });
  if (had == std::end(kForRanks)) return;
  log_write_once(LogLevel::kInfo, LogSubsystem::kNet,
                 "tcp between near ranks goes by " + std::string(*had) + ", not by the system's " +
                     own + ", which leaves links idle (tcp_congestion = auto)");
}

}  // namespace parallax
