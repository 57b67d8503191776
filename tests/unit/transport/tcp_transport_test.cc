// SPDX-License-Identifier: Apache-2.0
// TcpTransport beyond the contract: a man in the middle of its connections,
// attempts that cross, and what ends them.
#include "transport/tcp/tcp_transport.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "transport/tcp/tcp_closing.h"
#include "unit/transport/tcp_middle.h"

namespace parallax {
namespace {

using conformance::kPatience;
using conformance::make_message;
using conformance::Recorder;

// Given ranks that both send their first message before either has heard of the other, a hundred
// times, expect one connection and every message.
TEST(TcpTransport, attempts_that_cross_are_one) {
  for (int round = 0; round < 100; ++round) {
    Ranks ranks(make_tcp_ranks(3));
    for (uint32_t from = 0; from < 3; ++from) {
      for (uint32_t to = 0; to < 3; ++to) {
        if (from != to) ranks.send(from, to, 1000);
      }
      if (round % 2 == 0) ranks.at[(from + 1) % 3]->poll(ranks.heard[(from + 1) % 3]);
    }
    ASSERT_TRUE(ranks.until([&] {
      for (Recorder& each : ranks.heard) {
        uint64_t received = 0;
        for (const auto& [rank, count] : each.received) received += count;
        if (received < 2 || each.sent_count < 2) return false;
      }
      return true;
    }));
    for (Recorder& each : ranks.heard) {
      for (const auto& [rank, count] : each.losses) EXPECT_EQ(count, 0u) << each.reasons[rank];
    }
  }
}

TEST(TcpTransport, a_port_that_is_closed_is_a_loss) {
  Ranks ranks(make_tcp_ranks(3));
  ranks.at[1].reset();
  ranks.at.erase(ranks.at.begin() + 1);
  const uint64_t word = 1;
  const Segment segment{&word, sizeof word};
  (void)ranks.at[0]->send(1, {&segment, 1}, 5);
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[0].losses[1] == 1; }));
  EXPECT_NE(ranks.heard[0].reasons[1].find("could not be connected"), std::string::npos);
}

// From here on this process can open no descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const UniqueFd lowest_free(::dup(STDERR_FILENO));
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest_free.get());
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_ = {};
};

// Given a rank without a descriptor for the connection that its first message takes, expect it to
// lack that once the lease is over, and the peer not to be to blame.
TEST(TcpTransport, who_has_no_descriptor_blames_nobody) {
  TcpOptions options = tcp_options(0, 1);
  options.lease_ns = 50 * kNanosecondsPerMillisecond;
  Ranks ranks(make_tcp_ranks(2, options));
  const NoDescriptors none;
  ranks.send(0, 1, 16);
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[0].losses[1] == 1; }));
  EXPECT_EQ(ranks.heard[0].loss_kinds[1], Loss::kOwnLack);
  EXPECT_NE(ranks.heard[0].reasons[1].find("ulimit -n"), std::string::npos)
      << ranks.heard[0].reasons[1];
}

// Given a rank without a descriptor for one who comes, expect it to accept him once there is one.
TEST(TcpTransport, who_had_no_descriptor_accepts_once_there_is_one) {
  Ranks ranks(make_tcp_ranks(2));
  ranks.send(0, 1, 16);
  {
    const NoDescriptors none;
    const auto enough = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    EXPECT_TRUE(ranks.until([&] { return std::chrono::steady_clock::now() > enough; }));
    EXPECT_EQ(ranks.heard[1].received[0], 0u);
  }
  EXPECT_TRUE(ranks.until([&] { return ranks.heard[1].received[0] == 1; }));
}

