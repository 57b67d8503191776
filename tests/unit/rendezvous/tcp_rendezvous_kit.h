// SPDX-License-Identifier: Apache-2.0
// What tests of the tcp rendezvous share: a free port, ranks as threads and as processes, and a
// stranger's plain socket. Tests only.
#ifndef PARALLAX_TESTS_UNIT_RENDEZVOUS_TCP_RENDEZVOUS_KIT_H_
#define PARALLAX_TESTS_UNIT_RENDEZVOUS_TCP_RENDEZVOUS_KIT_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/tcp_socket.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/tcp_address.h"
#include "rendezvous/tcp_listen.h"
#include "unit/rendezvous/rendezvous_kit.h"

namespace parallax::tcp_rendezvous_kit {

using rendezvous_kit::has;
using rendezvous_kit::in_ms;
using rendezvous_kit::kClock;
using rendezvous_kit::kForeverMs;

inline std::string host_of(uint32_t rank) { return "host" + std::to_string(rank); }

// A port of 127.0.0.1 that was free a moment ago.
inline uint16_t free_port() {
  UniqueFd listener;
  SocketAddress address = make_address(std::string("\x7f\0\0\1", 4), 0);
  EXPECT_TRUE(tcp_listen(address, &listener).ok());
  EXPECT_TRUE(tcp_name(listener, &address).ok());
  return port_of(address);
}

inline UniqueFd connect_plainly(uint16_t port) {
  const SocketAddress address = make_address(std::string("\x7f\0\0\1", 4), port);
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes),
      0);
  return socket;
}

class TcpRendezvousTest : public ::testing::Test {
 protected:
  TcpRendezvousTest() : port_(free_port()), where_("tcp:127.0.0.1:" + std::to_string(port_)) {}

  Status make(uint32_t rank, uint32_t world, std::unique_ptr<Rendezvous>* rendezvous) {
    parallax_options_t options{};
    options.size = sizeof options;
    options.rank = rank;
    options.world = world;
    options.rendezvous = where_.c_str();
    options.secret_file = secret_file_.empty() ? nullptr : secret_file_.c_str();
    options.lease_ms = lease_ms_;
    return make_rendezvous(options, host_of(rank), kClock, rendezvous);
  }

  static std::string blob_of(uint32_t rank, int round) {
    return std::string(rank % 5 * 700, static_cast<char>(round)) + std::to_string(rank);
  }

  static Status gather(Rendezvous& rendezvous, const std::string& blob, int64_t patience_ms,
                       std::vector<std::string>* all) {
    return rendezvous.allgather(std::as_bytes(std::span(blob)), in_ms(patience_ms), all);
  }

  // One rank's rendezvous from its first round to its last.
  void attend(uint32_t rank, uint32_t world, int rounds) {
    std::unique_ptr<Rendezvous> rendezvous;
    const Status status = make(rank, world, &rendezvous);
    ASSERT_TRUE(status.ok()) << status.message();
    attend(*rendezvous, rank, world, rounds);
  }

  static void attend(Rendezvous& mine, uint32_t rank, uint32_t world, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::string> all;
      const Status status = gather(mine, blob_of(rank, round), kForeverMs, &all);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(all.size(), world);
      for (uint32_t other = 0; other < world; ++other) {
        EXPECT_EQ(all[other], blob_of(other, round));
      }
    }
    mine.finish_bootstrap();
    EXPECT_TRUE(mine.finish().ok());
  }

  void meet(uint32_t world, int rounds) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < world; ++rank) {
      threads.emplace_back([=, this] { attend(world - 1 - rank, world, rounds); });
    }
    for (auto& thread : threads) thread.join();
  }

  // A process that joins `rounds` rounds as `rank` and says so, and then waits to be ended.
  pid_t start_rank(uint32_t rank, uint32_t world, int rounds, int* said) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      std::unique_ptr<Rendezvous> rendezvous;
      std::vector<std::string> all;
      if (!make(rank, world, &rendezvous).ok()) ::_exit(1);
      for (int round = 0; round < rounds; ++round) {
        if (!gather(*rendezvous, blob_of(rank, round), kForeverMs, &all).ok()) ::_exit(2);
      }
      (void)!::write(ends[1], "x", 1);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    *said = ends[0];
    return child;
  }

  // Once rank 0, in a process of its own, listens.
  UniqueFd connect_patiently() const {
    const SocketAddress address = make_address(std::string("\x7f\0\0\1", 4), port_);
    for (;;) {
      UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
      if (::connect(socket.get(), name, address.bytes) == 0) return socket;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  static void await(int said) {
    char byte = 0;
    EXPECT_EQ(::read(said, &byte, 1), 1);
    ::close(said);
  }

  static void end(pid_t child) { rendezvous_kit::end(child); }

  uint16_t port_;
  std::string where_;
  std::string secret_file_;
  uint32_t lease_ms_ = kForeverMs;
};

}  // namespace parallax::tcp_rendezvous_kit

#endif  // PARALLAX_TESTS_UNIT_RENDEZVOUS_TCP_RENDEZVOUS_KIT_H_
