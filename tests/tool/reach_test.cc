// SPDX-License-Identifier: Apache-2.0
// The doctor's port among strangers: thousands of them, with garbage or silent, many at once; every
// prober gets its answer, and what strangers cost is bounded.
#include "tool/reach.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>

#include "tool/answering_port.h"

namespace parallax::tool {
namespace {

constexpr int kStrangers = 10'000;
constexpr int kProbesMin = 200;
constexpr size_t kStayMax = 300;  // of them, at once: more than the listener keeps
constexpr int64_t kConnectMs = 60'000;

size_t open_descriptors() {
  size_t count = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  while (readdir(folder.get()) != nullptr) ++count;
  return count;
}

UniqueFd connect_to(uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  return socket;
}

// Says nothing, too little, another protocol, or the question with another secret.
void intrude(int number, const UniqueFd& socket) {
  const ReachQuestion impostor = {.secret = static_cast<uint64_t>(number)};
  const std::string http = "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n";
  switch (number % 4) {
    case 0:
      (void)!send(socket.get(), http.data(), http.size(), MSG_NOSIGNAL);
      break;
    case 1:
      (void)!send(socket.get(), &impostor, sizeof impostor, MSG_NOSIGNAL);
      break;
    case 2:
      (void)!send(socket.get(), &impostor, 3, MSG_NOSIGNAL);
      break;
    default:
      break;
  }
}

class Reach : public testing::Test {
 protected:
  void SetUp() override {
    const Status status = listener_.start({"127.0.0.1"});
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(listener_.endpoints().size(), 1u);
  }
  uint16_t port() const { return listener_.endpoints()[0].port; }
  Status probe(uint64_t secret) const {
    Probe probe;
    return probe_peer(listener_.endpoints()[0], secret, kConnectMs, &probe);
  }

  Listener listener_;
};

TEST_F(Reach, StrangersStarveNobody) {
  const size_t before = open_descriptors();
  std::atomic<bool> done = false;
  std::atomic<int> came = 0;
  std::thread flood([&] {
    std::deque<UniqueFd> staying;
    for (; !done; ++came) {
      UniqueFd socket = connect_to(port());
      EXPECT_TRUE(socket.valid()) << std::strerror(errno);
      if (!socket.valid()) done = true;
      intrude(came, socket);
      if (came % 4 >= 2) staying.push_back(std::move(socket));
      if (staying.size() > kStayMax) staying.pop_front();
    }
  });
  size_t most = 0;
  for (int i = 0; !done && (i < kProbesMin || came < kStrangers); ++i) {
    const Status status = probe(listener_.secret());
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) break;
    most = std::max(most, open_descriptors());
  }
  done = true;
  flood.join();
  EXPECT_TRUE(probe(listener_.secret()).ok());
  EXPECT_LE(most, before + kStayMax + kProbersMax + 8) << "strangers kept at once";
}

// Many that are silent stay, and nobody else comes: their time is over, or they make room.
TEST_F(Reach, TheSilentMakeRoom) {
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < 3 * kProbersMax; ++i) {
    silent.push_back(connect_to(port()));
    ASSERT_TRUE(silent.back().valid());
  }
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(probe(listener_.secret()).ok());
  char byte = 0;
  for (const UniqueFd& each : silent) {
    EXPECT_EQ(recv(each.get(), &byte, 1, 0), 0) << "it is shown out, and told nothing";
  }
}

TEST_F(Reach, OnlyTheSecretIsAnswered) {
  const UniqueFd stranger = connect_to(port());
  const ReachQuestion wrong = {.secret = listener_.secret() + 1};
  ASSERT_EQ(send(stranger.get(), &wrong, sizeof wrong, MSG_NOSIGNAL), ssize_t{sizeof wrong});
  char byte = 0;
  EXPECT_EQ(recv(stranger.get(), &byte, 1, 0), 0);
}