// Given one bit of a message flipped on the way, or bytes repeated, left out or cut off, expect
// nothing of it to be delivered and the connection to end, each time, without proof against the
// peer: it may live.
TEST(TcpTransport, whoever_alters_bytes_ends_the_connection) {
  const std::pair<const char*, std::function<void(std::string*)>> bends[] = {
      {"a bit of the header", [](std::string* in) { (*in)[0] ^= 1; }},
      {"a length beyond any", [](std::string* in) { (*in)[3] ^= 1; }},
      {"the type", [](std::string* in) { (*in)[4] ^= 2; }},
      {"the type, to none", [](std::string* in) { (*in)[4] ^= 4; }},
      {"a byte that is zero", [](std::string* in) { (*in)[6] ^= 1; }},
      {"a bit of the body", [](std::string* in) { (*in)[100] ^= 64; }},
      {"a bit of the tag", [](std::string* in) { in->back() ^= 1; }},
      {"a byte left out",
       [](std::string* in) {
         in->erase(50, 1);
         in->append(64, 'x');
       }},
      {"all of it twice", [](std::string* in) { in->append(*in); }},
      {"all of it left out", [](std::string* in) { in->assign(300, '\0'); }},
  };
  for (const TcpSecurity security : {TcpSecurity::kEncrypt, TcpSecurity::kAuthenticate}) {
    for (const auto& [what, bend] : bends) {
      Watched watched(security);
      bool bent = false;
      watched.middle->there = [&, &bend = bend](std::string* in) {
        if (!std::exchange(bent, true)) bend(in);
      };
      watched.ranks.send(0, 1, 400);
      ASSERT_TRUE(watched.until([&] { return bent; }));
      ASSERT_TRUE(watched.until([&] {
        // A length that was bent takes what follows for the rest of the frame.
        if (watched.ranks.at[0]->writable(1)) watched.ranks.send(0, 1, 400);
        return watched.ranks.heard[1].losses[0] == 1;
      })) << what;
      const bool whole = std::string_view(what).ends_with("twice");
      EXPECT_EQ(watched.ranks.heard[1].received[0], whole ? 2u : 1u) << what;
      EXPECT_EQ(watched.ranks.heard[1].loss_kinds[0], Loss::kBroken) << what;
      EXPECT_NE(watched.ranks.heard[1].reasons[0].find("altered"), std::string::npos) << what;
    }
  }
}

// Given all that went over a connection, said again to either rank while they talk, expect it to be
// a stranger's: nothing of it is delivered, and the ranks go on.
TEST(TcpTransport, a_recorded_connection_is_no_rank) {
  Watched watched;
  for (int i = 0; i < 3; ++i) watched.ranks.send(0, 1, 500);
  watched.ranks.send(1, 0, 500);
  ASSERT_TRUE(watched.until([&] {
    return watched.ranks.heard[1].received[0] == 4 && watched.ranks.heard[0].received[1];
  }));
  const std::string there = watched.middle->said_there, back = watched.middle->said_back;
  ASSERT_GT(there.size(), 1500u);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (const std::string& recorded : {there, back}) {
      const uint64_t before = watched.ranks.at[rank]->stats().strangers_dropped;
      const UniqueFd replayer = call(where(*watched.ranks.at[rank]));
      std::string said = recorded;
      (void)tcp_send(replayer, &said);
      ASSERT_TRUE(watched.until(
          [&] { return watched.ranks.at[rank]->stats().strangers_dropped == before + 1; }));
    }
  }
  watched.ranks.send(0, 1, 500);
  ASSERT_TRUE(watched.until([&] { return watched.ranks.heard[1].received[0] == 5; }));
  EXPECT_EQ(watched.ranks.heard[0].received[1], 1u);
  EXPECT_EQ(watched.ranks.heard[0].losses[1] + watched.ranks.heard[1].losses[0], 0u);
}

// Given a rank that takes nothing while another sends all that it may, expect the other to be held
// back once its credits are used up, if not by the kernel's buffers before, and all of it to arrive
// when it is taken.
TEST(TcpTransport, who_does_not_receive_holds_the_sender_back) {
  Ranks ranks(make_tcp_ranks(2));
  ranks.greet(0, 1);
  for (Recorder& each : ranks.heard) each.check_pattern = false;
  const auto message = make_message(0, 0, 60 << 10);
  const Segment segment{message.data(), message.size()};
  const size_t most = kTcpCreditBytes / message.size();
  size_t sent = 0;
  int in_vain = 0;
  while (in_vain < 1000 && sent <= most) {
    if (ranks.at[0]->writable(1)) {
      ASSERT_TRUE(ranks.at[0]->send(1, {&segment, 1}, 1000 + sent++).ok());
      in_vain = 0;
    }
    in_vain += ranks.at[0]->poll(ranks.heard[0]) ? 0 : 1;
  }
  EXPECT_LE(sent, most) << "the sender is not held back";
  EXPECT_FALSE(ranks.at[0]->writable(1));
  EXPECT_GE(ranks.heard[0].sent_count, 1 + sent - kSendsInFlightMax);
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[1].received[0] == 1 + sent; }));
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[0].sent_count == 1 + sent; }));
  const uint64_t credits = ranks.at[1]->stats().credits_sent;
  EXPECT_LE(credits, sent * message.size() / (kTcpCreditBytes / 4));
  EXPECT_EQ(credits > 0, sent * message.size() > kTcpCreditBytes / 4);
  EXPECT_EQ(ranks.heard[0].losses[1] + ranks.heard[1].losses[0], 0u);
}

