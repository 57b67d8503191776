// SPDX-License-Identifier: Apache-2.0
// Asking the kernel for one. See tcp_congestion.h.
#include "transport/tcp/tcp_congestion.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
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

// As the kernel has measured it so far, from its own handshake on; UINT32_MAX: it does not say.
uint32_t round_trip_us(const UniqueFd& connection) {
  tcp_info info = {};
  socklen_t bytes = sizeof info;
  const bool told = getsockopt(connection.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0;
  return told ? info.tcpi_rtt : UINT32_MAX;
}

}  // namespace

Status check_tcp_congestion(std::string_view setting) {
  if (setting == kAuto || setting == kSystem) return {};
  std::string why = "is no name of one";
  if (!setting.empty() && setting.size() < kNameBytesMax &&
      setting.find('\0') == std::string_view::npos) {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.valid() && ask_for(socket, setting)) return {};
    why = errno == EPERM ? "may not be had by this process, for the system does not allow it "
                           "(net.ipv4.tcp_allowed_congestion_control)"
                         : std::string("cannot be had (") + std::strerror(errno) + ")";
  }
  std::string there;
  std::getline(std::ifstream("/proc/sys/net/ipv4/tcp_available_congestion_control"), there);
  return invalid("open: tcp_congestion is '" + std::string(setting.substr(0, 32)) +
                 "', an algorithm of congestion control that " + why +
                 "; give auto, system, or one that the kernel has: " + there)
      .about_field("tcp_congestion");
}

bool suits_ranks(std::string_view algorithm, uint32_t round_trip_us) {
  // And bbr2, bbr3.
  return algorithm.substr(0, 3) != "bbr" || round_trip_us >= kNearRoundTripUs;
}

void set_tcp_congestion(const UniqueFd& connection, std::string_view setting) {
  if (setting == kSystem) return;
  if (setting != kAuto) {
    (void)ask_for(connection, setting);
    return;
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
