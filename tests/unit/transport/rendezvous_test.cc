// SPDX-License-Identifier: Apache-2.0
// Rendezvous of every kind: rounds, the missing, the lost, the double, the stale.
#include "transport/rendezvous/rendezvous.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "support/temporary_folder.h"
#include "transport/endpoint.h"
#include "transport/inproc/hub.h"
#include "transport/rendezvous/rank_list.h"

namespace parallax {
namespace {

const SteadyClock kClock;

int64_t in_ms(int64_t milliseconds) {
  return kClock.now_ns() + milliseconds * kNanosecondsPerMillisecond;
}

std::string blob_of(uint32_t rank, int round) {
  std::string blob = "rank " + std::to_string(rank) + " round " + std::to_string(round);
  blob.push_back('\0');
  blob.append(rank * 7, 'x');
  return blob;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

bool has(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

parallax_options_t options_for(uint32_t rank, uint32_t world, const char* rendezvous) {
  parallax_options_t options{};
  options.size = sizeof options;
  options.rank = rank;
  options.world = world;
  options.rendezvous = rendezvous;
  options.lease_ms = 1000;
  return options;
}

std::string host_of(uint32_t rank) { return "host" + std::to_string(rank / 2); }

void in_threads(uint32_t world, const std::function<void(uint32_t)>& run) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < world; ++rank) threads.emplace_back(run, rank);
  for (auto& thread : threads) thread.join();
}

// All ranks meet in `rounds` rounds and part in order.
void meet(uint32_t world, int rounds, const std::function<parallax_options_t(uint32_t)>& options) {
  std::barrier all_are_through(world);
  in_threads(world, [&](uint32_t rank) {
    std::unique_ptr<Rendezvous> rendezvous;
    Status status = make_rendezvous(options(rank), host_of(rank), kClock, &rendezvous);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::string> all;
      status = rendezvous->allgather(bytes_of(blob_of(rank, round)), in_ms(20000), &all);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(all.size(), world);
      for (uint32_t other = 0; other < world; ++other) {
        EXPECT_EQ(all[other], blob_of(other, round));
      }
    }
    rendezvous->settle();
    all_are_through.arrive_and_wait();  // as close does
    EXPECT_TRUE(rendezvous->finish().ok());
  });
}

// An allgather as a caller's would be, between threads.
struct CallerExchange {
  explicit CallerExchange(uint32_t world) : world(world) {}
  struct Context {
    CallerExchange* exchange;
    uint32_t rank;
  };

  static int run(void* context, const void* send, void* recv, size_t bytes) {
    const auto* self = static_cast<Context*>(context);
    CallerExchange& exchange = *self->exchange;
    std::unique_lock lock(exchange.mutex);
    exchange.cells.resize(exchange.world * bytes);
    std::memcpy(exchange.cells.data() + self->rank * bytes, send, bytes);
    const uint64_t turn = exchange.turn;
    if (++exchange.arrived == exchange.world) {
      exchange.arrived = 0;
      ++exchange.turn;
      exchange.result = exchange.cells;
      exchange.changed.notify_all();
    }
    exchange.changed.wait(lock, [&] { return exchange.turn != turn; });
    std::memcpy(recv, exchange.result.data(), exchange.result.size());
    return exchange.failure;
  }

  const uint32_t world;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<char> cells;
  std::vector<char> result;
  uint32_t arrived = 0;
  uint64_t turn = 0;
  int failure = 0;
};

class FileMeeting : public ::testing::Test {
 protected:
  Status make(uint32_t rank, uint32_t world, std::unique_ptr<Rendezvous>* rendezvous,
              uint32_t lease_ms = 1000) {
    parallax_options_t options = options_for(rank, world, where_.c_str());
    options.lease_ms = lease_ms;
    return make_rendezvous(options, host_of(rank), kClock, rendezvous);
  }

  // A rank in a process of its own, which announces itself, joins `rounds` rounds and then waits.
  pid_t start_rank(uint32_t rank, uint32_t world, int rounds) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      std::unique_ptr<Rendezvous> rendezvous;
      if (!make(rank, world, &rendezvous).ok()) ::_exit(1);
      (void)!::write(ready[1], "x", 1);
      std::vector<std::string> all;
      for (int round = 0; round < rounds; ++round) {
        if (!rendezvous->allgather(bytes_of(blob_of(rank, round)), in_ms(20000), &all).ok()) {
          ::_exit(2);
        }
      }
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }

  static void end(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  const testkit::TemporaryFolder folder_;
  const std::string root_ = folder_.path();
  const std::string directory_ = root_ + "/job";
  std::string where_ = "file:" + directory_;
};

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

TEST_F(FileMeeting, rounds_and_the_directory_goes) {
  meet(6, 3, [&](uint32_t rank) { return options_for(rank, 6, where_.c_str()); });
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

TEST_F(FileMeeting, an_empty_directory_will_do) {
  std::filesystem::create_directory(directory_);
  meet(2, 1, [&](uint32_t rank) { return options_for(rank, 2, where_.c_str()); });
}

// Given ranks that pause between rounds for longer than the lease, expect nobody to be called lost.
TEST_F(FileMeeting, slow_between_rounds_is_not_lost) {
  in_threads(3, [&](uint32_t rank) {
    std::unique_ptr<Rendezvous> rendezvous;
    ASSERT_TRUE(make(rank, 3, &rendezvous, 500).ok());
    std::vector<std::string> all;
    for (int round = 0; round < 2; ++round) {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
      const Status status =
          rendezvous->allgather(bytes_of(blob_of(rank, round)), in_ms(20000), &all);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    rendezvous->settle();
    // Rank 0 removes the directory only when all are through, as close does.
    if (rank != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(rendezvous->finish().ok());
  });
}

TEST_F(FileMeeting, names_the_missing) {
  std::unique_ptr<Rendezvous> zero;
  std::unique_ptr<Rendezvous> two;
  ASSERT_TRUE(make(0, 4, &zero).ok());
  ASSERT_TRUE(make(2, 4, &two).ok());
  std::vector<std::string> all;
  const Status status = zero->allgather(bytes_of("a"), in_ms(200), &all);
  EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
  EXPECT_TRUE(has(status, "ranks 1 and 3 never came; rank 2 came")) << status.message();
  EXPECT_TRUE(has(status, directory_));
}

TEST_F(FileMeeting, without_rank_0_the_others_name_it) {
  std::unique_ptr<Rendezvous> one;
  ASSERT_TRUE(make(1, 2, &one).ok());
  std::vector<std::string> all;
  const Status status = one->allgather(bytes_of("a"), in_ms(200), &all);
  EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
  EXPECT_TRUE(has(status, "rank 0 never came")) << status.message();
}

// Killed and stopped, before its first round and between rounds, as rank 0 and as another.
TEST_F(FileMeeting, dead_and_stopped_ranks_are_lost_within_the_lease) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const int rounds : {0, 1}) {
      for (const uint32_t victim : {0u, 1u}) {
        const pid_t child = start_rank(victim, 2, rounds);
        std::unique_ptr<Rendezvous> mine;
        ASSERT_TRUE(make(1 - victim, 2, &mine).ok());
        std::vector<std::string> all;
        Status status;
        for (int round = 0; round < rounds; ++round) {
          status = mine->allgather(bytes_of("x"), in_ms(5000), &all);
          ASSERT_TRUE(status.ok()) << status.message();
        }
        ::kill(child, signal);
        const int64_t start_ns = kClock.now_ns();
        status = mine->allgather(bytes_of("x"), in_ms(20000), &all);
        const int64_t took_ms = (kClock.now_ns() - start_ns) / kNanosecondsPerMillisecond;
        EXPECT_EQ(status.code(), PARALLAX_PEER_LOST) << status.message();
        EXPECT_TRUE(has(status, "rank " + std::to_string(victim) + " (host host0)"))
            << status.message();
        EXPECT_LT(took_ms, 2000);
        end(child);
        mine.reset();
        std::filesystem::remove_all(directory_);
      }
    }
  }
}

TEST_F(FileMeeting, a_rank_that_gives_up_is_told_at_once) {
  for (const uint32_t quitter : {0u, 1u}) {
    std::unique_ptr<Rendezvous> mine;
    std::unique_ptr<Rendezvous> other;
    ASSERT_TRUE(make(1 - quitter, 2, &mine, 60000).ok());
    ASSERT_TRUE(make(quitter, 2, &other, 60000).ok());
    other.reset();
    std::vector<std::string> all;
    const Status status = mine->allgather(bytes_of("x"), in_ms(20000), &all);
    EXPECT_EQ(status.code(), PARALLAX_PEER_LOST) << status.message();
    EXPECT_TRUE(has(status, "rank " + std::to_string(quitter))) << status.message();
    mine.reset();
    std::filesystem::remove_all(directory_);
  }
}

// Given a rank that leaves with a reason, expect the others to name its culprit, or it and its
// reason, whatever the means; those that left for that in turn change nothing.
class LeavingWithAReason : public FileMeeting {
 protected:
  void expect_said(const char* where, const Status& why, parallax_status_t code,
                   const std::string& sentence) {
    std::unique_ptr<Rendezvous> ranks[3];
    for (uint32_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(make_rendezvous(options_for(rank, 3, where), "h" + std::to_string(rank), kClock,
                                  &ranks[rank])
                      .ok());
    }
    EXPECT_TRUE(ranks[1]->verdict().ok());
    ranks[2]->leave(why);
    ranks[2]->leave(io_error("a later reason"));
    EXPECT_EQ(ranks[0]->verdict().message(), sentence);
    for (const uint32_t rank : {1u, 0u}) {
      std::vector<std::string> all;
      const Status status = ranks[rank]->allgather(bytes_of("x"), in_ms(20000), &all);
      EXPECT_EQ(status.code(), code);
      EXPECT_EQ(status.message(), sentence);
      ranks[rank]->leave(status);
    }
    ranks[0].reset();
    std::filesystem::remove_all(directory_);
  }
};

TEST_F(LeavingWithAReason, all_name_the_culprit) {
  for (const char* where : {where_.c_str(), "inproc:reasons"}) {
    const std::string lost = "rank 7 (host b) is lost: process 4711 exited";
    expect_said(where, peer_lost(lost), PARALLAX_PEER_LOST, lost);
    const Status mismatch(PARALLAX_MISMATCH, "rank 2 says world 3, rank 0 says world 2");
    expect_said(where, mismatch, PARALLAX_MISMATCH, mismatch.message());
    expect_said(where, limit("no descriptors are left"), PARALLAX_PEER_LOST,
                "rank 2 (host h2) gave up before all ranks had met: no descriptors are left");
  }
}

TEST_F(FileMeeting, a_reason_that_nobody_wrote_is_none) {
  std::unique_ptr<Rendezvous> mine;
  ASSERT_TRUE(make(0, 2, &mine).ok());
  for (const char* reason : {"", "7 fine", "-99 unknown", "what", "-5"}) {
    std::ofstream(directory_ + "/alive.1") << std::hash<std::string>()(reason) << " left there\n"
                                           << reason << "\n";
    std::vector<std::string> all;
    const Status status = mine->allgather(bytes_of("x"), in_ms(5000), &all);
    EXPECT_EQ(status.code(), PARALLAX_PEER_LOST) << reason;
  }
}

TEST_F(FileMeeting, one_number_twice_is_refused) {
  std::unique_ptr<Rendezvous> first;
  std::unique_ptr<Rendezvous> second;
  for (const uint32_t rank : {1u, 0u}) {
    ASSERT_TRUE(make(rank, 2, &first).ok());
    const Status status = make(rank, 2, &second);
    EXPECT_EQ(status.code(), PARALLAX_INVALID);
    EXPECT_TRUE(has(status, "rank " + std::to_string(rank))) << status.message();
  }
}

// Given a directory left by a job that crashed, expect each rank of the next to be told.
TEST_F(FileMeeting, a_stale_directory_is_refused) {
  end(start_rank(0, 2, 0));
  std::unique_ptr<Rendezvous> mine;
  Status status = make(0, 2, &mine);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "another job")) << status.message();
  ASSERT_TRUE(make(1, 2, &mine).ok());
  std::vector<std::string> all;
  status = mine->allgather(bytes_of("x"), in_ms(20000), &all);
  EXPECT_EQ(status.code(), PARALLAX_PEER_LOST) << status.message();
  EXPECT_TRUE(has(status, "earlier job")) << status.message();
}