// Given a connection that is cut between two frames, expect the loss to say that no goodbye came.
TEST(TcpTransport, a_cut_is_no_goodbye) {
  Watched cut, left;
  cut.middle->cut();
  ASSERT_TRUE(cut.until([&] { return cut.ranks.heard[1].losses[0] == 1; }));
  EXPECT_NE(cut.ranks.heard[1].reasons[0].find("broke"), std::string::npos);
  std::unique_ptr<TcpTransport> gone = std::move(left.ranks.at[0]);
  left.ranks.at.erase(left.ranks.at.begin());
  std::swap(left.ranks.heard[0], left.ranks.heard[1]);
  std::thread closing([&] { gone.reset(); });
  ASSERT_TRUE(left.until([&] { return left.ranks.heard[0].losses[0] == 1; }));
  closing.join();
  EXPECT_NE(left.ranks.heard[0].reasons[0].find("it left"), std::string::npos);
}

// Given a rank that closes while another has taken nothing yet of all that it may have sent, expect
// the other to get every message before it hears of the end; for each size, so that some fills the
// kernel's buffers and some does not.
TEST(TcpTransport, last_words_arrive_before_the_loss) {
  for (const size_t bytes : {size_t{100}, size_t{8000}, size_t{60} << 10}) {
    Ranks ranks(make_tcp_ranks(2));
    ranks.greet(0, 1);
    uint64_t count = 1;
    for (; ranks.at[0]->writable(1); ++count) ranks.send(0, 1, bytes);
    EXPECT_GE(count, 1 + kSendsInFlightMax);
    std::unique_ptr<TcpTransport> gone = std::move(ranks.at[0]);
    ranks.at.erase(ranks.at.begin());
    std::swap(ranks.heard[0], ranks.heard[1]);
    std::thread closing([&] { gone.reset(); });
    ASSERT_TRUE(ranks.until([&] { return ranks.heard[0].losses[0] == 1; }));
    closing.join();
    EXPECT_EQ(ranks.heard[0].received[0], count) << bytes;
    EXPECT_NE(ranks.heard[0].reasons[0].find("it left"), std::string::npos);
  }
}

// Given a rank that closes with the kernel's buffers full and messages behind them, expect the
// other, who reads meanwhile, to get all.
TEST(TcpTransport, last_words_behind_full_buffers_arrive) {
  constexpr int kAttempts = 5;  // closing waits for a quarter of a second, loaded machine or not
  constexpr int kIdleMax = 200;
  TcpOptions options = tcp_options(0, 1);
  options.security = TcpSecurity::kHandshake;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Ranks ranks(make_tcp_ranks(2, options));
    ranks.greet(0, 1);
    // Less than there are credits.
    const int small_bytes = 64 << 10;
    for (const int socket : tcp_connections()) {
      ASSERT_EQ(::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &small_bytes, sizeof small_bytes), 0);
    }
    for (int idle = 0; idle < kIdleMax;) {
      if (ranks.at[0]->writable(1)) {
        ranks.send(0, 1, 60 << 10);
        idle = 0;
      } else {
        idle = ranks.at[0]->poll(ranks.heard[0]) ? 0 : idle + 1;
      }
    }
    ASSERT_LT(ranks.at[0]->counters().frames_sent, ranks.sent[0][1]) << "nothing is behind them";
    std::unique_ptr<TcpTransport> gone = std::move(ranks.at[0]);
    ranks.at.erase(ranks.at.begin());
    std::swap(ranks.heard[0], ranks.heard[1]);
    int64_t took_ns = 0;
    std::thread closing([&] {
      const int64_t began_ns = SteadyClock().now_ns();
      gone.reset();
      took_ns = SteadyClock().now_ns() - began_ns;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that closing has begun
    EXPECT_TRUE(ranks.until([&] { return ranks.heard[0].losses[0] == 1; }));
    closing.join();
    if (took_ns >= kTcpCloseNsMax) continue;
    EXPECT_EQ(ranks.heard[0].received[0], ranks.sent[0][1]);
    EXPECT_NE(ranks.heard[0].reasons[0].find("it left"), std::string::npos);
    return;
  }
  GTEST_SKIP() << "this machine is too busy to read what was sent";
}

