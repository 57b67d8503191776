// SPDX-License-Identifier: Apache-2.0
#include "job/contact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

constexpr int64_t kOneMs = kNanosecondsPerMillisecond;
constexpr int64_t kNoDeadline = INT64_MAX;

// A rendezvous that says at some time who is lost.
class TestRendezvous final : public Rendezvous {
 public:
  explicit TestRendezvous(const Clock& clock) : clock_(clock) {}
  void say(int64_t at_ns, Status said) {
    said_ = std::move(said);
    at_ns_ = at_ns;
  }
  const Status& left() const { return left_; }

  std::string_view name() const override { return "test"; }
  Status allgather(std::span<const std::byte>, int64_t, std::vector<std::string>*) override {
    return {};
  }
  void leave(const Status& why) override { left_ = why; }
  Status verdict() override { return clock_.now_ns() < at_ns_ ? Status() : said_; }
  void finish_bootstrap() override {}
  Status finish() override { return {}; }

 private:
  const Clock& clock_;
  Status said_, left_;
  int64_t at_ns_ = kNever;
};

// One rank that gets in touch with others, which answer with `answer`, silent ones when time is up.
struct OneRank {
  explicit OneRank(int64_t lease_ms) : lease_ns(lease_ms * kOneMs) {}

  Status contact(ContactWay exchange, const Status& answer, int64_t deadline_ns = kNoDeadline) {
    const ContactMeans means = {clock, [this](int64_t ns) { clock.advance(ns); }, rendezvous,
                                lease_ns};
    return make_contact(means, exchange, deadline_ns, [&](int64_t end_ns) {
      if (answer.code() == PARALLAX_TIMEOUT) clock.advance(end_ns - clock.now_ns());
      return answer;
    });
  }
  int64_t now_ns() const { return clock.now_ns(); }

  const int64_t lease_ns;
  ManualClock clock;
  TestRendezvous rendezvous{clock};
};

const Status kSilent = timed_out("rank 2 (host b): it does not answer");
const Status kBroken = io_error("rank 2 (host b): connection reset");
const Status kNews = peer_lost("rank 1 (host a) did not answer");

TEST(Contact, WhoAnswersIsReached) {
  OneRank rank(1000);
  EXPECT_TRUE(rank.contact(ContactWay::kNetwork, {}).ok());
  EXPECT_TRUE(rank.rendezvous.left().ok());
}

// Given a rank that is stopped, its host-mate that waits for it over shared memory, and a
// rank of another host that waits for the host-mate, expect that one to hear of the stopped rank
// before it judges the host-mate, though the host-mate began somewhat later.
TEST(Contact, SilenceOverTheNetworkWaitsForWhoKnowsTheCause) {
  for (const int64_t lease_ms : {50, 500, 4000, 60000}) {
    OneRank mate(lease_ms);
    EXPECT_EQ(mate.contact(ContactWay::kSharedMemory, kSilent).code(), PARALLAX_PEER_LOST);
    EXPECT_EQ(mate.rendezvous.left().code(), PARALLAX_PEER_LOST);

    OneRank remote(lease_ms);
    remote.rendezvous.say(mate.now_ns() + 100 * kOneMs, kNews);
    const Status heard = remote.contact(ContactWay::kNetwork, kSilent);
    EXPECT_EQ(heard.message(), kNews.message()) << "lease " << lease_ms;
    EXPECT_EQ(remote.rendezvous.left().message(), kNews.message());
  }
}

// Given a rank that lacks what it takes to connect, expect it to say so, whomever others have lost.
TEST(Contact, AnOwnLackIsNoNewsOfOthers) {
  OneRank rank(1000);
  rank.rendezvous.say(0, kNews);
  const Status lacks = limit("no connection: raise ulimit -n");
  EXPECT_EQ(rank.contact(ContactWay::kNetwork, lacks).message(), lacks.message());
  EXPECT_EQ(rank.rendezvous.left().code(), PARALLAX_LIMIT);
}

// Given no news, expect a silent rank to be lost within the lease, or where that is short,
// soon.
TEST(Contact, SilenceIsALoss) {
  for (const ContactWay exchange : {ContactWay::kSharedMemory, ContactWay::kNetwork}) {
    for (const int64_t lease_ms : {50, 500, 4000, 60000}) {
      OneRank rank(lease_ms);
      const int64_t began_ns = rank.now_ns();
      const Status lost = rank.contact(exchange, kSilent);
      EXPECT_EQ(lost.code(), PARALLAX_PEER_LOST);
      EXPECT_EQ(lost.message(), kSilent.message());
      EXPECT_EQ(rank.rendezvous.left().code(), PARALLAX_PEER_LOST);
      EXPECT_LE(rank.now_ns() - began_ns,
                std::max(rank.lease_ns, rank.lease_ns * 4 / 5 + 300 * kOneMs));
    }
  }
}

// Given a job whose own time is up before that of the others, expect nobody to be
// called lost, and no wait beyond it.
TEST(Contact, ADeadlineIsNoLoss) {
  for (const int64_t lease_ms : {4000, 60000}) {
    OneRank rank(lease_ms);
    const int64_t deadline_ns = rank.now_ns() + 1000 * kOneMs;
    EXPECT_EQ(rank.contact(ContactWay::kNetwork, kSilent, deadline_ns).code(), PARALLAX_TIMEOUT);
    EXPECT_EQ(rank.now_ns(), deadline_ns);
  }
}

// Given a broken connection, expect news to win over it, and to be waited for up to 100 ms, not as
// long as after silence.
TEST(Contact, ABrokenConnectionWaitsForNews) {
  OneRank told(4000);
  told.rendezvous.say(told.now_ns() + 80 * kOneMs, kNews);
  EXPECT_EQ(told.contact(ContactWay::kNetwork, kBroken).message(), kNews.message());

  OneRank untold(4000);
  const int64_t began_ns = untold.now_ns();
  EXPECT_EQ(untold.contact(ContactWay::kNetwork, kBroken).message(), kBroken.message());
  EXPECT_LE(untold.now_ns() - began_ns, 100 * kOneMs);
}

}  // namespace
}  // namespace parallax::testkit