// Given a peer that sends bytes behind its question, expect as many back, up to the bound; given
// one that does not know the secret, none taken.
TEST_F(Reach, CarriesThereAndBack) {
  for (const size_t bytes : {size_t{1}, size_t{70000}, kCarriedBytesMax}) {
    Carried carried;
    const Status status =
        carry_to_peer(listener_.endpoints()[0], listener_.secret(), bytes, &carried);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_GE(carried.bytes, 1u);
    EXPECT_LE(carried.bytes, bytes);
    if (bytes < kCarriedBytesMax) {
      EXPECT_EQ(carried.bytes, bytes);
    }
    EXPECT_GT(carried.there_and_back_ns, 0);
  }
  const UniqueFd stranger = connect_to(port());
  const ReachQuestion wrong = {.magic = kCarryMagic, .secret = listener_.secret() + 1};
  ASSERT_EQ(send(stranger.get(), &wrong, sizeof wrong, MSG_NOSIGNAL), ssize_t{sizeof wrong});
  char byte = 0;
  EXPECT_EQ(recv(stranger.get(), &byte, 1, 0), 0) << "it is shown out, and told nothing";
}

// Given one who knows the secret and sends more than anyone has to take, expect it to be shown out.
TEST_F(Reach, CarriesNoMoreThanItsBound) {
  const UniqueFd greedy = connect_to(port());
  const ReachQuestion question = {.magic = kCarryMagic, .secret = listener_.secret()};
  ASSERT_EQ(send(greedy.get(), &question, sizeof question, MSG_NOSIGNAL), ssize_t{sizeof question});
  const std::vector<char> bytes(1 << 20);
  size_t taken = 0;
  for (ssize_t count = 0; taken <= 4 * kCarriedBytesMax; taken += static_cast<size_t>(count)) {
    count = send(greedy.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0) break;
  }
  EXPECT_GE(taken, kCarriedBytesMax / 2);
  EXPECT_LE(taken, 4 * kCarriedBytesMax);
}

// Given an address of this side, expect the connection to come from there.
TEST_F(Reach, FromTheAddressThatIsNamed) {
  TcpEndpoint peer = listener_.endpoints()[0];
  Probe probe;
  ASSERT_TRUE(probe_peer(peer, listener_.secret(), kConnectMs, &probe).ok());
  EXPECT_EQ(probe.local_address, "127.0.0.1");
  peer.from = "127.0.0.2";
  ASSERT_TRUE(probe_peer(peer, listener_.secret(), kConnectMs, &probe).ok());
  EXPECT_EQ(probe.local_address, "127.0.0.2");
  peer.from = "203.0.113.7";
  EXPECT_FALSE(probe_peer(peer, listener_.secret(), kConnectMs, &probe).ok());
}