// Given a rank that has left, with bytes in its socket that it has not read, while the other takes
// nothing of what the kernel has, expect the other to get that later.
TEST(TcpTransport, last_words_arrive_though_who_left_has_not_read_all) {
  constexpr uint64_t kMessages = 8;  // more than a receiver's window at first, less than is kept
  Ranks ranks(make_tcp_ranks(2));
  ranks.greet(0, 1);
  ranks.send(1, 0, 100);
  for (uint64_t i = 0; i < kMessages; ++i) ranks.send(0, 1, 60 << 10);
  if (ranks.at[0]->counters().frames_sent < 1 + kMessages) GTEST_SKIP() << "small tcp_wmem";
  ranks.at[0].reset();
  ranks.at.erase(ranks.at.begin());
  std::swap(ranks.heard[0], ranks.heard[1]);
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[0].losses[0] == 1; }));
  EXPECT_EQ(ranks.heard[0].received[0], 1 + kMessages);
}

// Given one who reads all that goes by, expect him to see the message only where it is in clear.
TEST(TcpTransport, what_is_encrypted_cannot_be_read) {
  for (const TcpSecurity security :
       {TcpSecurity::kEncrypt, TcpSecurity::kAuthenticate, TcpSecurity::kHandshake}) {
    Watched watched(security);
    std::string seen;
    watched.middle->there = [&](std::string* in) { seen += *in; };
    watched.ranks.send(0, 1, 4000);
    ASSERT_TRUE(watched.until([&] { return watched.ranks.heard[1].received[0] == 2; }));
    const auto& sent = watched.ranks.kept.back();
    const std::string_view part(reinterpret_cast<const char*>(sent.data()) + 1000, 16);
    EXPECT_EQ(seen.find(part) == std::string::npos, security == TcpSecurity::kEncrypt);
  }
}

// Given ranks whose stream arrives in pieces of any size, expect whole messages.
TEST(TcpTransport, frames_are_whole_however_they_arrive) {
  Watched watched;
  std::string held;
  uint64_t turn = 0;
  watched.middle->there = [&](std::string* in) {
    held += *in;
    *in = held.substr(0, 1 + turn++ % 997);
    held.erase(0, in->size());
  };
  for (int i = 0; i < 16; ++i) watched.ranks.send(0, 1, 3000 + static_cast<size_t>(i));
  ASSERT_TRUE(watched.until([&] {
    if (watched.ranks.heard[1].received[0] < 17 && watched.ranks.at[0]->writable(1)) {
      watched.ranks.send(0, 1, 1);  // so that the middle is asked again
    }
    return watched.ranks.heard[1].received[0] >= 17;
  }));
  EXPECT_EQ(watched.ranks.heard[1].losses[0], 0u);
}

// Given many long messages in clear, expect some of them to be received where the receiver has them
// placed, and others, as each read ends in one; with tags none.
TEST(TcpTransport, long_messages_in_clear_are_received_in_their_place) {
  constexpr int kMessages = 300;
  for (const auto security :
       {TcpSecurity::kEncrypt, TcpSecurity::kAuthenticate, TcpSecurity::kHandshake}) {
    TcpOptions options = tcp_options(0, 1);
    options.security = security;
    Ranks ranks(make_tcp_ranks(2, options));
    ranks.greet(0, 1);
    for (int i = 0; i < kMessages; ++i) {
      ASSERT_TRUE(ranks.until([&] { return ranks.at[0]->writable(1); }));
      ranks.send(0, 1, 60 << 10);
    }
    ASSERT_TRUE(ranks.until([&] { return ranks.heard[1].received[0] == 1 + kMessages; }));
    const uint64_t placed = ranks.heard[1].placed_count;
    if (security == TcpSecurity::kHandshake) {
      EXPECT_GT(placed, 0u);
    } else {
      EXPECT_EQ(placed, 0u) << tcp_security_name(security);
    }
  }
}

