// SPDX-License-Identifier: Apache-2.0
// Checks of one machine. Those that matter try the thing itself, with the library's own code.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>

#include "base/crypto.h"
#include "base/environment.h"
#include "base/interface.h"
#include "base/log.h"
#include "rendezvous/secret.h"
#include "tool/doctor.h"
#include "tool/doctor_rdma.h"
#include "tool/machine.h"
#include "tool/reach.h"
#include "tool/tool.h"
#include "transport/shm/region.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_congestion.h"

namespace parallax::tool {

namespace {

constexpr uint64_t kMemlockMin = uint64_t{64} << 20;  // rings and staging of a small job
constexpr uint64_t kShmMin = uint64_t{128} << 20;     // containers are given 64 MiB by default
constexpr uint64_t kFdsBase = 64;                     // the program's own
constexpr uint64_t kFdsPerRank = 8;                   // sockets, bells and watches, generously
constexpr uint64_t kFdsComfortable = 1024;
constexpr uint64_t kPortsBase = 16;    // listeners, and the doctor's own
constexpr uint64_t kPortsPerRank = 4;  // a connection each way, with some to spare
constexpr uint64_t kPortsTriedMax = 64;

void check_memlock(const RdmaFacts& rdma, Findings* findings) {
  rlimit bound = {};
  getrlimit(RLIMIT_MEMLOCK, &bound);
  const bool wanted = !rdma.topology.nics.empty() || rdma.is_wanted;
  const std::string have =
      bound.rlim_cur == RLIM_INFINITY
          ? "unlimited"
          : (bound.rlim_cur >> 20 > 0 ? mebibytes(bound.rlim_cur)
                                      : std::to_string(bound.rlim_cur >> 10) + " KiB");
  if (bound.rlim_cur >= kMemlockMin) {
    findings->ok("memlock", have + " may be locked");
  } else if (wanted) {
    findings->fail("memlock", have + " may be locked; RDMA devices pin the buffers they use",
                   "ulimit -l unlimited; in a container --ulimit memlock=-1; under Slurm "
                   "PropagateResourceLimitsExcept=MEMLOCK");
  } else {
    findings->ok("memlock",
                 have + " may be locked; only RDMA devices need more, and there is none");
  }
}

void check_descriptors(uint32_t world, Findings* findings) {
  rlimit bound = {};
  getrlimit(RLIMIT_NOFILE, &bound);
  const uint64_t need = kFdsBase + kFdsPerRank * world;
  const std::string text = std::to_string(bound.rlim_cur) + " descriptors; " +
                           std::to_string(world) + (world == 1 ? " rank" : " ranks") +
                           " may need " + std::to_string(need);
  const std::string remedy = "ulimit -n " + std::to_string(std::max(need, uint64_t{65536})) +
                             " (the hard limit is " + std::to_string(bound.rlim_max) + ")";
  if (bound.rlim_cur < need) {
    findings->fail("descriptors", text, remedy);
  } else if (bound.rlim_cur < kFdsComfortable) {
    findings->warn("descriptors", text + "; programs often open hundreds of their own", remedy);
  } else {
    findings->ok("descriptors", text);
  }
}

void check_shared_memory(Findings* findings) {
  SharedRegion made, attached;
  UniqueFd fd;
  Status status = SharedRegion::make(kRingBytesDefault, &made, &fd);
  if (status.ok()) status = SharedRegion::attach(fd, kRingBytesDefault, &attached);
  if (!status.ok()) {
    findings->fail("memfd", "ranks of a host cannot share memory: " + status.message(),
                   "ulimit -f unlimited; allow memfd_create (seccomp); free memory");
  } else {
    findings->ok("memfd", "a ring of " + mebibytes(kRingBytesDefault) + " was made and attached");
  }
  struct statvfs fs = {};
  if (statvfs("/dev/shm", &fs) != 0) {
    findings->warn("/dev/shm",
                   std::string("is not there: ") + std::strerror(errno) +
                       "; libparallax needs none, other libraries may",
                   "mount -t tmpfs tmpfs /dev/shm");
    return;
  }
  const uint64_t size = uint64_t{fs.f_blocks} * fs.f_frsize;
  const uint64_t left = uint64_t{fs.f_bavail} * fs.f_frsize;
  const std::string text = mebibytes(left) + " of " + mebibytes(size) + " are free";
  if (left < kShmMin) {
    findings->warn("/dev/shm", text + "; libparallax needs none, but NCCL and data loaders do",
                   "remount it larger: mount -o remount,size=1G /dev/shm; in a container "
                   "--shm-size=1g");
  } else {
    findings->ok("/dev/shm", text);
  }
}

// UCX looks for a port of its own for as long as there is none.
void check_ucx(const Settings& settings, bool has_port, Findings* findings) {
  if (!has_port) {
    return findings->warn("ucx", "not tried, as there is no free port", "see ports");
  }
  const SettingValue& folder = settings.value("module_dir");
  const std::string device = settings.value("net_device").text;
  std::string library, path, description;
  const Status status =
      try_ucx(folder.text, device.empty() ? "lo" : device, &library, &path, &description);
  if (status.ok()) {
    findings->ok("ucx", library + " opens " + description + " (" + path + ")");
  } else if (library.empty() && folder.text.empty()) {
    findings->warn(
        "ucx", status.message(),
        "only needed for transport ucx or rdma; build libparallax with UCX (libucx-dev)");
  } else if (library.empty()) {
    findings->fail("ucx", status.message(), "correct or unset module_dir (" + folder.where + ")");
  } else {
    findings->fail("ucx", status.message(),
                   "bring the interface up, or name another in PARALLAX_NET_DEVICE");
  }
}

// The kernel's range of ports for whoever asks for any, and whether it gives as many as wanted;
// false if it gives none.
bool check_ports(uint32_t world, Findings* findings) {
  constexpr const char* kRangeFile = "/proc/sys/net/ipv4/ip_local_port_range";
  const uint64_t need = kPortsBase + kPortsPerRank * world;
  uint64_t first = 0, last = 0;
  std::ifstream(kRangeFile) >> first >> last;
  const uint64_t size = last >= first && last != 0 ? last - first + 1 : 0;
  const std::string range = "ports " + std::to_string(first) + ".." + std::to_string(last);
  const std::string want = std::to_string(world) + (world == 1 ? " rank" : " ranks") +
                           " may need " + std::to_string(need);
  const std::string remedy =
      "sysctl -w net.ipv4.ip_local_port_range='32768 60999', or end what holds them (ss -tanp)";
  std::vector<UniqueFd> taken;
  int refused = 0;
  while (refused == 0 && taken.size() < std::min(need, kPortsTriedMax)) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (socket.valid() &&
        bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      taken.push_back(std::move(socket));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE) break;  // check_descriptors says it
    refused = errno;
  }
  if (size != 0 && size < need) {
    findings->fail("ports", range + "; " + want, remedy);
  } else if (refused != 0) {
    findings->fail("ports",
                   range + ": after " + std::to_string(taken.size()) +
                       " there was none: " + std::strerror(refused) + "; " + want,
                   remedy);
  } else {
    findings->ok("ports", range + "; " + want);
  }
  return refused == 0 || !taken.empty();
}

void check_address(const Interface& each, const std::string& address, Findings* findings) {
  const std::string check = "interface " + each.name;
  Listener listener;
  Probe probe;
  const Status listening = listener.start({address});
  if (!listening.ok()) {
    return findings->fail(check, listening.message(), "free a port, or mend its address");
  }
  const Status status =
      probe_peer(listener.endpoints()[0], listener.secret(), kProbeTimeoutMs, &probe);
  if (status.ok()) {
    findings->ok(check, address + " is up, and TCP connects to it");
  } else {
    findings->fail(check, address + ": " + status.message(),
                   "allow TCP on " + each.name + " in the firewall, or mend its address");
  }
}

// What jobs of several machines take: an address to listen at, and a secret.
void check_tcp(const Settings& settings, Findings* findings) {
  const std::string& device = settings.value("net_device").text;
  if (is_rdma_device(device)) return;
  const Status congestion = check_tcp_congestion(settings.value("tcp_congestion").text);
  if (!congestion.ok()) {
    findings->fail("congestion", congestion.message(), "mend it (see tcp_congestion)");
  }
  SocketAddress address;
  if (!choose_address(device, &address).ok()) return;  // net_device is a finding of its own
  const std::string file = settings.value("secret_file").text;
  std::string secret;
  const Status found =
      find_secret(file.empty() ? nullptr : file.c_str(), process_variable, &secret);
  const bool there = !secret.empty();
  wipe(&secret);
  if (!found.ok()) return findings->fail("tcp", found.message(), "mend it (see secret_file)");
  const std::string where = "ranks of other machines would find this one at " + to_text(address) +
                            " on " + interface_of(address);
  findings->ok("tcp", where + (there ? ", by the secret"
                                     : " where they meet by a unique id; else they would need a "
                                       "secret, and there is none (PARALLAX_SECRET_FILE)"));
}

void check_interfaces(const Settings& settings, Findings* findings) {
  const std::string device = settings.value("net_device").text;
  bool loopback = false, found = false, outside = false;
  for (const Interface& each : interfaces()) {
    if (each.name == device) found = true;
    if (!each.up || each.addresses.empty()) continue;
    if (each.loopback) loopback = true;
    if (!each.loopback) outside = true;
    check_address(each, each.addresses[0], findings);
  }
  if (!loopback) {
    findings->fail("interface lo", "loopback is down: ranks of one machine cannot meet over TCP",
                   "ip link set lo up");
  }
  if (!outside) {
    findings->warn("interfaces", "only loopback is up: no rank of another machine can be reached",
                   "bring an interface up; on one machine nothing needs to be done");
  }
  if (!device.empty() && !found && !is_rdma_device(device)) {
    findings->fail("net_device",
                   device + " (" + settings.value("net_device").where +
                       ") is neither an interface nor an RDMA device here",
                   "name one that `parallax info -d` lists");
  }
}

void check_clock(Findings* findings) {
  constexpr time_t kFirstRelease = 1735689600;  // 2025-01-01: this code is younger
  timespec wall = {}, before = {}, after = {};
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_MONOTONIC, &before);
  usleep(1000);
  clock_gettime(CLOCK_MONOTONIC, &after);
  char date[32] = "";
  tm parts = {};
  gmtime_r(&wall.tv_sec, &parts);
  strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &parts);
  const bool moves = after.tv_sec > before.tv_sec ||
                     (after.tv_sec == before.tv_sec && after.tv_nsec > before.tv_nsec);
  if (!moves) {
    findings->fail("clock", "the monotonic clock stands still: leases and deadlines never end",
                   "mend the machine's clock source (dmesg | grep clocksource)");
  } else if (wall.tv_sec < kFirstRelease) {
    findings->warn(
        "clock",
        std::string("it is said to be ") + date + " UTC; logs and certificates will be wrong",
        "set the clock (chronyc makestep)");
  } else {
    findings->ok("clock", std::string(date) + " UTC");
  }
}

void check_log(const Settings& settings, Findings* findings) {
  const std::string& pattern = settings.value("debug_file").text;
  if (pattern.empty()) return;
  const std::string path = log_file_name(pattern);
  const UniqueFd fd(open_log_file(path));
  if (fd.valid()) {
    findings->ok("debug_file", path + " can be written");
  } else {
    findings->warn("debug_file",
                   path + ": " + std::strerror(errno) + "; the log would go to standard error",
                   "correct debug_file (" + settings.value("debug_file").where + ")");
  }
}

}  // namespace

void check_machine(const Settings& settings, uint32_t world, const RdmaFacts& rdma,
                   Findings* findings) {
  check_memlock(rdma, findings);
  check_descriptors(world, findings);
  check_shared_memory(findings);
  const bool has_port = check_ports(world, findings);
  check_ucx(settings, has_port, findings);
  check_interfaces(settings, findings);
  check_tcp(settings, findings);
  check_clock(findings);
  check_log(settings, findings);
}

}  // namespace parallax::tool
