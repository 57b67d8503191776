// SPDX-License-Identifier: Apache-2.0
// Strangers at rank 0's port: garbage, silence, floods. None of it ends or starves the rendezvous.
#include "rendezvous/tcp_host.h"

#include <cerrno>
#include <deque>
#include <random>

#include "base/codec.h"
#include "rendezvous/tcp_rendezvous.h"
#include "unit/rendezvous/tcp_rendezvous_kit.h"

namespace parallax {
namespace {

using tcp_rendezvous_kit::connect_plainly;
using tcp_rendezvous_kit::host_of;
using tcp_rendezvous_kit::kClock;
using tcp_rendezvous_kit::TcpRendezvousTest;

// The entry that make_rendezvous would make.
TcpEntry entry_of_all() {
  TcpEntry entry;
  entry.job = unnamed_job(process_variable);
  return entry;
}

std::string garbage(std::mt19937* random) {
  switch ((*random)() % 5) {
    case 0:
      return "";
    case 1:
      return "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n";
    case 2: {  // a frame that never ends
      std::string head;
      put_number(&head, static_cast<uint32_t>(kHandshakeBodyBytesMax));
      return head + '\1';
    }
    case 3:
      return std::string("\x40\0\0\0\1PLXM", 9);
    default: {
      std::string bytes((*random)() % 4000, '\0');
      for (char& byte : bytes) byte = static_cast<char>((*random)());
      return bytes;
    }
  }
}

// True once rank 0 has hung up on a stranger.
bool hangs_up(const UniqueFd& stranger) {
  char byte = 0;
  ssize_t bytes = 1;
  while (bytes > 0) bytes = ::recv(stranger.get(), &byte, 1, 0);
  return bytes == 0 || errno == ECONNRESET;
}

// Given 10,000 strangers, of which up to 300 stay, expect the ranks that come among them to meet.
TEST_F(TcpRendezvousTest, ten_thousand_strangers_starve_nobody) {
  constexpr int kStrangers = 10000;
  constexpr size_t kStay = 300;
  constexpr uint32_t kWorld = 5;
  std::unique_ptr<Rendezvous> zero;
  ASSERT_TRUE(make(0, kWorld, &zero).ok());
  std::vector<std::thread> ranks;
  ranks.emplace_back([&] { attend(*zero, 0, kWorld, 3); });
  std::mt19937 random(1);
  std::deque<UniqueFd> staying;
  for (int i = 0; i < kStrangers; ++i) {
    UniqueFd stranger = connect_plainly(port_);
    const std::string bytes = garbage(&random);
    (void)!::send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 2 == 0) staying.push_back(std::move(stranger));
    if (staying.size() > kStay) staying.pop_front();
    const auto rank = static_cast<uint32_t>(ranks.size());
    // The last rank comes after the last stranger, so that the listener is there for all.
    if (rank + 1 < kWorld && i > kStrangers / static_cast<int>(kWorld) * static_cast<int>(rank)) {
      ranks.emplace_back([this, rank] { attend(rank, kWorld, 3); });
    }
  }
  ranks.emplace_back([this] { attend(kWorld - 1, kWorld, 3); });
  for (auto& rank : ranks) rank.join();
}

// Given more silent strangers than there is room for, expect the oldest to be dropped at once, and
// the others, with one that sends a byte and no more, when their time is over.
TEST_F(TcpRendezvousTest, silent_strangers_go) {
  std::unique_ptr<Rendezvous> zero;
  ASSERT_TRUE(make(0, 2, &zero).ok());
  std::vector<UniqueFd> strangers;
  for (size_t i = 0; i < kStrangersMax + 10; ++i) strangers.push_back(connect_plainly(port_));
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(hangs_up(strangers[i])) << i;
  (void)!::send(strangers.back().get(), "\x40", 1, MSG_NOSIGNAL);
  EXPECT_TRUE(hangs_up(strangers.back()));
  std::thread rank_0([&] { attend(*zero, 0, 2, 1); });
  attend(1, 2, 1);
  rank_0.join();
}

// Given a rank that stops in the middle of its introduction, expect it to be dropped only after
// strangers that have sent nothing.
TEST_F(TcpRendezvousTest, who_has_begun_goes_last) {
  std::unique_ptr<Rendezvous> zero;
  ASSERT_TRUE(make(0, 2, &zero).ok());
  const RendezvousOptions options{
      .rank = 1, .world = 2, .host = "h", .lease_ms = lease_ms_, .clock = &kClock};
  const Introduction intro = introduce(options, entry_of_all());
  ClientHandshake begun(intro, Key());
  std::string hello;
  begun.start(&hello);
  const UniqueFd first = connect_plainly(port_);
  ASSERT_EQ(::send(first.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(hello.size()));
  char byte = 0;
  ASSERT_EQ(::recv(first.get(), &byte, 1, MSG_PEEK), 1) << "its challenge";
  std::vector<UniqueFd> strangers;
  for (size_t i = 0; i < kStrangersMax + 10; ++i) strangers.push_back(connect_plainly(port_));
  EXPECT_TRUE(hangs_up(strangers[0]));
  timeval no_time{.tv_sec = 0, .tv_usec = 1};
  ASSERT_EQ(::setsockopt(first.get(), SOL_SOCKET, SO_RCVTIMEO, &no_time, sizeof no_time), 0);
  std::string got(1000, '\0');
  EXPECT_GT(::recv(first.get(), got.data(), got.size(), 0), 0);
  EXPECT_LT(::recv(first.get(), got.data(), got.size(), 0), 0) << "still connected, and silent";
}

std::string receive_frame(const UniqueFd& socket) {
  std::string frame(4096, '\0');
  frame.resize(static_cast<size_t>(
      std::max<ssize_t>(0, ::recv(socket.get(), frame.data(), frame.size(), 0))));
  return frame;
}

// Given a rank 0 that was frozen while one proved itself, gave up and hung up, expect that one to
// be welcome when it comes again.
TEST_F(TcpRendezvousTest, a_proof_that_ends_with_its_connection_is_no_member) {
  int said = -1;
  const pid_t zero = start_rank(0, 2, 1, &said);
  const RendezvousOptions options{
      .rank = 1, .world = 2, .host = host_of(1), .lease_ms = lease_ms_, .clock = &kClock};
  ClientHandshake given_up(introduce(options, entry_of_all()), derive_key("", kJobKey));
  UniqueFd socket = connect_patiently();
  std::string in, out;
  given_up.start(&out);
  ASSERT_GT(::send(socket.get(), out.data(), out.size(), MSG_NOSIGNAL), 0);
  in = receive_frame(socket);
  out.clear();
  ASSERT_EQ(given_up.advance(&in, &out), Handshake::Phase::kTalking) << given_up.status().message();
  ASSERT_FALSE(out.empty());
  ASSERT_EQ(::kill(zero, SIGSTOP), 0);
  ASSERT_EQ(::waitpid(zero, nullptr, WUNTRACED), zero);
  ASSERT_GT(::send(socket.get(), out.data(), out.size(), MSG_NOSIGNAL), 0);
  socket.reset();
  ASSERT_EQ(::kill(zero, SIGCONT), 0);
  std::unique_ptr<Rendezvous> again;
  ASSERT_TRUE(make(1, 2, &again).ok());
  std::vector<std::string> all;
  const Status met = gather(*again, blob_of(1, 0), tcp_rendezvous_kit::kForeverMs, &all);
  EXPECT_TRUE(met.ok()) << met.message();
  await(said);
  again->finish_bootstrap();
  end(zero);
}

}  // namespace
}  // namespace parallax
