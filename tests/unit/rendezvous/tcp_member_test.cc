// SPDX-License-Identifier: Apache-2.0
// A member whose parent in the tree passes no blobs on to it: rank 0 serves it instead, and all
// meet.
#include "rendezvous/tcp_member.h"

#include <atomic>

#include "base/codec.h"
#include "rendezvous/tcp_rendezvous.h"
#include "unit/rendezvous/tcp_rendezvous_kit.h"

namespace parallax {
namespace {

using tcp_rendezvous_kit::free_port;
using tcp_rendezvous_kit::kClock;
using tcp_rendezvous_kit::kForeverMs;
using tcp_rendezvous_kit::TcpRendezvousTest;

// A rank 8 of ten that tells rank 0 at which port it passes blobs on to rank 9, and passes none on.
class BadParent : public TcpRendezvousTest {
 protected:
  static constexpr uint32_t kWorld = 10;

  // Joins, says its port, and brings its blobs as an honest rank does, until the others have met.
  void attend_badly(uint16_t port) {
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
    std::string body;
    put_number(&body, port);
    link.stream().seal(FrameKind::kListen, body);
    MemberRound round(kWorld);
    for (bool open = true; open && !done_;) {
      if (!round.to_bring() && (round.met() || brought_count_ == 0)) {
        if (round.met()) (void)round.finish();
        round.begin(blob_of(8, brought_count_++));
        if (brought_count_ <= 2) link.stream().seal(FrameKind::kBring, round.bring());
      }
      link.stream().seal(FrameKind::kKeepalive, {});
      open = link.stream().send() && link.stream().receive(1 << 20);
      Frame frame;
      while (link.stream().take(&frame) == Took::kFrame) {
        bool taken = true;
        if (frame.kind == FrameKind::kBlobs) taken = round.take_blobs(frame.body);
        if (frame.kind == FrameKind::kComplete) taken = round.take_complete(frame.body);
        EXPECT_TRUE(taken);
      }
      link.stream().drop_taken();
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

  std::atomic<bool> done_ = false;
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

}  // namespace
}  // namespace parallax