// Given a Receiver that throws at the first of several messages that came together, expect the
// others at the next poll, and no sleep before them.
TEST(TcpTransport, a_receiver_that_throws_loses_no_message) {
  Ranks ranks(make_tcp_ranks(2));
  ranks.greet(0, 1);
  for (int i = 0; i < 5; ++i) ranks.send(0, 1, 100);
  Recorder& heard = ranks.heard[1];
  const uint64_t before = heard.received[0];
  heard.message_hook = [](uint32_t, std::span<const std::byte>) { throw std::bad_alloc(); };
  const auto thrown = [&] {
    try {
      ranks.at[1]->poll(heard);
    } catch (const std::bad_alloc&) {
      return true;
    }
    return false;
  };
  while (!thrown()) {
  }
  heard.message_hook = nullptr;
  EXPECT_EQ(heard.received[0], before + 1);
  EXPECT_FALSE(ranks.at[1]->arm());
  EXPECT_TRUE(ranks.until([&] { return heard.received[0] == before + 5; }));
}

TEST(TcpTransport, ranks_protect_frames_alike) {
  TcpOptions plain = tcp_options(1, 2);
  plain.security = TcpSecurity::kHandshake;
  const auto one = make_tcp(tcp_options(0, 2)), other = make_tcp(plain);
  const Status differs = one->connect(1, other->address());
  EXPECT_EQ(differs.code(), PARALLAX_MISMATCH);
  EXPECT_EQ(differs.facts().field, "security");
  EXPECT_EQ(one->connect(1, "garbage").code(), PARALLAX_INVALID);
  EXPECT_EQ(one->connect(0, one->address()).code(), PARALLAX_INVALID);
}

// Given two ranks with different keys, expect no connection, and a loss once the lease is over.
TEST(TcpTransport, another_key_is_refused) {
  TcpOptions one = tcp_options(0, 2), other = tcp_options(1, 2);
  one.lease_ns = 2000 * kNanosecondsPerMillisecond;
  other.job_key.bytes[3] = 1;
  TcpRanks made;
  made.push_back(make_tcp(one));
  made.push_back(make_tcp(other));
  introduce_tcp(made);
  Ranks ranks(std::move(made));
  ranks.send(0, 1, 16);
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[0].losses[1] == 1; }));
  EXPECT_NE(ranks.heard[0].reasons[1].find("could not be connected"), std::string::npos);
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[0].sent_count == 1; }));
  EXPECT_EQ(ranks.heard[1].received[0], 0u);
  EXPECT_GT(ranks.at[1]->stats().strangers_dropped, 0u);
}

// Given a rank that can take no connection for want of a descriptor, expect wire() to say that;
// given one that can make none, also where a peer before that one is late for its own reasons.
TEST(TcpTransport, wiring_names_what_this_rank_lacks) {
  TcpRanks made = make_tcp_ranks(3);
  const uint32_t others[] = {1, 2}, zero = 0;
  const auto in_50_ms = [] { return SteadyClock().now_ns() + 50 * kNanosecondsPerMillisecond; };
  uint32_t missing = 9;
  const Status late = made[0]->wire({others, 1}, in_50_ms(), &missing);
  EXPECT_EQ(late.code(), PARALLAX_TIMEOUT) << late.message();
  // At rank 1's port: rank 0.
  const NoDescriptors none;
  const Status accepts = made[1]->wire({&zero, 1}, in_50_ms(), &missing);
  EXPECT_EQ(accepts.code(), PARALLAX_LIMIT) << accepts.message();
  EXPECT_NE(accepts.message().find("ulimit -n"), std::string::npos) << accepts.message();
  EXPECT_EQ(missing, 0u);
  const Status connects = made[0]->wire(others, in_50_ms(), &missing);
  EXPECT_EQ(connects.code(), PARALLAX_LIMIT) << connects.message();
  EXPECT_EQ(missing, 2u);
}

}  // namespace
}  // namespace parallax
