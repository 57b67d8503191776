// SPDX-License-Identifier: Apache-2.0
#include "job/introductions.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/version.h"
#include "job/job.h"
#include "support/caller_exchange.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

Endpoint rank_of(uint32_t rank, const std::string& host) {
  Endpoint endpoint;
  endpoint.version = kVersion;
  endpoint.rank = rank;
  endpoint.host = host;
  endpoint.shm_address = "shm-of-" + host;
  endpoint.place = {.node = rank, .cache = 7};
  return endpoint;
}

// Two ranks, of which this is rank 0, and rank 1 brings `other`.
class TwoBlobs final : public Rendezvous {
 public:
  explicit TwoBlobs(std::string other) : other_(std::move(other)) {}

  std::string_view name() const override { return "test"; }
  Status allgather(std::span<const std::byte> mine, int64_t,
                   std::vector<std::string>* all) override {
    *all = {std::string(reinterpret_cast<const char*>(mine.data()), mine.size()), other_};
    return {};
  }
  void leave(const Status&) override {}
  Status verdict() override { return {}; }
  void finish_bootstrap() override {}
  Status finish() override { return {}; }

 private:
  const std::string other_;
};

// Given two ranks, expect each to be known by what it said, and then where it is reached.
TEST(Introductions, TellOfEveryRank) {
  const Endpoint mine = rank_of(0, "a"), other = rank_of(1, "b");
  TwoBlobs first(encode_endpoint(other));
  std::vector<Endpoint> all;
  ASSERT_TRUE(exchange_endpoints(first, mine, kNever, &all).ok());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].host, "a");
  EXPECT_EQ(all[1].host, "b");
  EXPECT_EQ(all[1].shm_address, "");
  TwoBlobs second(encode_addresses(other));
  ASSERT_TRUE(exchange_addresses(second, mine, {}, kNever, &all).ok());
  EXPECT_EQ(all[1].shm_address, "shm-of-b");
  EXPECT_EQ(all[1].place, other.place);
}

// Given a rank that brings what is none, or another's, expect it to be named.
TEST(Introductions, NameWhoBringsSomethingElse) {
  const Endpoint mine = rank_of(0, "a");
  std::vector<Endpoint> all;
  const auto expect_named = [](const Status& status, const std::string& words) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  TwoBlobs garbage("garbage");
  expect_named(exchange_endpoints(garbage, mine, kNever, &all),
               "what rank 1 brought to the rendezvous is wrong");
  TwoBlobs twice(encode_endpoint(mine));
  expect_named(exchange_endpoints(twice, mine, kNever, &all),
               "rank 0 came to the rendezvous as rank 1");
  TwoBlobs right(encode_endpoint(rank_of(1, "b")));
  ASSERT_TRUE(exchange_endpoints(right, mine, kNever, &all).ok());
  TwoBlobs addresses_twice(encode_addresses(mine));
  expect_named(exchange_addresses(addresses_twice, mine, {}, kNever, &all),
               "what rank 1 brought to the rendezvous is wrong");
}

// Given ranks that meet by their caller's allgather, which can tell nobody that a rank left, and
// one that cannot listen for the others, expect it to say why, and the other to hear it.
TEST(Introductions, WhoCannotBeReachedIsNamedAlsoThroughACallersAllgather) {
  CallerExchange exchange(2);
  std::array<CallerExchange::Context, 2> contexts = {{{&exchange, 0}, {&exchange, 1}}};
  const auto open = [&](uint32_t rank) {
    parallax_options_t options = {};
    options.size = sizeof options;
    options.rank = rank;
    options.world = 2;
    options.allgather = CallerExchange::run;
    options.allgather_context = &contexts[rank];
    options.host = rank == 0 ? "a" : "b";
    options.net_device = "lo";
    if (rank == 1) options.secret_file = "/nowhere/secret";
    std::unique_ptr<Job> job;
    const Status status = Job::open(options, &job);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.code() == PARALLAX_PEER_LOST, rank == 0) << status.message();
    EXPECT_TRUE(has(status, "/nowhere/secret")) << status.message();
    if (rank == 1) return;
    EXPECT_TRUE(has(status, "rank 1 (host b) gave up")) << status.message();
    EXPECT_EQ(status.facts().peer, 1u);
  };
  std::thread other(open, 1);
  open(0);
  other.join();
}

}  // namespace
}  // namespace parallax::testkit
