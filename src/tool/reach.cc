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

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>

#include "base/clock.h"

namespace parallax::tool {

namespace {

constexpr int kStrangerTimeoutMs = 1000;
constexpr int kBacklog = 64;

// Little-endian hosts only, as all of the wire format is.
struct Question {
  uint64_t magic = 0x3f72746f63646c70;
  uint64_t secret = 0;
};
struct Answer {
  uint64_t secret = 0;
  int64_t wall_ns = 0;
};

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

// True once the socket is ready; false at the deadline.
bool ready(int fd, short events, int64_t deadline_ns) {
  const SteadyClock clock;
  while (true) {
    const int64_t left_ms = (deadline_ns - clock.now_ns()) / kNanosecondsPerMillisecond;
    if (left_ms < 0) return false;
    pollfd polled = {.fd = fd, .events = events, .revents = 0};
    const int count = poll(&polled, 1, static_cast<int>(left_ms) + 1);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
}

// All of it, or errno.
bool receive_all(int fd, void* out, size_t bytes, int64_t deadline_ns) {
  auto* at = static_cast<char*>(out);
  while (bytes > 0) {
    if (!ready(fd, POLLIN, deadline_ns)) return errno = ETIMEDOUT, false;
    const ssize_t count = recv(fd, at, bytes, 0);
    if (count == 0) return errno = ECONNRESET, false;
    if (count < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (count < 0) continue;
    at += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}

Status failed(const TcpEndpoint& peer, int64_t timeout_ms) {
  const std::string why = errno == ETIMEDOUT
                              ? "no answer after " + std::to_string(timeout_ms) + " ms"
                              : std::string(std::strerror(errno));
  return io_error(describe(peer) + ": " + why);
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

Status Listener::start(const std::vector<std::string>& addresses) {
  std::random_device source;
  secret_ = static_cast<uint64_t>(source()) << 32 | source();
  for (const std::string& address : addresses) {
    Addresses resolved;
    PARALLAX_RETURN_IF_ERROR(resolve({.address = address, .port = 0}, &resolved));
    UniqueFd socket(::socket(resolved->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_storage bound = {};
    socklen_t bytes = sizeof bound;
    if (!socket.valid() || bind(socket.get(), resolved->ai_addr, resolved->ai_addrlen) != 0 ||
        listen(socket.get(), kBacklog) != 0 ||
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
      return io_error("listening on " + address + ": " + std::strerror(errno));
    }
    // The port lies at the same place in both families.
    const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
    endpoints_.push_back({.address = address, .port = port});
    sockets_.push_back(std::move(socket));
  }
  stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.valid()) return limit(std::string("eventfd: ") + std::strerror(errno));
  thread_ = std::thread([this] { serve(); });
  return {};
}

Listener::~Listener() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void Listener::answer(int socket) const {
  const SteadyClock clock;
  const int64_t deadline_ns = clock.now_ns() + kStrangerTimeoutMs * kNanosecondsPerMillisecond;
  Question question;
  if (!receive_all(socket, &question, sizeof question, deadline_ns)) return;
  if (question.magic != Question().magic || question.secret != secret_) return;
  const Answer answer = {.secret = secret_, .wall_ns = wall_clock_ns()};
  (void)!send(socket, &answer, sizeof answer, MSG_NOSIGNAL);
}

void Listener::serve() {
  std::vector<pollfd> polled = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  for (const UniqueFd& socket : sockets_) {
    polled.push_back({.fd = socket.get(), .events = POLLIN, .revents = 0});
  }
  while (true) {
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const UniqueFd accepted(accept4(polled[i].fd, nullptr, nullptr, SOCK_CLOEXEC));
      if (accepted.valid()) answer(accepted.get());
    }
  }
}

Status probe_peer(const TcpEndpoint& peer, uint64_t secret, int64_t timeout_ms, Probe* probe) {
  const SteadyClock clock;
  const int64_t deadline_ns = clock.now_ns() + timeout_ms * kNanosecondsPerMillisecond;
  Addresses resolved;
  PARALLAX_RETURN_IF_ERROR(resolve(peer, &resolved));
  const UniqueFd socket(
      ::socket(resolved->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return failed(peer, timeout_ms);
  if (connect(socket.get(), resolved->ai_addr, resolved->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return failed(peer, timeout_ms);
    int error = ETIMEDOUT;
    socklen_t bytes = sizeof error;
    if (ready(socket.get(), POLLOUT, deadline_ns)) {
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
    errno = error;
    if (error != 0) return failed(peer, timeout_ms);
  }
  Question question;
  question.secret = secret;
  Answer answer;
  const int64_t asked_ns = clock.now_ns();
  const int64_t asked_wall_ns = wall_clock_ns();
  if (send(socket.get(), &question, sizeof question, MSG_NOSIGNAL) != sizeof question ||
      !receive_all(socket.get(), &answer, sizeof answer, deadline_ns)) {
    return failed(peer, timeout_ms);
  }
  probe->round_trip_ns = clock.now_ns() - asked_ns;
  probe->clock_ahead_ns = answer.wall_ns - asked_wall_ns - probe->round_trip_ns / 2;
  if (answer.secret != secret) return io_error(describe(peer) + ": someone else answers there");
  return {};
}

}  // namespace parallax::tool
