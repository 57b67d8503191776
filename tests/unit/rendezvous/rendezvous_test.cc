// SPDX-License-Identifier: Apache-2.0
// Rendezvous of every kind: rounds, options, ranks of one process.
#include "rendezvous/rendezvous.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "base/log.h"
#include "base/rank_list.h"
#include "support/caller_exchange.h"
#include "unit/rendezvous/file_rendezvous_kit.h"
#include "unit/rendezvous/tcp_rendezvous_kit.h"

namespace parallax {
namespace {

using file_rendezvous_kit::bytes_of;
using file_rendezvous_kit::has;
using file_rendezvous_kit::in_ms;
using file_rendezvous_kit::kClock;
using file_rendezvous_kit::kForeverMs;
using file_rendezvous_kit::meet;
using file_rendezvous_kit::options_for;
using testkit::CallerExchange;

TEST(Rendezvous, solo) {
  meet(1, 2, [](uint32_t) { return options_for(0, 0, nullptr); });
}

TEST(Rendezvous, inproc_rounds_and_the_name_again) {
  for (int job = 0; job < 20; ++job) {
    meet(8, 3, [](uint32_t rank) { return options_for(rank, 8, "inproc:again"); });
  }
}

TEST(Rendezvous, callback_rounds) {
  constexpr uint32_t kWorld = 5;
  CallerExchange exchange(kWorld);
  std::vector<CallerExchange::Context> contexts;
  for (uint32_t rank = 0; rank < kWorld; ++rank) contexts.push_back({&exchange, rank});
  const auto options = [&](uint32_t rank) {
    parallax_options_t made = options_for(rank, kWorld, nullptr);
    made.allgather = CallerExchange::run;
    made.allgather_context = &contexts[rank];
    return made;
  };
  meet(kWorld, 3, options);
}

TEST(Rendezvous, callback_failures_are_told) {
  parallax_options_t options = options_for(0, 2, nullptr);
  std::vector<std::string> all;
  std::unique_ptr<Rendezvous> rendezvous;
  options.allgather = [](void*, const void*, void*, size_t) { return 42; };
  ASSERT_TRUE(make_rendezvous(options, "h", kClock, &rendezvous).ok());
  Status status = rendezvous->allgather(bytes_of("a"), in_ms(100), &all);
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_TRUE(has(status, "42")) << status.message();
  // One that gives everybody rank 0's bytes.
  options.allgather = [](void*, const void* send, void* recv, size_t bytes) {
    std::memcpy(recv, send, bytes);
    std::memcpy(static_cast<char*>(recv) + bytes, send, bytes);
    return 0;
  };
  ASSERT_TRUE(make_rendezvous(options, "h", kClock, &rendezvous).ok());
  status = rendezvous->allgather(bytes_of("a"), in_ms(100), &all);
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_TRUE(has(status, "rank 1's bytes")) << status.message();
}

TEST(Rendezvous, options_are_checked) {
  std::unique_ptr<Rendezvous> rendezvous;
  for (const char* wrong : {"", "tcp:foo", "inproc:", "file:", "inproc", "env"}) {
    const Status status = make_rendezvous(options_for(0, 2, wrong), "h", kClock, &rendezvous);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << wrong;
  }
  for (const char* wrong : {"inproc", "file:", "Env"}) {
    const Status alone = make_rendezvous(options_for(0, 1, wrong), "h", kClock, &rendezvous);
    EXPECT_EQ(alone.code(), PARALLAX_INVALID) << wrong << ", though nobody is to be met";
  }
  EXPECT_EQ(make_rendezvous(options_for(0, 2, nullptr), "h", kClock, &rendezvous).code(),
            PARALLAX_INVALID);
  EXPECT_EQ(make_rendezvous(options_for(2, 2, "inproc:n"), "h", kClock, &rendezvous).code(),
            PARALLAX_INVALID);
  parallax_options_t both = options_for(0, 2, "inproc:n");
  both.allgather = CallerExchange::run;
  EXPECT_EQ(make_rendezvous(both, "h", kClock, &rendezvous).code(), PARALLAX_INVALID);
}

TEST(Rendezvous, inproc_names_the_missing_the_double_and_the_left) {
  std::unique_ptr<Rendezvous> zero;
  std::unique_ptr<Rendezvous> two;
  std::unique_ptr<Rendezvous> again;
  ASSERT_TRUE(make_rendezvous(options_for(0, 4, "inproc:n"), "h0", kClock, &zero).ok());
  ASSERT_TRUE(make_rendezvous(options_for(2, 4, "inproc:n"), "h2", kClock, &two).ok());
  Status status = make_rendezvous(options_for(2, 4, "inproc:n"), "h2", kClock, &again);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "rank 2")) << status.message();
  status = make_rendezvous(options_for(1, 3, "inproc:n"), "h1", kClock, &again);
  EXPECT_EQ(status.code(), PARALLAX_MISMATCH) << status.message();
  std::vector<std::string> all;
  status = zero->allgather(bytes_of("a"), in_ms(50), &all);
  EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
  EXPECT_TRUE(has(status, "ranks 1 and 3 never came; rank 2 came")) << status.message();
  two.reset();
  status = zero->allgather(bytes_of("b"), in_ms(5000), &all);
  EXPECT_EQ(status.code(), PARALLAX_PEER_LOST);
  EXPECT_TRUE(has(status, "rank 2 (host h2)")) << status.message();
}

