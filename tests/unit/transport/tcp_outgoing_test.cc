// SPDX-License-Identifier: Apache-2.0
// Frames on their way while the other side takes little, and credits of both directions. What is
// sent, and that it costs one system call, is in tcp_transport_test.cc and tcp_costs_test.cc.
#include "transport/tcp/tcp_outgoing.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/unique_fd.h"
#include "transport/tcp/tcp_incoming.h"

namespace parallax {
namespace {

// One end of a stream with a small buffer, and what reads at the other.
class SlowStream : private TcpOutgoing::Done {
 public:
  static constexpr size_t kBodyBytes = 60 << 10;

  SlowStream() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    here_.reset(ends[0]);
    there_.reset(ends[1]);
    const int bytes = 64 << 10;
    EXPECT_EQ(::setsockopt(here_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
  }
  void send_all_it_may() {
    const Segment segment{body_.data(), body_.size()};
    for (; out.has_room(); ++sent) {
      out.add_message({&segment, 1}, sent);
      EXPECT_EQ(flush(), 0);
    }
  }
  // As once the socket is said to be writable.
  int flush_anew() {
    out.unblock();
    return flush();
  }
  int flush() { return out.flush(here_.get(), sealer_, *this); }
  // At most so many bytes; counts the frames that are whole by now.
  void read(size_t bytes) {
    std::vector<std::byte> some(bytes);
    const ssize_t came = ::recv(there_.get(), some.data(), bytes, MSG_DONTWAIT);
    if (came > 0) read_.insert(read_.end(), some.begin(), some.begin() + came);
    TcpFrameHeader header;
    while (read_.size() >= kTcpHeaderBytes &&
           decode_tcp_header(read_.data(), kTcpBodyBytesMax, &header) &&
           read_.size() >= kTcpHeaderBytes + header.body_bytes) {
      ++frames[static_cast<size_t>(header.type)];
      credit += header.credit_bytes;
      read_.erase(read_.begin(),
                  read_.begin() + static_cast<ptrdiff_t>(kTcpHeaderBytes + header.body_bytes));
    }
  }

  uint64_t sent = 0, taken = 0, credit = 0;
  std::array<uint64_t, 5> frames = {};  // by type

 private:
  void on_taken(uint64_t) override { ++taken; }

  const std::vector<std::byte> body_ = std::vector<std::byte>(kBodyBytes);
  UniqueFd here_, there_;
  TcpSealer sealer_{{.security = TcpSecurity::kHandshake}, {}};
  TcpBuffers buffers_;
  TcpCounters counters_;
  std::vector<std::byte> read_;

 public:
  TcpOutgoing out{buffers_, counters_};
};

// Given a peer that takes less than a message at a time, and sends much meanwhile, expect what is
// owed to it to wait without a frame for each part of it, room for a goodbye, and all to be given
// back as the queue empties.
TEST(TcpOutgoing, CreditsWaitBehindAPeerThatTakesLittle) {
  SlowStream stream;
  stream.send_all_it_may();
  EXPECT_GE(stream.sent - stream.taken, uint64_t{kSendsInFlightMax}) << "not held back";
  uint64_t owed = 0;
  for (int i = 0; i < 40; ++i) {
    if (i % 10 == 0) {
      EXPECT_TRUE(stream.out.owe(kTcpCreditBytes / 4));
      owed += kTcpCreditBytes / 4;
    }
    stream.read(1000);
    ASSERT_EQ(stream.flush_anew(), 0);
    if (stream.out.has_room()) stream.send_all_it_may();
  }
  stream.out.add_goodbye();
  for (int i = 0; i < 10000 && !stream.out.empty(); ++i) {
    stream.read(1 << 20);
    ASSERT_EQ(stream.flush_anew(), 0);
  }
  EXPECT_TRUE(stream.out.empty());
  stream.read(1 << 20);
  EXPECT_EQ(stream.taken, stream.sent);
  EXPECT_EQ(stream.frames[static_cast<size_t>(TcpFrameType::kMessage)], stream.sent);
  EXPECT_EQ(stream.frames[static_cast<size_t>(TcpFrameType::kGoodbye)], 1u);
  EXPECT_EQ(stream.credit, owed);
}

// Given nothing else to send, expect a frame for credits once they are a quarter, and not before.
TEST(TcpOutgoing, CreditsHaveAFrameOfTheirOwnOnceTheyAreMany) {
  SlowStream stream;
  EXPECT_TRUE(stream.out.owe(kTcpCreditBytes / 4 - 1));
  EXPECT_EQ(stream.flush(), 0);
  stream.read(1000);
  EXPECT_EQ(stream.credit, 0u);
  EXPECT_TRUE(stream.out.owe(1));
  EXPECT_EQ(stream.flush(), 0);
  stream.read(1000);
  EXPECT_EQ(stream.frames[static_cast<size_t>(TcpFrameType::kCredit)], 1u);
  EXPECT_EQ(stream.credit, kTcpCreditBytes / 4);
}

// Given a peer that sends more than it has credit for, or gives back more than it was sent, expect
// that to be told.
TEST(TcpOutgoing, CreditsThatNobodyGaveAreTold) {
  SlowStream stream;
  EXPECT_TRUE(stream.out.owe(kTcpCreditBytes));
  EXPECT_FALSE(stream.out.owe(1));
  EXPECT_TRUE(stream.out.regain(0));
  EXPECT_FALSE(stream.out.regain(1));
  const std::byte one{};
  const Segment segment{&one, 1};
  stream.out.add_message({&segment, 1}, 1);
  EXPECT_FALSE(stream.out.regain(tcp_credits_of(1) + 1));
  EXPECT_TRUE(stream.out.regain(tcp_credits_of(1)));
}

}  // namespace
}  // namespace parallax
