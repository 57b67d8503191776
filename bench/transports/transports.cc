// SPDX-License-Identifier: Apache-2.0
// What a transport between hosts makes of a connection over loopback, beside raw sockets that do
// the same: round trips of 64 bytes, both sides polling, and messages of 60 KiB one way, summed as
// floats where they arrive. Two processes, one thread each. The ways take turns, round after round;
// printed are medians:
//
//   parallax_transports [ROUNDS [MEGABYTES]]
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/tcp_socket.h"
#include "transport/module/loader.h"
#include "transport/tcp/tcp_transport.h"

namespace {

using parallax::Segment;

constexpr size_t kMessageBytes = 60 << 10;
constexpr size_t kRoundTripBytes = 64;
constexpr uint64_t kRoundTrips = 20000;

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "parallax_transports: %s\n", why.c_str());
  std::exit(1);
}

void expect(const parallax::Status& status) {
  if (!status.ok()) fail(status.message());
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds(int who) {
  rusage used = {};
  getrusage(who, &used);
  const auto of = [](const timeval& time) { return time.tv_sec + 1e-6 * time.tv_usec; };
  return of(used.ru_utime) + of(used.ru_stime);
}

void sum(std::vector<float>& into, const std::byte* bytes, size_t count) {
  for (size_t i = 0; i < count / sizeof(float); ++i) {
    float value;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    into[i] += value;
  }
}

// One side of a connection: what it sends, and each message that it hears.
class Side {
 public:
  virtual ~Side() = default;
  virtual void send(const std::byte* bytes, size_t count) = 0;
  // Returns once `count` messages of `bytes` were heard.
  virtual void hear(uint64_t count, size_t bytes, std::vector<float>& into) = 0;
  virtual void flush() {}
};

class Raw final : public Side {
 public:
  explicit Raw(int socket) : socket_(socket) {}
  void send(const std::byte* bytes, size_t count) override {
    while (count > 0) {
      const ssize_t sent = ::send(socket_, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN) fail(std::strerror(errno));
      if (sent <= 0) continue;
      bytes += sent;
      count -= static_cast<size_t>(sent);
    }
  }
  void hear(uint64_t count, size_t bytes, std::vector<float>& into) override {
    for (; count > 0; --count) {
      for (size_t there = 0; there < bytes;) {
        const ssize_t got = recv(socket_, buffer_.data() + there, bytes - there, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) fail("the other side is gone");
        if (got > 0) there += static_cast<size_t>(got);
      }
      sum(into, buffer_.data(), bytes);
    }
  }

 private:
  const int socket_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMessageBytes);
};

class Carried final : public Side, private parallax::Receiver {
 public:
  Carried(std::unique_ptr<parallax::NetworkTransport> transport, uint32_t peer)
      : transport_(std::move(transport)), peer_(peer) {}
  void send(const std::byte* bytes, size_t count) override {
    const Segment segment{bytes, count};
    while (!transport_->writable(peer_)) transport_->poll(*this);
    expect(transport_->send(peer_, {&segment, 1}, 0));
    ++pending_;
  }
  void hear(uint64_t count, size_t, std::vector<float>& into) override {
    into_ = &into;
    for (const uint64_t until = done_ + count; heard_ < until;) transport_->poll(*this);
    done_ += count;
  }
  void flush() override {
    while (pending_ > 0) transport_->poll(*this);
  }

 private:
  void on_message(uint32_t, std::span<const std::byte> message) override {
    ++heard_;
    sum(*into_, message.data(), message.size());
  }
  void on_sent(uint64_t) override { --pending_; }
  void on_lost(uint32_t, parallax::Loss, std::string_view why) override { fail(std::string(why)); }

  std::unique_ptr<parallax::NetworkTransport> transport_;
  const uint32_t peer_;
  std::vector<float> first_ = std::vector<float>(kMessageBytes / sizeof(float));
  std::vector<float>* into_ = &first_;
  uint64_t heard_ = 0, done_ = 0, pending_ = 0;
};