// A question that comes in pieces is one all the same.
TEST_F(Reach, PiecesOfAQuestion) {
  const UniqueFd socket = connect_to(port());
  const ReachQuestion question = {.secret = listener_.secret()};
  const auto* bytes = reinterpret_cast<const char*>(&question);
  const timeval patience = {.tv_sec = 60, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  for (size_t i = 0; i < sizeof question; ++i) {
    ASSERT_EQ(send(socket.get(), bytes + i, 1, MSG_NOSIGNAL), 1);
  }
  ReachAnswer answer;
  ASSERT_EQ(recv(socket.get(), &answer, sizeof answer, MSG_WAITALL), ssize_t{sizeof answer});
  EXPECT_EQ(answer.secret, listener_.secret());
}

// The listener's descriptors have run out: who comes later is answered when there are some again.
TEST_F(Reach, DescriptorsThatRunOut) {
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  UniqueFd waiting = connect_to(port());
  UniqueFd prober(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(waiting.valid() && prober.valid());
  const rlimit none = {.rlim_cur = 0, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(prober.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const ReachQuestion question = {.secret = listener_.secret()};
  EXPECT_EQ(send(prober.get(), &question, sizeof question, MSG_NOSIGNAL), ssize_t{sizeof question});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  ReachAnswer answer;
  ASSERT_EQ(recv(prober.get(), &answer, sizeof answer, MSG_WAITALL), ssize_t{sizeof answer});
  EXPECT_EQ(answer.secret, listener_.secret());
}

// Given a range of ports, expect the first that is free; given one that is taken, an error with it.
TEST(ReachErrors, PortsOfARange) {
  Listener any, first, none;
  ASSERT_TRUE(any.start({"127.0.0.1"}).ok());
  const uint16_t taken = any.endpoints()[0].port;
  const Status status = none.start({"127.0.0.1"}, {}, {.first = taken, .last = taken});
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_NE(status.message().find("(tcp_ports)"), std::string::npos) << status.message();
  const auto last = static_cast<uint16_t>(std::min(taken + 20, int{UINT16_MAX}));
  if (taken == last || !first.start({"127.0.0.1"}, {}, {.first = taken, .last = last}).ok()) {
    GTEST_SKIP() << "the ports behind " << taken << " are taken";
  }
  EXPECT_GT(first.endpoints()[0].port, taken);
  EXPECT_LE(first.endpoints()[0].port, last);
  Listener beyond;
  const auto top = static_cast<uint16_t>(first.endpoints()[0].port);
  ASSERT_TRUE(beyond.start({"127.0.0.1"}, {top, UINT16_MAX}, {.first = 0, .last = 0}).ok());
  for (const uint16_t port : beyond.other_ports()) EXPECT_GE(port, top) << "it went round";
  EXPECT_EQ(ports_across({.first = 31000, .last = 31799}),
            (std::vector<uint16_t>{31099, 31399, 31699}));
}

// Given a listener that hangs up on who has begun to carry, as one does that has no room left,
// expect all bytes to go there and back by another connection.
TEST(ReachErrors, WhoIsDisplacedCarriesAgain) {
  AnsweringPort port;
  std::thread answering([&] {
    (void)port.answer();  // and hangs up
    const UniqueFd socket = port.answer();
    std::vector<char> bytes(1 << 20);
    size_t taken = 0;
    while (const ssize_t count = recv(socket.get(), bytes.data(), bytes.size(), 0)) {
      if (count < 0) break;
      taken += static_cast<size_t>(count);
    }
    EXPECT_EQ(send(socket.get(), bytes.data(), taken, MSG_NOSIGNAL), static_cast<ssize_t>(taken));
  });
  Carried carried;
  const Status status = carry_to_peer(port.endpoint(), 7, 70000, &carried);
  answering.join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(carried.bytes, 70000u);
  EXPECT_EQ(carried.back_bytes, 70000u);
}

TEST(ReachErrors, NobodyListens) {
  TcpEndpoint gone;
  {
    Listener listener;
    ASSERT_TRUE(listener.start({"127.0.0.1"}).ok());
    gone = listener.endpoints()[0];
  }
  Probe probe;
  const Status status = probe_peer(gone, 1, kConnectMs, &probe);
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_NE(status.message().find(describe(gone) + ": Connection refused"), std::string::npos)
      << status.message();
}

// Where one address of several cannot be listened at, no other is given out: nobody answers there.
TEST(ReachErrors, AnAddressOfAnotherMachine) {
  Listener listener;
  const Status status = listener.start({"127.0.0.1", "203.0.113.7"});
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_NE(status.message().find("listening on 203.0.113.7"), std::string::npos);
  EXPECT_TRUE(listener.endpoints().empty());
}

// It takes connections and hangs up, for as long as it is asked: an error, and no hang.
TEST(ReachErrors, WhoHangsUp) {
  Listener listener;
  ASSERT_TRUE(listener.start({"127.0.0.1"}).ok());
  Probe probe;
  const Status status =
      probe_peer(listener.endpoints()[0], listener.secret() + 1, kConnectMs, &probe);
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_NE(status.message().find("hangs up on whoever connects"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace parallax::tool
