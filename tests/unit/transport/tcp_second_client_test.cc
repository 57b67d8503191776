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

// Answers the first message by as many of its own as it is to.
class Answering final : public Receiver {
 public:
  Answering(Transport& transport, uint32_t answers, const std::string& answer)
      : transport_(transport), answers_(answers), answer_(answer) {}
  void on_message(uint32_t, std::span<const std::byte> message) override {
    heard.assign(reinterpret_cast<const char*>(message.data()), message.size());
  }
  void on_sent(uint64_t) override {}
  void on_lost(uint32_t, Loss kind, std::string_view why) override {
    loss = kind;
    lost = why;
  }
  void answer() {
    const Segment segment{answer_.data(), answer_.size()};
    for (; !heard.empty() && answered < answers_ && transport_.writable(0); ++answered) {
      EXPECT_TRUE(transport_.send(0, {&segment, 1}, 1).ok());
    }
  }

  std::string heard, lost;
  Loss loss = Loss::kOwnLack;
  uint32_t answered = 0;

 private:
  Transport& transport_;
  const uint32_t answers_;
  const std::string answer_;
};

// A rank that listens, and what it and the other implementation, which connects, came to.
class SecondTalk {
 public:
  struct Options {
    TcpSecurity security = TcpSecurity::kEncrypt;
    int type_wrong = 0;
    uint32_t credit_wrong = 0;
    uint32_t answers = 1;
    std::string answer = "and here is mine";
  };
  explicit SecondTalk(const Options& options) : SecondTalk(make(options.security), options) {}

  int outcome = -1;  // of the other
  std::string answer;
  Answering heard;

 private:
  SecondTalk(std::unique_ptr<TcpTransport> rank, const Options& options)
      : heard(*rank, options.answers, options.answer), rank_(std::move(rank)) {
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
                               .type_wrong = options.type_wrong,
                               .answers = options.answers,
                               .credit_wrong = options.credit_wrong};
    std::thread other([&] {
      std::vector<unsigned char> bytes(kTcpBodyBytesMax);
      size_t count = 0;
      outcome = second_client_exchange(&client, "this is my message", bytes.data(), &count);
      if (outcome == 0) answer.assign(reinterpret_cast<const char*>(bytes.data()), count);
    });
    const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
    while (heard.lost.empty() && std::chrono::steady_clock::now() < give_up) {
      rank_->poll(heard);
      heard.answer();
    }
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

constexpr TcpSecurity kSecurities[] = {TcpSecurity::kEncrypt, TcpSecurity::kAuthenticate,
                                       TcpSecurity::kHandshake};

TEST(TcpTransport, speaks_with_another_implementation) {
  for (const auto security : kSecurities) {
    const SecondTalk talk({.security = security});
    EXPECT_EQ(talk.outcome, 0) << tcp_security_name(security);
    EXPECT_EQ(talk.heard.heard, "this is my message");
    EXPECT_EQ(talk.answer, "and here is mine");
    EXPECT_EQ(talk.heard.lost, "it left, and closed its connection");
  }
}

// Given three times as many bytes for the other implementation as there are credits, expect all of
// them to come, since it gives back what it takes as the page says.
TEST(TcpTransport, another_implementation_gives_credits_back) {
  const std::string answer(60 << 10, 'a');
  const auto answers = static_cast<uint32_t>(3 * kTcpCreditBytes / answer.size());
  for (const auto security : kSecurities) {
    const SecondTalk talk({.security = security, .answers = answers, .answer = answer});
    EXPECT_EQ(talk.outcome, 0) << tcp_security_name(security);
    EXPECT_EQ(talk.heard.answered, answers);
    EXPECT_EQ(talk.answer, answer);
    EXPECT_EQ(talk.heard.lost, "it left, and closed its connection");
  }
}

// Expects the end, and nothing of what the other says behind its fault; where frames have tags that
// is the peer's own doing.
void expect_fault_to_end(SecondTalk::Options options) {
  for (const auto security : kSecurities) {
    options.security = security;
    const SecondTalk talk(options);
    EXPECT_NE(talk.outcome, 0) << tcp_security_name(security);
    EXPECT_EQ(talk.heard.heard, "");
    EXPECT_EQ(talk.heard.lost, "its connection carries what is no frame");
    EXPECT_EQ(talk.heard.loss, security == TcpSecurity::kHandshake ? Loss::kBroken : Loss::kDead);
  }
}

TEST(TcpTransport, credits_that_nobody_took_end_the_connection) {
  expect_fault_to_end({.credit_wrong = 1});
}

// Given a welcome from the side that connects, which has none to say.
TEST(TcpTransport, a_welcome_out_of_place_ends_the_connection) {
  expect_fault_to_end({.type_wrong = 2});
}

}  // namespace
}  // namespace parallax
