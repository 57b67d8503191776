// SPDX-License-Identifier: Apache-2.0
// ClientLink: it joins whoever knows the key, tries again where nobody answers, and says why not.
#include "rendezvous/client_link.h"

#include <thread>

#include "rendezvous/server_link.h"
#include "unit/rendezvous/link_kit.h"

namespace parallax {
namespace {

using link_kit::entry_with;
using link_kit::has;
using link_kit::kClock;
using link_kit::options_of;

class ClientLinkTest : public ::testing::Test {
 protected:
  // One pass of this rank; what it is refused with.
  Status look() {
    std::this_thread::yield();
    return link_.advance(kClock.now_ns());
  }

  // Accepts this rank's connection and shakes hands, as a rank 0 with `secret` does.
  Status serve(const UniqueFd& listener, const std::string& secret) {
    UniqueFd socket;
    SocketAddress from;
    Status refused;
    while (tcp_accept(listener, &socket, &from) != Accepted::kOne) (void)look();
    ServerLink server(
        std::move(socket), from,
        ServerHandshake(introduce(options_of(0), entry_with(secret)), entry_with(secret).key),
        kNever);
    while (refused.ok() && !link_.joined()) {
      Status ignored;
      (void)server.receive([](const Introduction&) { return Status(); }, &ignored);
      (void)server.send();
      refused = look();
    }
    return refused;
  }

  const RendezvousOptions options_ = options_of(1);
  const TcpEntry entry_ = entry_with("s");
  ClientLink link_{options_, entry_};
};

TEST_F(ClientLinkTest, it_joins_who_knows_the_key) {
  SocketAddress address;
  const UniqueFd listener = link_kit::listen_somewhere(&address);
  EXPECT_TRUE(link_.lost());
  link_.aim({address});
  EXPECT_FALSE(link_.lost());
  const Status refused = serve(listener, "s");
  EXPECT_TRUE(refused.ok()) << refused.message();
  EXPECT_EQ(link_.peer().host, "host0");
  EXPECT_TRUE(link_.stream().channel.has_value());
}

TEST_F(ClientLinkTest, it_says_who_refuses_it) {
  SocketAddress address;
  const UniqueFd listener = link_kit::listen_somewhere(&address);
  link_.aim({address});
  const Status refused = serve(listener, "another");
  EXPECT_TRUE(has(refused, "wrong secret")) << refused.message();
}

// Given two addresses of which nobody listens at the first, expect the second to be tried, after a
// pause.
TEST_F(ClientLinkTest, it_tries_the_addresses_in_turn) {
  SocketAddress nobody, address;
  link_kit::listen_somewhere(&nobody).reset();
  const UniqueFd listener = link_kit::listen_somewhere(&address);
  link_.aim({nobody, address});
  EXPECT_TRUE(serve(listener, "s").ok());
  EXPECT_TRUE(has(link_.last_try(), "Connection refused")) << link_.last_try();
}

TEST_F(ClientLinkTest, who_hangs_up_is_tried_again) {
  SocketAddress address;
  const UniqueFd listener = link_kit::listen_somewhere(&address);
  link_.aim({address});
  UniqueFd socket;
  SocketAddress from;
  while (tcp_accept(listener, &socket, &from) != Accepted::kOne) (void)look();
  socket.reset();
  while (link_.last_try().empty()) EXPECT_TRUE(look().ok());
  EXPECT_TRUE(has(link_.last_try(), "hung up before it knew this rank")) << link_.last_try();
  EXPECT_TRUE(serve(listener, "s").ok());
}

TEST_F(ClientLinkTest, closed_is_over) {
  link_.close();
  EXPECT_TRUE(link_.over());
  EXPECT_TRUE(look().ok());
  std::vector<pollfd> fds;
  link_.waits(&fds);
  EXPECT_TRUE(fds.empty());
}

}  // namespace
}  // namespace parallax
