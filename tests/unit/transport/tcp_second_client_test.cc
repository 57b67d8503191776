// SPDX-License-Identifier: Apache-2.0
// A second implementation of tcp's wire, in C, joins a rank that runs the library's.
#include "unit/transport/tcp_second_client.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

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
  void on_lost(uint32_t, Loss, std::string_view why) override { lost = why; }

  std::string heard, lost;

 private:
  Transport& transport_;
  const std::string answer_ = "and here is mine";
};

TEST(TcpTransport, speaks_with_another_implementation) {
  for (const auto security :
       {TcpSecurity::kEncrypt, TcpSecurity::kAuthenticate, TcpSecurity::kHandshake}) {
    TcpOptions options = tcp_options(1, 2);
    options.security = security;
    options.job_key = tcp_job_key(kSecret, options.job);
    options.aes_hardware = true;
    const auto rank = make_tcp(options);
    TcpEndpoint own;
    ASSERT_TRUE(decode_tcp_endpoint(rank->address(), &own).ok());
    ASSERT_TRUE(rank->connect(0, rank->address()).ok());  // where rank 0 listens does not matter
    UniqueFd socket;
    ASSERT_EQ(tcp_connect(own.listens, &socket), 0);
    ASSERT_EQ(::fcntl(socket.get(), F_SETFL, 0), 0);
    const std::string identity = "libparallax tcp 1 from=0 to=1 world=2 epoch=7 job=4711 version=" +
                                 std::to_string(kVersion) +
                                 " security=" + tcp_security_name(security) + " cipher=AES-128-GCM";
    const second_client client{socket.get(),          kSecret,          4711,
                               own.salt.bytes.data(), identity.c_str(), static_cast<int>(security)};
    int outcome = -1;
    std::string answer;
    std::thread other([&] {
      std::vector<unsigned char> bytes(kTcpBodyBytesMax);
      size_t count = 0;
      outcome = second_client_exchange(&client, "this is my message", bytes.data(), &count);
      answer.assign(reinterpret_cast<const char*>(bytes.data()), count);
    });
    Answering heard(*rank);
    const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
    while (heard.lost.empty() && std::chrono::steady_clock::now() < give_up) rank->poll(heard);
    other.join();
    EXPECT_EQ(outcome, 0) << tcp_security_name(security);
    EXPECT_EQ(heard.heard, "this is my message");
    EXPECT_EQ(answer, "and here is mine");
    EXPECT_EQ(heard.lost, "it left, and closed its connection");
  }
}

}  // namespace
}  // namespace parallax
