// SPDX-License-Identifier: Apache-2.0
// The doctor's own TCP. See reach.h.
#include "tool/reach.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <random>

namespace parallax::tool {

namespace {

constexpr uint16_t kPortTriesMax = 8;
constexpr int kBacklog = 4096;  // the kernel's own bound, net.core.somaxconn, is the lower one
constexpr int kAcceptsPerPass = 16;
constexpr int kCarriesPerPass = 16;  // of a prober, 64 KiB each
constexpr int64_t kAcceptPauseNs = 20 * kNanosecondsPerMillisecond;
constexpr int64_t kPauseMsMin = 5;  // of a prober that was dropped
constexpr int64_t kPauseMsMax = 200;
constexpr int kTriesMax = 100;  // in kAnswerTimeoutMs, with such pauses; also where no clock moves

// Of this side; "" where it cannot be told.
std::string local_address_of(int socket) {
  sockaddr_storage local = {};
  socklen_t bytes = sizeof local;
  auto* const address = reinterpret_cast<sockaddr*>(&local);
  char text[NI_MAXHOST] = "";
  if (getsockname(socket, address, &bytes) != 0) return "";
  return getnameinfo(address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text
                                                                                         : "";
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Status resolve(const TcpEndpoint& endpoint, Addresses* addresses) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed =
      getaddrinfo(endpoint.address.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (failed != 0) return io_error(endpoint.address + ": " + gai_strerror(failed));
  addresses->reset(list);
  return {};
}

// True once the socket is ready; false at the deadline, even where the clock stands still.
bool ready(int fd, short events, int64_t deadline_ns) {
  const SteadyClock clock;
  while (true) {
    const int64_t left_ms = (deadline_ns - clock.now_ns()) / kNanosecondsPerMillisecond;
    if (left_ms < 0) return false;
    pollfd polled = {.fd = fd, .events = events, .revents = 0};
    const int count = poll(&polled, 1, static_cast<int>(left_ms) + 1);
    if (count >= 0) return count > 0;
    if (errno != EINTR) return false;
  }
}

// 0, or errno's number; ECONNRESET too where it hung up.
int receive_all(int fd, void* out, size_t bytes, int64_t deadline_ns) {
  auto* at = static_cast<char*>(out);
  while (bytes > 0) {
    if (!ready(fd, POLLIN, deadline_ns)) return ETIMEDOUT;
    const ssize_t count = recv(fd, at, bytes, 0);
    if (count == 0) return ECONNRESET;
    if (count < 0 && errno != EINTR && errno != EAGAIN) return errno;
    if (count < 0) continue;
    at += count;
    bytes -= static_cast<size_t>(count);
  }
  return 0;
}

// `from`: null, or the address of this side. 0, or errno's number.
int connect_to(const addrinfo& address, const addrinfo* from, int64_t deadline_ns, UniqueFd* made) {
  UniqueFd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno;
  const int on = 1;
  if (from != nullptr) {
    (void)setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(socket.get(), from->ai_addr, from->ai_addrlen) != 0) return errno;
  }
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    int error = ETIMEDOUT;
    socklen_t bytes = sizeof error;
    if (ready(socket.get(), POLLOUT, deadline_ns)) {
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
    if (error != 0) return error;
  }
  *made = std::move(socket);
  return 0;
}

// Over a connection: 0, or errno's number.
int ask(const UniqueFd& socket, uint64_t magic, uint64_t secret, int64_t deadline_ns,
        ReachAnswer* answer, Probe* probe) {
  const SteadyClock clock;
  const ReachQuestion question = {.magic = magic, .secret = secret};
  const int64_t asked_ns = clock.now_ns();
  const int64_t asked_wall_ns = wall_clock_ns();
  if (send(socket.get(), &question, sizeof question, MSG_NOSIGNAL) != sizeof question) {
    return errno == EPIPE ? ECONNRESET : errno;
  }
  const int error = receive_all(socket.get(), answer, sizeof *answer, deadline_ns);
  if (error != 0) return error;
  probe->round_trip_ns = clock.now_ns() - asked_ns;
  probe->clock_ahead_ns = answer->wall_ns - asked_wall_ns - probe->round_trip_ns / 2;
  return 0;
}

}  // namespace

std::string describe(const TcpEndpoint& endpoint) {
  const bool six = endpoint.address.find(':') != std::string::npos;
  return (six ? "[" + endpoint.address + "]" : endpoint.address) + ":" +
         std::to_string(endpoint.port);
}

int64_t wall_clock_ns() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

std::vector<uint16_t> ports_across(const TcpPorts& within) {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  uint32_t first = within.first, last = within.last;
  if (first == 0) file >> first >> last;
  if (first == 0 || first >= last || last > UINT16_MAX) return {};
  std::vector<uint16_t> ports;
  for (const uint32_t eighth : {1u, 4u, 7u}) {
    ports.push_back(static_cast<uint16_t>(first + (last - first) * eighth / 8));
  }
  return ports;
}

Status Listener::listen_at(const TcpEndpoint& where, UniqueFd* made, uint16_t* port) {
  Addresses resolved;
  PARALLAX_RETURN_IF_ERROR(resolve(where, &resolved));
  UniqueFd socket(::socket(resolved->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage bound = {};
  socklen_t bytes = sizeof bound;
  // As a job: connections of before, of which the port is not free yet, are no hindrance.
  const int on = where.port != 0 ? 1 : 0;
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!socket.valid() || bind(socket.get(), resolved->ai_addr, resolved->ai_addrlen) != 0 ||
      listen(socket.get(), kBacklog) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
    return io_error("listening on " + where.address + ": " + std::strerror(errno));
  }
  // The port lies at the same place in both families.
  *port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  *made = std::move(socket);
  return {};
}

// Ranks of one host share the range, so a port that is taken is passed over.
Status Listener::listen_within(const TcpPorts& ports, TcpEndpoint* where, UniqueFd* made) {
  Status status;
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    where->port = static_cast<uint16_t>(port);
    status = listen_at(*where, made, &where->port);
    if (status.ok() || port == 0) return status;
  }
  return io_error(status.message() + ", at each of ports " + std::to_string(ports.first) + " to " +
                  std::to_string(ports.last) + " (tcp_ports)");
}

// Or at none of them, where one is taken.
void Listener::listen_at_all(const std::vector<std::string>& addresses, uint16_t port) {
  std::vector<UniqueFd> made;
  for (const std::string& address : addresses) {
    UniqueFd socket;
    if (!listen_at({.address = address, .port = port}, &socket, &port).ok()) return;
    made.push_back(std::move(socket));
  }
  for (UniqueFd& socket : made) sockets_.push_back(std::move(socket));
  other_ports_.push_back(port);
}

Status Listener::start(const std::vector<std::string>& addresses,
                       const std::vector<uint16_t>& wanted_ports, const TcpPorts& ports) {
  std::random_device source;
  secret_ = static_cast<uint64_t>(source()) << 32 | source();
  Status status;
  for (const std::string& address : addresses) {
    UniqueFd socket;
    TcpEndpoint endpoint = {.address = address, .port = 0};
    if (status.ok()) status = listen_within(ports, &endpoint, &socket);
    if (!status.ok()) break;
    endpoints_.push_back(endpoint);
    sockets_.push_back(std::move(socket));
  }
  const uint32_t last = ports.first == 0 ? UINT16_MAX : ports.last;
  for (const uint16_t port : wanted_ports) {
    // A few in a row, as some may be taken.
    for (uint32_t next = port; status.ok() && next <= last && next < uint32_t{port} + kPortTriesMax;
         ++next) {
      const size_t before = other_ports_.size();
      listen_at_all(addresses, static_cast<uint16_t>(next));
      if (other_ports_.size() > before) break;
    }
  }
  if (status.ok()) stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (status.ok() && !stop_.valid())
    status = limit(std::string("eventfd: ") + std::strerror(errno));
  if (!status.ok()) {
    sockets_.clear();  // without the thread nobody would answer
    endpoints_.clear();
    other_ports_.clear();
    return status;
  }
  probers_.reserve(kProbersMax);
  polled_.reserve(1 + sockets_.size() + kProbersMax);
  thread_ = std::thread([this] { serve(); });
  return {};
}

Listener::~Listener() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void Listener::serve() {
  while (true) {
    sleep();
    if (polled_[0].revents != 0) return;
    look();
    if (clock_.now_ns() < accept_again_ns_) continue;
    for (const UniqueFd& socket : sockets_) accept_all(socket.get());
  }
}

// Until something happens, the oldest prober's time is over, or there may be descriptors again.
void Listener::sleep() {
  const int64_t now_ns = clock_.now_ns();
  const bool pauses = now_ns < accept_again_ns_;
  int64_t due_ns = pauses ? accept_again_ns_ : kNever;
  for (const Prober& prober : probers_) due_ns = std::min(due_ns, prober.deadline_ns);
  polled_.assign(1, pollfd{.fd = stop_.get(), .events = POLLIN, .revents = 0});
  for (const UniqueFd& socket : sockets_) {
    if (!pauses) polled_.push_back({.fd = socket.get(), .events = POLLIN, .revents = 0});
  }
  for (const Prober& prober : probers_) {
    const short events = prober.gives ? POLLOUT : POLLIN;
    polled_.push_back({.fd = prober.socket.get(), .events = events, .revents = 0});
  }
  const int64_t left_ns = std::max<int64_t>(0, due_ns - now_ns);
  const int timeout_ms =
      due_ns == kNever ? -1 : static_cast<int>(left_ns / kNanosecondsPerMillisecond + 1);
  if (poll(polled_.data(), polled_.size(), timeout_ms) < 0) polled_[0].revents = 0;  // a signal
}

void Listener::look() {
  const int64_t now_ns = clock_.now_ns();
  std::erase_if(probers_,
                [&](Prober& prober) { return done_with(prober) || now_ns >= prober.deadline_ns; });
}

// Reads the secret and answers it; true once the connection can be closed.
bool Listener::done_with(Prober& prober) {
  if (prober.carries) return carried(prober);
  const ssize_t count = recv(prober.socket.get(), prober.said.data() + prober.said_bytes,
                             prober.said.size() - prober.said_bytes, 0);
  if (count < 0) return errno != EAGAIN && errno != EINTR;
  prober.said_bytes += static_cast<size_t>(count);
  if (count > 0 && prober.said_bytes < prober.said.size()) return false;
  ReachQuestion question;
  std::memcpy(&question, prober.said.data(), sizeof question);
  const bool carries = question.magic == kCarryMagic;
  if (count == 0 || (question.magic != kReachMagic && !carries) || question.secret != secret_) {
    return true;
  }
  const ReachAnswer answer = {.secret = secret_, .wall_ns = wall_clock_ns()};
  (void)!send(prober.socket.get(), &answer, sizeof answer, MSG_NOSIGNAL);
  if (!carries) return true;
  prober.carries = true;
  prober.deadline_ns = clock_.now_ns() + kCarryTimeoutMs * kNanosecondsPerMillisecond;
  return carried(prober);
}

// Takes what there is, or gives what there is room for; true once the connection can be closed.
bool Listener::carried(Prober& prober) {
  for (int i = 0; i < kCarriesPerPass; ++i) {
    if (prober.gives && prober.carried_bytes == 0) return true;
    const ssize_t count = prober.gives
                              ? send(prober.socket.get(), carried_.data(),
                                     std::min(carried_.size(), prober.carried_bytes), MSG_NOSIGNAL)
                              : recv(prober.socket.get(), carried_.data(), carried_.size(), 0);
    if (count < 0) return errno != EAGAIN && errno != EINTR;
    if (prober.gives) {
      prober.carried_bytes -= static_cast<size_t>(count);
      continue;
    }
    prober.carried_bytes += static_cast<size_t>(count);
    if (prober.carried_bytes > kCarriedBytesMax) return true;
    prober.gives = count == 0;
  }
  return false;
}

void Listener::accept_all(int listener) {
  for (int i = 0; i < kAcceptsPerPass; ++i) {
    UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid() && (errno == ECONNABORTED || errno == EINTR)) continue;
    if (!socket.valid()) {
      if (errno == EAGAIN) return;
      make_room();
      accept_again_ns_ = clock_.now_ns() + kAcceptPauseNs;
      return;
    }
    if (probers_.size() == kProbersMax) make_room();
    Prober prober;
    prober.socket = std::move(socket);
    prober.deadline_ns = clock_.now_ns() + kProberTimeoutMs * kNanosecondsPerMillisecond;
    if (!done_with(prober)) probers_.push_back(std::move(prober));
  }
}

// Drops the oldest of those that have sent nothing, else the oldest of all.
void Listener::make_room() {
  if (probers_.empty()) return;
  const auto silent = std::find_if(probers_.begin(), probers_.end(),
                                   [](const Prober& each) { return each.said_bytes == 0; });
  probers_.erase(silent == probers_.end() ? probers_.begin() : silent);
}

namespace {

// Connects and asks, again where the other side hangs up. *socket: over which it answered.
Status ask_peer(const TcpEndpoint& peer, const ReachQuestion& question, int64_t connect_ms,
                int64_t until_ns, Probe* probe, UniqueFd* asked) {
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const int64_t connected_by_ns =
      std::min(until_ns, start_ns + connect_ms * kNanosecondsPerMillisecond);
  const int64_t deadline_ns =
      std::min(until_ns, start_ns + kAnswerTimeoutMs * kNanosecondsPerMillisecond);
  Addresses resolved, from;
  PARALLAX_RETURN_IF_ERROR(resolve(peer, &resolved));
  if (!peer.from.empty()) PARALLAX_RETURN_IF_ERROR(resolve({.address = peer.from}, &from));
  const auto failed = [&peer](const std::string& why) {
    return io_error(describe(peer) + ": " + why);
  };
  bool was_shown_out = false;
  int64_t pause_ms = kPauseMsMin;
  for (int tries = 0; tries < kTriesMax && clock.now_ns() < deadline_ns; ++tries) {
    UniqueFd socket;
    int error =
        connect_to(*resolved, from.get(), was_shown_out ? deadline_ns : connected_by_ns, &socket);
    if (error == ETIMEDOUT && !was_shown_out) {
      return failed("no answer after " + std::to_string(connect_ms) + " ms");
    }
    ReachAnswer answer;
    if (error == 0) probe->local_address = local_address_of(socket.get());
    if (error == 0) {
      error = ask(socket, question.magic, question.secret, deadline_ns, &answer, probe);
    }
    if (error == 0) {
      *asked = std::move(socket);
      return answer.secret == question.secret ? Status() : failed("someone else answers there");
    }
    if (error == ETIMEDOUT) break;
    if (error != ECONNRESET) return failed(std::strerror(error));
    was_shown_out = true;
    usleep(static_cast<useconds_t>(pause_ms * 1000));
    pause_ms = std::min(2 * pause_ms, kPauseMsMax);
  }
  return failed(was_shown_out ? "it hangs up on whoever connects: someone else listens there, or a "
                                "proxy or firewall between"
                              : "it takes the connection, but gave no answer in " +
                                    std::to_string(kAnswerTimeoutMs) + " ms");
}

// Sends for a while, at most what is asked for: 0, or errno's number.
int send_for_a_while(int fd, size_t bytes_max, int64_t deadline_ns, size_t* sent) {
  static constexpr std::array<char, 64 << 10> kBytes = {};
  const SteadyClock clock;
  const int64_t enough_ns = clock.now_ns() + kCarrySendMs * kNanosecondsPerMillisecond;
  while (*sent < bytes_max && (*sent == 0 || clock.now_ns() < enough_ns)) {
    if (!ready(fd, POLLOUT, *sent == 0 ? deadline_ns : enough_ns)) break;
    const ssize_t count =
        send(fd, kBytes.data(), std::min(kBytes.size(), bytes_max - *sent), MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR && errno != EAGAIN) return errno;
    if (count > 0) *sent += static_cast<size_t>(count);
  }
  return shutdown(fd, SHUT_WR) == 0 ? 0 : errno;
}

// Over a connection: 0, or errno's number.
int carry(int fd, size_t bytes_max, int64_t deadline_ns, Carried* carried) {
  const SteadyClock clock;
  const int64_t from_ns = clock.now_ns();
  int error =
      send_for_a_while(fd, std::min(bytes_max, kCarriedBytesMax), deadline_ns, &carried->bytes);
  std::array<char, 64 << 10> back;
  while (error == 0 && carried->back_bytes < carried->bytes) {
    if (!ready(fd, POLLIN, deadline_ns)) return ETIMEDOUT;
    const ssize_t count =
        recv(fd, back.data(), std::min(back.size(), carried->bytes - carried->back_bytes), 0);
    if (count == 0) return ECONNRESET;
    if (count < 0 && errno != EINTR && errno != EAGAIN) error = errno;
    if (count > 0) carried->back_bytes += static_cast<size_t>(count);
  }
  carried->there_and_back_ns = clock.now_ns() - from_ns;
  return error;
}

}  // namespace

Status probe_peer(const TcpEndpoint& peer, uint64_t secret, int64_t connect_ms, Probe* probe,
                  int64_t until_ns) {
  UniqueFd socket;
  return ask_peer(peer, {.secret = secret}, connect_ms, until_ns, probe, &socket);
}

Status carry_to_peer(const TcpEndpoint& peer, uint64_t secret, size_t bytes_max, Carried* carried,
                     int64_t until_ns) {
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const int64_t deadline_ns =
      std::min(until_ns, start_ns + kCarryTimeoutMs * kNanosecondsPerMillisecond);
  int64_t pause_ms = kPauseMsMin;
  int error = 0;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    UniqueFd socket;
    Probe probe;
    PARALLAX_RETURN_IF_ERROR(ask_peer(peer, {.magic = kCarryMagic, .secret = secret},
                                      kCarryTimeoutMs, deadline_ns, &probe, &socket));
    *carried = {};
    error = carry(socket.get(), bytes_max, deadline_ns, carried);
    if (error == 0) return {};
    // A listener that has no room left drops its oldest: again, as after a question.
    if ((error != ECONNRESET && error != EPIPE && error != ENOTCONN) ||
        clock.now_ns() >= deadline_ns)
      break;
    usleep(static_cast<useconds_t>(pause_ms * 1000));
    pause_ms = std::min(2 * pause_ms, kPauseMsMax);
  }
  return io_error(
      describe(peer) + ": " +
      (error == ETIMEDOUT
           ? "of " + std::to_string(carried->bytes) + " bytes " +
                 std::to_string(carried->back_bytes) + " came back in " +
                 std::to_string((clock.now_ns() - start_ns) / kNanosecondsPerMillisecond) + " ms"
           : std::strerror(error)));
}

}  // namespace parallax::tool