// Given a rank of the last job that still lingers, expect the next job to begin under its name.
TEST(Rendezvous, inproc_the_next_job_does_not_wait_for_the_last_of_the_one_before) {
  std::unique_ptr<Rendezvous> lingering;
  {
    std::unique_ptr<Rendezvous> zero;
    ASSERT_TRUE(make_rendezvous(options_for(0, 2, "inproc:n"), "h", kClock, &zero).ok());
    ASSERT_TRUE(make_rendezvous(options_for(1, 2, "inproc:n"), "h", kClock, &lingering).ok());
  }
  meet(2, 2, [](uint32_t rank) { return options_for(rank, 2, "inproc:n"); });
}

// Given ranks that wait for one that does not come, expect each to say so again and again.
TEST(Rendezvous, who_waits_says_for_whom_every_10_s) {
  struct Lines {
    std::atomic<int> count = 0;
    static void hear(void* context, int, const char*, const char* text) {
      if (std::strstr(text, "still waiting in the rendezvous") == nullptr) return;
      EXPECT_NE(std::strstr(text, "never came"), nullptr) << text;
      ++static_cast<Lines*>(context)->count;
    }
  };
  Lines lines;
  ASSERT_TRUE(log_set_callback(Lines::hear, &lines, LogLevel::kWarn).ok());
  const testkit::TemporaryFolder folder;
  const std::string file = "file:" + folder.path() + "/job";
  const std::string tcp = "tcp:127.0.0.1:" + std::to_string(tcp_rendezvous_kit::free_port());
  struct Case {
    std::string where;
    uint32_t rank;
  };
  for (const Case& one : {Case{"inproc:alone", 0}, Case{file, 0}, Case{tcp, 0}, Case{tcp, 1}}) {
    lines.count = 0;
    file_rendezvous_kit::TurnedClock clock;
    std::unique_ptr<Rendezvous> mine;
    ASSERT_TRUE(
        make_rendezvous(options_for(one.rank, 2, one.where.c_str()), "h", clock, &mine).ok());
    std::thread turning([&] {
      for (int i = 1; i <= 3; ++i) {
        // Again, if the rendezvous looked at the clock for the first time only after it was turned.
        for (int waited_ms = 0; lines.count < i; ++waited_ms) {
          if (waited_ms % 500 == 0) clock.turn(11000 * kNanosecondsPerMillisecond);
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
      clock.turn(10 * kForeverMs * kNanosecondsPerMillisecond);
    });
    std::vector<std::string> all;
    const Status status = mine->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
    EXPECT_EQ(status.code(), PARALLAX_TIMEOUT) << one.where << ": " << status.message();
    turning.join();
  }
  ASSERT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kWarn).ok());
}

TEST(RankList, words) {
  const std::vector<uint32_t> one{3};
  const std::vector<uint32_t> three{1, 4, 7};
  std::vector<uint32_t> many(40);
  EXPECT_EQ(rank_list(one), "rank 3");
  EXPECT_EQ(rank_list(three), "ranks 1, 4 and 7");
  EXPECT_NE(rank_list(many).find("and 24 more"), std::string::npos);
  EXPECT_EQ(describe_missing(one, {}), "rank 3 never came");
}

}  // namespace
}  // namespace parallax