// Both sides tell each other where they are by a socket of their own.
using Make = std::function<std::unique_ptr<Side>(uint32_t rank, int channel)>;

std::string exchanged(int channel, const std::string& own) {
  const uint32_t bytes = static_cast<uint32_t>(own.size());
  if (write(channel, &bytes, sizeof bytes) != sizeof bytes ||
      write(channel, own.data(), bytes) != static_cast<ssize_t>(bytes)) {
    fail("the other side is gone");
  }
  uint32_t there = 0;
  if (recv(channel, &there, sizeof there, MSG_WAITALL) != sizeof there) fail("no address");
  std::string other(there, '\0');
  if (recv(channel, other.data(), there, MSG_WAITALL) != static_cast<ssize_t>(there)) {
    fail("no address");
  }
  return other;
}

std::unique_ptr<Side> meet(std::unique_ptr<parallax::NetworkTransport> transport, uint32_t rank,
                           int channel) {
  const uint32_t peer = 1 - rank;
  expect(transport->connect(peer, exchanged(channel, transport->address())));
  uint32_t missing = 0;
  expect(transport->wire({&peer, 1}, parallax::SteadyClock().now_ns() + 10'000'000'000, &missing));
  return std::make_unique<Carried>(std::move(transport), peer);
}

Make tcp(parallax::TcpSecurity security) {
  return [security](uint32_t rank, int channel) {
    parallax::TcpOptions options;
    options.rank = rank;
    options.world = 2;
    options.net_device = "lo";
    options.security = security;
    std::unique_ptr<parallax::TcpTransport> made;
    expect(parallax::TcpTransport::create(options, &made));
    return meet(std::move(made), rank, channel);
  };
}

std::unique_ptr<Side> ucx(uint32_t rank, int channel) {
  const parallax::ParallaxTransportModule* module = nullptr;
  parallax::ModuleReport report;
  expect(parallax::load_ucx_module("", &module, &report));
  std::unique_ptr<parallax::NetworkTransport> made;
  expect(
      module->create({.rank = rank, .world = 2, .net_device = "lo", .transports = "tcp"}, &made));
  return meet(std::move(made), rank, channel);
}

std::unique_ptr<Side> raw(uint32_t rank, int channel) {
  parallax::UniqueFd listener, socket;
  parallax::SocketAddress at;
  if (rank == 0 && parallax::tcp_listen_at(parallax::make_address(std::string("\x7f\0\0\1", 4), 0),
                                           &listener) != 0) {
    fail("no port");
  }
  if (rank == 0) expect(parallax::tcp_name(listener, &at));
  const std::string port = exchanged(channel, std::to_string(rank == 0 ? port_of(at) : 0));
  if (rank == 1) {
    at = parallax::make_address(std::string("\x7f\0\0\1", 4),
                                static_cast<uint16_t>(std::stoul(port)));
    if (parallax::tcp_connect(at, &socket) != 0) fail("not connected");
  }
  while (rank == 0 && parallax::tcp_accept(listener, &socket, &at) != parallax::Accepted::kOne) {
  }
  const int connected = dup(socket.get());
  while (parallax::tcp_connected(socket) == ENOTCONN) {
  }
  return std::make_unique<Raw>(connected);
}

struct Figures {
  double round_trip_us = 0, gb_per_s = 0, cpu_s_per_gb = 0;
};

void round_trips(Side& side, uint32_t rank, const std::vector<std::byte>& message,
                 std::vector<float>& into, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    if (rank == 0) side.send(message.data(), kRoundTripBytes);
    side.hear(1, kRoundTripBytes, into);
    if (rank == 1) side.send(message.data(), kRoundTripBytes);
  }
}

// Rank 1 sends, rank 0 sums and answers at the end.
void one_way(Side& side, uint32_t rank, const std::vector<std::byte>& message,
             std::vector<float>& into, uint64_t count) {
  if (rank == 1) {
    for (uint64_t i = 0; i < count; ++i) side.send(message.data(), kMessageBytes);
    side.hear(1, kRoundTripBytes, into);
    side.flush();
    return;
  }
  side.hear(count, kMessageBytes, into);
  side.send(message.data(), kRoundTripBytes);
  side.flush();
}

Figures play(const Make& make, uint64_t count) {
  int channel[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0) fail("no socket pair");
  const std::vector<std::byte> message(kMessageBytes, std::byte{0});
  std::vector<float> into(kMessageBytes / sizeof(float));
  const auto measure = [&](uint32_t rank, Figures* figures) {
    const std::unique_ptr<Side> side = make(rank, channel[rank]);
    round_trips(*side, rank, message, into, kRoundTrips / 10);
    double began = seconds();
    round_trips(*side, rank, message, into, kRoundTrips);
    figures->round_trip_us = 1e6 * (seconds() - began) / kRoundTrips;
    one_way(*side, rank, message, into, count / 10);
    const double cpu = cpu_seconds(RUSAGE_SELF);
    began = seconds();
    one_way(*side, rank, message, into, count);
    const double gb = 1e-9 * static_cast<double>(count * kMessageBytes);
    figures->gb_per_s = gb / (seconds() - began);
    figures->cpu_s_per_gb = (cpu_seconds(RUSAGE_SELF) - cpu) / gb;
  };
  Figures own, other;
  int result[2];
  if (pipe(result) != 0) fail("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    measure(1, &other);
    _exit(write(result[1], &other, sizeof other) == sizeof other ? 0 : 1);
  }
  const pid_t second =
      fork();  // a process of its own, since UCX stays with the first that loads it
  if (second == 0) {
    measure(0, &own);
    _exit(write(result[1], &own, sizeof own) == sizeof own ? 0 : 1);
  }
  Figures both[2];
  for (Figures& each : both) {
    if (read(result[0], &each, sizeof each) != sizeof each) fail("a side failed");
  }
  for (const pid_t pid : {child, second}) waitpid(pid, nullptr, 0);
  for (const int descriptor : {channel[0], channel[1], result[0], result[1]}) close(descriptor);
  own = both[0];
  own.cpu_s_per_gb += both[1].cpu_s_per_gb;
  return own;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argument_count, char** arguments) {
  const int rounds = argument_count > 1 ? std::atoi(arguments[1]) : 5;
  const uint64_t megabytes = argument_count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 2000;
  const std::pair<const char*, Make> ways[] = {
      {"raw sockets", raw},
      {"tcp, handshake", tcp(parallax::TcpSecurity::kHandshake)},
      {"tcp, authenticate", tcp(parallax::TcpSecurity::kAuthenticate)},
      {"tcp, encrypt", tcp(parallax::TcpSecurity::kEncrypt)},
      {"UCX tcp", ucx},
  };
  constexpr size_t kWays = std::size(ways);
  std::vector<Figures> figures[kWays];
  for (int round = 0; round < rounds; ++round) {
    for (size_t way = 0; way < kWays; ++way) {
      figures[way].push_back(play(ways[way].second, megabytes * 1000000 / kMessageBytes));
    }
  }
  std::printf("%-18s %14s %10s %12s\n", "", "64 B trip, us", "GB/s", "CPU s/GB");
  for (size_t way = 0; way < kWays; ++way) {
    std::vector<double> trips, speeds, costs;
    for (const Figures& each : figures[way]) {
      trips.push_back(each.round_trip_us);
      speeds.push_back(each.gb_per_s);
      costs.push_back(each.cpu_s_per_gb);
    }
    std::printf("%-18s %14.2f %10.2f %12.2f\n", ways[way].first, median(trips), median(speeds),
                median(costs));
  }
  return 0;
}
