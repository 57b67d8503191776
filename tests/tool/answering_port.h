// SPDX-License-Identifier: Apache-2.0
// A port on loopback that answers the doctor's question when a test says so, and does nothing else.
// Tests only; one thread at a time.
#ifndef PARALLAX_TESTS_TOOL_ANSWERING_PORT_H_
#define PARALLAX_TESTS_TOOL_ANSWERING_PORT_H_

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/tcp_socket.h"
#include "tool/reach.h"

namespace parallax::tool {

class AnsweringPort {
 public:
  AnsweringPort() {
    SocketAddress address;
    EXPECT_EQ(tcp_listen_at(make_address(std::string("\x7f\0\0\x01", 4), 0), &listener_), 0);
    EXPECT_TRUE(tcp_name(listener_, &address).ok());
    const std::string text = to_text(address);
    port_ = static_cast<uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
  }
  TcpEndpoint endpoint() const { return {.address = "127.0.0.1", .port = port_}; }

  // The connection of the next one who asks, with the secret that he asks by.
  UniqueFd answer() {
    pollfd comes = {listener_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&comes, 1, 60'000), 1);
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ReachQuestion question;
    EXPECT_EQ(recv(socket.get(), &question, sizeof question, MSG_WAITALL),
              ssize_t{sizeof question});
    const ReachAnswer answer = {.secret = question.secret, .wall_ns = wall_clock_ns()};
    EXPECT_EQ(send(socket.get(), &answer, sizeof answer, MSG_NOSIGNAL), ssize_t{sizeof answer});
    return socket;
  }

 private:
  UniqueFd listener_;
  uint16_t port_ = 0;
};

}  // namespace parallax::tool

#endif  // PARALLAX_TESTS_TOOL_ANSWERING_PORT_H_