TEST_F(FileMeeting, blobs_of_another_job_are_not_believed) {
  std::unique_ptr<Rendezvous> mine;
  ASSERT_TRUE(make(0, 2, &mine).ok());
  std::ofstream(directory_ + "/blob.0.1") << "12345678 of yesterday";
  std::vector<std::string> all;
  const Status status = mine->allgather(bytes_of("x"), in_ms(5000), &all);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "another job")) << status.message();
}

TEST_F(FileMeeting, worlds_must_agree) {
  std::unique_ptr<Rendezvous> zero;
  std::unique_ptr<Rendezvous> one;
  ASSERT_TRUE(make(0, 2, &zero).ok());
  ASSERT_TRUE(make(1, 3, &one).ok());
  std::vector<std::string> all;
  EXPECT_EQ(one->allgather(bytes_of("x"), in_ms(5000), &all).code(), PARALLAX_MISMATCH);
}

TEST_F(FileMeeting, foreign_files_are_left_alone) {
  std::filesystem::create_directory(directory_);
  std::ofstream(directory_ + "/thesis.tex") << "years of work";
  std::unique_ptr<Rendezvous> mine;
  const Status status = make(0, 2, &mine);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "thesis.tex")) << status.message();
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/thesis.tex"));
}

TEST_F(FileMeeting, an_unwritable_directory_is_named) {
  std::unique_ptr<Rendezvous> mine;
  where_ = "file:/proc/parallax";  // unwritable for root, too
  Status status = make(0, 2, &mine);
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_TRUE(has(status, "/proc/parallax")) << status.message();
  where_ = "file:/proc/self/task";
  status = make(0, 2, &mine);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(has(status, "/proc/self/task")) << status.message();
  where_ = "file:" + root_ + "/a/b";
  status = make(0, 2, &mine);
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_TRUE(has(status, root_ + "/a/b")) << status.message();
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
