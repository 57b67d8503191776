// SPDX-License-Identifier: Apache-2.0
// A member whose parent in the tree passes no blobs on to it, or lies: rank 0 serves it instead,
// and all meet. And what a member leaves open behind it.
#include "rendezvous/tcp_member.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>

#include "base/codec.h"
#include "rendezvous/roster_frames.h"
#include "rendezvous/tcp_listen.h"
#include "rendezvous/tcp_rendezvous.h"
#include "support/heard_lines.h"
#include "unit/rendezvous/tcp_rendezvous_kit.h"

namespace parallax {
namespace {

using tcp_rendezvous_kit::free_port;
using tcp_rendezvous_kit::kClock;
using tcp_rendezvous_kit::kForeverMs;
using tcp_rendezvous_kit::TcpRendezvousTest;

// A rank 8 of ten that tells rank 0 at which port it passes blobs on to rank 9, and passes on none,
// or these.
class BadParent : public TcpRendezvousTest {
 protected:
  static constexpr uint32_t kWorld = 10;

  // Joins, says its port, and brings its blobs as an honest rank does, until the others have met.
  // With lies, the port is one where it tells them.
  void attend_badly(uint16_t port, const std::vector<std::string>& lies = {}) {
    const RendezvousOptions options{
        .rank = 8, .world = kWorld, .host = "bad", .lease_ms = lease_ms_, .clock = &kClock};
    TcpEntry entry;
    entry.job = unnamed_job(process_variable);
    entry.key = derive_key("", kJobKey);
    ClientLink link(options, entry);
    link.aim({make_address(std::string("\x7f\0\0\1", 4), port_)});
    while (!link.joined()) {
      ASSERT_TRUE(link.advance(kClock.now_ns()).ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    RosterRelay relay(options, entry);
    if (!lies.empty()) port = relay.listen(make_address(std::string("\x7f\0\0\1", 4), 0));
    relay.pass_on(lies);
    std::string body;
    put_number(&body, port);
    link.stream().seal(FrameKind::kListen, body);
    MemberRound round(kWorld);
    for (bool open = true; open && !done_;) {
      if (!round.to_bring() && (round.met() || brought_count_ == 0)) {
        if (round.met()) (void)round.finish();
        round.begin(silent_ ? "" : blob_of(8, brought_count_));
        ++brought_count_;
        if (brought_count_ <= 2) link.stream().seal(FrameKind::kBring, round.bring());
      }
      link.stream().seal(FrameKind::kKeepalive, {});
      open = link.stream().send() && link.stream().receive(1 << 20);
      Frame frame;
      while (link.stream().take(&frame) == Took::kFrame) {
        bool taken = true;
        if (frame.kind == FrameKind::kBlobs) taken = round.take_blobs(frame.body);
        if (frame.kind == FrameKind::kComplete) taken = round.take_complete(frame.body);
        EXPECT_TRUE(taken && round.check());
      }
      link.stream().drop_taken();
      relay.advance(kClock.now_ns(), [](std::string_view) { return false; });
      std::vector<pollfd> fds;
      // No stranger, whose time runs: its child.
      if (relay.waits(kClock.now_ns(), &fds) == kNever && fds.size() == 2) has_child_ = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    link.stream().seal(FrameKind::kBye, {});
    (void)link.stream().send();
  }

  void expect_all_to_meet(uint16_t port) {
    std::thread bad([&] { attend_badly(port); });
    std::vector<std::thread> threads;
    for (const uint32_t rank : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 9u}) {
      threads.emplace_back([this, rank] { attend(rank, kWorld, 2); });
    }
    for (auto& thread : threads) thread.join();
    done_ = true;
    bad.join();
  }

  // Given that rank 8 tells these lies, expect all others to meet. How often rank 9 said who lied.
  int64_t meet_in_spite_of(const std::vector<std::string>& lies) {
    testkit::HeardLines lines;
    brought_count_ = 0;
    done_ = false;
    std::thread bad([&] { attend_badly(0, lies); });
    std::vector<std::unique_ptr<Rendezvous>> ranks(kWorld);
    std::vector<std::thread> threads;
    for (const uint32_t rank : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 9u}) {
      EXPECT_TRUE(make(rank, kWorld, &ranks[rank]).ok());
      threads.emplace_back([&, rank] {
        std::vector<std::string> all;
        const std::string mine = silent_ ? "" : blob_of(rank, 0);
        const Status status = gather(*ranks[rank], mine, kForeverMs, &all);
        EXPECT_TRUE(status.ok()) << rank << ": " << status.message();
        for (uint32_t other = 0; status.ok() && other < kWorld; ++other) {
          EXPECT_EQ(all[other], silent_ ? "" : blob_of(other, 0));
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (auto& rank : ranks) {
      if (rank) rank->finish_bootstrap();
    }
    done_ = true;
    bad.join();
    return std::count_if(lines.lines().begin(), lines.lines().end(), [](const std::string& line) {
      return line.find("what rank 8 at 127.0.0.1:") != std::string::npos &&
             line.find("passed on to rank 9") != std::string::npos;
    });
  }

  bool silent_ = false;  // nobody brings anything
  std::atomic<bool> done_ = false;
  std::atomic<bool> has_child_ = false;  // to which it lies
  int brought_count_ = 0;
};

TEST_F(BadParent, that_does_not_listen) {
  expect_all_to_meet(0);
  brought_count_ = 0;
  done_ = false;
  expect_all_to_meet(free_port());
}

// It accepts, or its system does, and says nothing: a fifth of the lease is waited for it.
TEST_F(BadParent, that_is_mute) {
  lease_ms_ = 5000;
  UniqueFd listener;
  SocketAddress address = make_address(std::string("\x7f\0\0\1", 4), 0);
  ASSERT_TRUE(tcp_listen(address, &listener).ok());
  ASSERT_TRUE(tcp_name(listener, &address).ok());
  expect_all_to_meet(port_of(address));
}

// Given ranks that leave as soon as they have the blobs of a round, as those do that refuse what is
// in them, expect a rank to whom the blobs come late to have them too, before it hears of that.
TEST_F(BadParent, that_is_mute_while_the_others_leave) {
  lease_ms_ = 5000;
  UniqueFd listener;
  SocketAddress address = make_address(std::string("\x7f\0\0\1", 4), 0);
  ASSERT_TRUE(tcp_listen(address, &listener).ok());
  ASSERT_TRUE(tcp_name(listener, &address).ok());
  std::thread bad([&] { attend_badly(port_of(address)); });
  std::vector<std::unique_ptr<Rendezvous>> ranks(kWorld);
  std::vector<std::thread> threads;
  for (const uint32_t rank : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 9u}) {
    ASSERT_TRUE(make(rank, kWorld, &ranks[rank]).ok());
    threads.emplace_back([&, rank] {
      std::vector<std::string> all;
      const Status status = gather(*ranks[rank], blob_of(rank, 0), kForeverMs, &all);
      EXPECT_TRUE(status.ok()) << rank << ": " << status.message();
      ranks[rank]->leave(invalid("rank 8 brought what it should not"));
    });
  }
  for (auto& thread : threads) thread.join();
  done_ = true;
  bad.join();
}

class LyingParent : public BadParent {
 protected:
  static std::vector<std::string> blobs() {
    std::vector<std::string> all;
    for (uint32_t rank = 0; rank < kWorld; ++rank) all.push_back(blob_of(rank, 0));
    return all;
  }
};

// The forged round is whole, or lacks its end: then what is missing is not put behind it.
TEST_F(LyingParent, forges_a_blob) {
  std::vector<std::string> forged = blobs();
  forged[3] = "forged";
  EXPECT_EQ(meet_in_spite_of({encode(BlobPiece{0, 0, forged})}), 1);
}

TEST_F(LyingParent, forges_the_first_blobs_and_is_slow_with_the_others) {
  lease_ms_ = 5000;
  (void)meet_in_spite_of({encode(BlobPiece{0, 0, {"forged"}})});
}

TEST_F(LyingParent, sends_blobs_of_a_round_that_has_none) {
  silent_ = true;
  (void)meet_in_spite_of({encode(BlobPiece{0, 0, {"forged"}})});
}

TEST_F(LyingParent, sends_pieces_of_nothing) {
  EXPECT_EQ(meet_in_spite_of(std::vector<std::string>(1000, encode(BlobPiece{0, 0, {}}))), 1);
}

// How many ports of this process take connections.
int listening_count() {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) {
    int domain = 0;
    int listens = 0;
    socklen_t bytes = sizeof domain;
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 || domain != AF_INET)
      continue;
    bytes = sizeof listens;
    (void)::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes);
    count += listens;
  }
  return count;
}

// Given ranks of which one takes children, expect no port to be open once all have met, though
// their rendezvous are still there, as they are for as long as a job runs.
TEST_F(TcpRendezvousTest, no_port_outlives_the_last_round) {
  constexpr uint32_t kRanks = 10;
  const int before = listening_count();
  std::vector<std::unique_ptr<Rendezvous>> ranks(kRanks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(make(rank, kRanks, &ranks[rank]).ok());
    threads.emplace_back([&, rank] { attend(*ranks[rank], rank, kRanks, 2); });
  }
  for (auto& thread : threads) thread.join();
  while (listening_count() > before + 1) std::this_thread::yield();
  ranks[0].reset();
  EXPECT_EQ(listening_count(), before);
}

// Time as it is, until it is moved on.
class MovedClock final : public Clock {
 public:
  int64_t now_ns() const override { return kClock.now_ns() + moved_ns; }
  std::atomic<int64_t> moved_ns = 0;
};

// It passes on a part, which is true, and then no more.
TEST_F(BadParent, is_named_where_its_blobs_are_waited_for_at_the_deadline) {
  MovedClock clock;
  const RendezvousOptions options{
      .rank = 9, .world = kWorld, .host = "host9", .lease_ms = lease_ms_, .clock = &clock};
  TcpAddress at;
  ASSERT_TRUE(parse_tcp_address("127.0.0.1:" + std::to_string(port_), &at).ok());
  TcpEntry entry;
  entry.where = at.text();
  entry.job = unnamed_job(process_variable);
  entry.key = derive_key("", kJobKey);
  std::unique_ptr<Rendezvous> rank_9;
  ASSERT_TRUE(TcpMember::create(options, entry, at, &rank_9).ok());
  std::thread bad([&] { attend_badly(0, {encode(BlobPiece{0, 0, {blob_of(0, 0)}})}); });
  std::thread waiting([&] {
    std::vector<std::string> all;
    const Status status = gather(*rank_9, "9", kForeverMs, &all);
    EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
    EXPECT_TRUE(rendezvous_kit::has(status.message(),
                                    "what they brought has not come from rank 8 at 127.0.0.1:"))
        << status.message();
  });
  std::vector<std::unique_ptr<Rendezvous>> ranks(8);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    ASSERT_TRUE(make(rank, kWorld, &ranks[rank]).ok());
    threads.emplace_back([&, rank] {
      std::vector<std::string> all;
      EXPECT_TRUE(gather(*ranks[rank], blob_of(rank, 0), kForeverMs, &all).ok());
    });
  }
  for (auto& thread : threads) thread.join();
  while (!has_child_) std::this_thread::yield();
  clock.moved_ns = 2 * kForeverMs * kNanosecondsPerMillisecond;
  waiting.join();
  done_ = true;
  bad.join();
}

}  // namespace
}  // namespace parallax
