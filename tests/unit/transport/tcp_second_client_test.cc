// SPDX-License-Identifier: Apache-2.0
// A second implementation of tcp's wire, in C, joins a rank that runs the library's.
#include "unit/transport/tcp_second_client.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/tcp_socket.h"
#include "base/version.h"
#include "unit/transport/conformance.h"
#include "unit/transport/tcp_world.h"

namespace parallax {
namespace {

constexpr const char* kSecret = "a secret that both were given";

class Answering final : public Receiver {
 public:
  explicit Answering(Transport& transport) : transport_(transport) {}
  void on_message(uint32_t from, std::span<const std::byte> message) override {
    heard.assign(reinterpret_cast<const char*>(message.data()), message.size());
    const Segment segment{answer_.data(), answer_.size()};
    EXPECT_TRUE(transport_.send(from, {&segment, 1}, 1).ok());
  }
  void on_sent(uint64_t) override {}
  void on_lost(uint32_t, Loss kind, std::string_view why) override {
    loss = kind;
    lost = why;
  }

  std::string heard, lost;
  Loss loss = Loss::kOwnLack;

 private:
  Transport& transport_;
  const std::string answer_ = "and here is mine";
};

// A rank that listens, and what it and the other implementation, which connects, came to.
class SecondTalk {
 public:
  explicit SecondTalk(TcpSecurity security, int type_wrong = 0)
      : SecondTalk(make(security), type_wrong) {}

  int outcome = -1;  // of the other
  std::string answer;
  Answering heard;

 private:
  SecondTalk(std::unique_ptr<TcpTransport> rank, int type_wrong)
      : heard(*rank), rank_(std::move(rank)) {
    TcpEndpoint own;
    EXPECT_TRUE(decode_tcp_endpoint(rank_->address(), &own).ok());
    EXPECT_TRUE(rank_->connect(0, rank_->address()).ok());  // where rank 0 listens does not matter
    UniqueFd socket;
    EXPECT_EQ(tcp_connect(own.listens, &socket), 0);
    EXPECT_EQ(::fcntl(socket.get(), F_SETFL, 0), 0);
    const std::string identity = "libparallax tcp 1 from=0 to=1 world=2 epoch=7 job=4711 version=" +
                                 std::to_string(kVersion) +
                                 " security=" + tcp_security_name(own.security) +
                                 " cipher=AES-128-GCM";
    const second_client client{.socket = socket.get(),
                               .secret = kSecret,
                               .job = 4711,
                               .salt = own.salt.bytes.data(),
                               .identity = identity.c_str(),
                               .security = static_cast<int>(own.security),
                               .type_wrong = type_wrong};
    std::thread other([&] {
      std::vector<unsigned char> bytes(kTcpBodyBytesMax);
      size_t count = 0;
      outcome = second_client_exchange(&client, "this is my message", bytes.data(), &count);
      if (outcome == 0) answer.assign(reinterpret_cast<const char*>(bytes.data()), count);
    });
    const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
    while (heard.lost.empty() && std::chrono::steady_clock::now() < give_up) rank_->poll(heard);
    rank_.reset();
    other.join();
  }

  static std::unique_ptr<TcpTransport> make(TcpSecurity security) {
    TcpOptions options = tcp_options(1, 2);
    options.security = security;
    options.job_key = tcp_job_key(kSecret, options.job);
    options.aes_hardware = true;
    return make_tcp(options);
  }

  std::unique_ptr<TcpTransport> rank_;
};

TEST(TcpTransport, speaks_with_another_implementation) {
  for (const auto security :
       {TcpSecurity::kEncrypt, TcpSecurity::kAuthenticate, TcpSecurity::kHandshake}) {
    const SecondTalk talk(security);
    EXPECT_EQ(talk.outcome, 0) << tcp_security_name(security);
    EXPECT_EQ(talk.heard.heard, "this is my message");
    EXPECT_EQ(talk.answer, "and here is mine");
    EXPECT_EQ(talk.heard.lost, "it left, and closed its connection");
  }
}

// Given a welcome from the side that connects, which has none to say, expect the end, and nothing
// of what is behind it; where frames have tags that is the peer's own doing.
TEST(TcpTransport, a_welcome_out_of_place_ends_the_connection) {
  for (const auto security :
       {TcpSecurity::kEncrypt, TcpSecurity::kAuthenticate, TcpSecurity::kHandshake}) {
    const SecondTalk talk(security, 2);
    EXPECT_NE(talk.outcome, 0) << tcp_security_name(security);
    EXPECT_EQ(talk.heard.heard, "");
    EXPECT_EQ(talk.heard.lost, "its connection carries what is no frame");
    EXPECT_EQ(talk.heard.loss, security == TcpSecurity::kHandshake ? Loss::kBroken : Loss::kDead);
  }
}

}  // namespace
}  // namespace parallax
