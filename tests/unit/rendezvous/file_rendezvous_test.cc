// SPDX-License-Identifier: Apache-2.0
// Rendezvous in a directory: rounds, the missing, the lost, the double, the stale.
#include "rendezvous/file_rendezvous.h"

#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include "rendezvous/rendezvous_claim.h"
#include "unit/rendezvous/file_rendezvous_kit.h"

namespace parallax {
namespace {

using file_rendezvous_kit::blob_of;
using file_rendezvous_kit::bytes_of;
using file_rendezvous_kit::FileRendezvousTest;
using file_rendezvous_kit::has;
using file_rendezvous_kit::in_ms;
using file_rendezvous_kit::in_threads;
using file_rendezvous_kit::kClock;
using file_rendezvous_kit::kForeverMs;
using file_rendezvous_kit::meet;
using file_rendezvous_kit::options_for;
using file_rendezvous_kit::TurnedClock;

TEST_F(FileRendezvousTest, rounds_and_the_directory_goes) {
  meet(6, 3, [&](uint32_t rank) { return options_for(rank, 6, where_.c_str()); });
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

TEST_F(FileRendezvousTest, an_empty_directory_will_do) {
  std::filesystem::create_directory(directory_);
  meet(2, 1, [&](uint32_t rank) { return options_for(rank, 2, where_.c_str()); });
}

// Given ranks that pause between rounds for longer than the lease, expect nobody to be called lost.
TEST_F(FileRendezvousTest, slow_between_rounds_is_not_lost) {
  constexpr uint32_t kLeaseMs = 5000;
  in_threads(3, [&](uint32_t rank) {
    std::unique_ptr<Rendezvous> rendezvous;
    ASSERT_TRUE(make(rank, 3, &rendezvous, kLeaseMs).ok());
    std::vector<std::string> all;
    for (int round = 0; round < 2; ++round) {
      if (round == 1 && rank != 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kLeaseMs + 500));
      }
      const Status status =
          rendezvous->allgather(bytes_of(blob_of(rank, round)), in_ms(600000), &all);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    rendezvous->finish_bootstrap();
  });
}

// Acts when it is looked at for the second time since a file is there.
class ActingClock final : public Clock {
 public:
  ActingClock(std::string file, std::function<void()> act)
      : file_(std::move(file)), act_(std::move(act)) {}
  int64_t now_ns() const override {
    if (act_ != nullptr && std::filesystem::exists(file_) && ++looks_ == 2) {
      std::exchange(act_, nullptr)();
    }
    return kClock.now_ns();
  }

 private:
  const std::string file_;
  mutable std::function<void()> act_;
  mutable int looks_ = 0;
};

// Given a rank that brings the last blob, reads all and leaves for what they say, between two looks
// of another, expect the other to have them all too, not that the first is gone.
TEST_F(FileRendezvousTest, who_left_has_brought_its_blob) {
  std::unique_ptr<Rendezvous> zero, one;
  ASSERT_TRUE(make(0, 2, &zero).ok());
  const ActingClock clock(directory_ + "/blob.0.1", [&zero] {
    std::vector<std::string> all;
    EXPECT_TRUE(zero->allgather(bytes_of("0"), in_ms(kForeverMs), &all).ok());
    zero->leave(unsupported("what they brought does not do"));
  });
  ASSERT_TRUE(make_rendezvous(options_for(1, 2, where_.c_str()), "host0", clock, &one).ok());
  std::vector<std::string> all;
  const Status status = one->allgather(bytes_of("1"), in_ms(kForeverMs), &all);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(all, (std::vector<std::string>{"0", "1"}));
}

TEST_F(FileRendezvousTest, names_the_missing) {
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

TEST_F(FileRendezvousTest, without_rank_0_the_others_name_it) {
  std::unique_ptr<Rendezvous> one;
  ASSERT_TRUE(make(1, 2, &one).ok());
  std::vector<std::string> all;
  const Status status = one->allgather(bytes_of("a"), in_ms(200), &all);
  EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
  EXPECT_TRUE(has(status, "rank 0 never came")) << status.message();
}

// Given a rank that is killed, before its first round or between rounds, as rank 0 or as another,
// expect it to be lost long before its lease has passed.
TEST_F(FileRendezvousTest, killed_ranks_are_lost_at_once) {
  for (const int rounds : {0, 1}) {
    for (const uint32_t victim : {0u, 1u}) {
      const pid_t child = start_rank(victim, 2, rounds);
      if (!locks_are_seen(victim)) {
        end(child);
        GTEST_SKIP() << "the file system of " << root_ << " has no locks";
      }
      std::unique_ptr<Rendezvous> mine;
      ASSERT_TRUE(make(1 - victim, 2, &mine).ok());
      std::vector<std::string> all;
      for (int round = 0; round < rounds; ++round) {
        const Status status = mine->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      end(child);
      const Status status = mine->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
      EXPECT_EQ(status.code(), PARALLAX_PEER_LOST) << status.message();
      EXPECT_TRUE(has(status, "rank " + std::to_string(victim) +
                                  " (host host0) ended without a word while ranks met in " +
                                  directory_))
          << status.message();
      mine.reset();
      EXPECT_FALSE(std::filesystem::exists(directory_)) << "the last that needed it took it away";
    }
  }
}

// Given a rank that is stopped, expect it to be lost once its lease has passed.
TEST_F(FileRendezvousTest, stopped_ranks_are_lost_by_their_lease) {
  for (const int rounds : {0, 1}) {
    for (const uint32_t victim : {0u, 1u}) {
      const pid_t child = start_rank(victim, 2, rounds);
      TurnedClock clock;
      std::unique_ptr<Rendezvous> mine;
      parallax_options_t options = options_for(1 - victim, 2, where_.c_str());
      options.lease_ms = kForeverMs;
      ASSERT_TRUE(make_rendezvous(options, "host0", clock, &mine).ok());
      std::vector<std::string> all;
      for (int round = 0; round < rounds; ++round) {
        const Status status = mine->allgather(bytes_of("x"), kNever, &all);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      ASSERT_EQ(::kill(child, SIGSTOP), 0);
      ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);
      std::atomic<bool> ended = false;
      std::thread turning([&] {
        while (!ended) {
          clock.turn(int64_t{kForeverMs} * kNanosecondsPerMillisecond / 10);
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
      });
      const Status status = mine->allgather(bytes_of("x"), kNever, &all);
      ended = true;
      turning.join();
      EXPECT_EQ(status.code(), PARALLAX_PEER_LOST) << status.message();
      EXPECT_TRUE(
          has(status, "rank " + std::to_string(victim) + " (host host0) sent no keepalive for "))
          << status.message();
      end(child);
      mine.reset();
      EXPECT_FALSE(std::filesystem::exists(directory_));
    }
  }
}

TEST_F(FileRendezvousTest, a_rank_that_gives_up_is_told_at_once) {
  for (const uint32_t quitter : {0u, 1u}) {
    std::unique_ptr<Rendezvous> mine;
    std::unique_ptr<Rendezvous> other;
    ASSERT_TRUE(make(1 - quitter, 2, &mine).ok());
    ASSERT_TRUE(make(quitter, 2, &other).ok());
    other.reset();
    std::vector<std::string> all;
    const Status status = mine->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
    EXPECT_EQ(status.code(), PARALLAX_PEER_LOST) << status.message();
    EXPECT_TRUE(has(status, "rank " + std::to_string(quitter))) << status.message();
    mine.reset();
    std::filesystem::remove_all(directory_);
  }
}

// Given a rank that leaves with a reason, expect the others to report the culprit that it names, or
// else this rank and its reason, over every kind of rendezvous; ranks that then leave in their turn
// change nothing.
class LeavingWithAReason : public FileRendezvousTest {
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
      const Status status = ranks[rank]->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
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

TEST_F(FileRendezvousTest, a_reason_that_nobody_wrote_is_none) {
  std::unique_ptr<Rendezvous> mine;
  ASSERT_TRUE(make(0, 2, &mine).ok());
  std::ofstream verdict(directory_ + "/verdict", std::ios::app);
  for (const char* reason : {"", "7 fine", "-99 unknown", "what", "-5", "-5 ", "-5 \033[2J"}) {
    verdict << reason << std::endl;
    EXPECT_TRUE(mine->verdict().ok()) << reason;
  }
  verdict << "-5 half a" << std::flush;
  EXPECT_TRUE(mine->verdict().ok());
  verdict << " line\n-6 a later one\n" << std::flush;
  const Status status = mine->verdict();
  EXPECT_EQ(status.code(), PARALLAX_PEER_LOST);
  EXPECT_EQ(status.message(), "half a line");
}

// Given ranks that open one job after another in one directory, as under `parallax run`, expect
// none to meet what the job before has left.
TEST_F(FileRendezvousTest, one_job_after_another) {
  constexpr uint32_t kWorld = 4;
  std::barrier closed(kWorld);
  in_threads(kWorld, [&](uint32_t rank) {
    for (int job = 0; job < 50; ++job) {
      std::unique_ptr<Rendezvous> mine;
      Status status = make(rank, kWorld, &mine, kForeverMs);
      ASSERT_TRUE(status.ok()) << status.message();
      std::vector<std::string> all;
      for (int round = 0; round < 3; ++round) {
        status = mine->allgather(bytes_of(blob_of(rank, round)), in_ms(kForeverMs), &all);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      mine->finish_bootstrap();
      closed.arrive_and_wait();
      if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(job % 3));
      EXPECT_TRUE(mine->finish().ok());
    }
  });
}

// Given a job that fails as soon as rank 0 is through, expect the others to be through as well: the
// directory stays as long as they read in it.
TEST_F(FileRendezvousTest, the_first_to_finish_leaves_no_rank_behind) {
  constexpr uint32_t kWorld = 4;
  std::barrier closed(kWorld);
  in_threads(kWorld, [&](uint32_t rank) {
    for (int job = 0; job < 30; ++job) {
      std::unique_ptr<Rendezvous> mine;
      Status status = make(rank, kWorld, &mine, kForeverMs);
      EXPECT_TRUE(status.ok()) << status.message();
      std::vector<std::string> all;
      for (int round = 0; round < 2 && status.ok(); ++round) {
        status = mine->allgather(bytes_of(blob_of(rank, round)), in_ms(kForeverMs), &all);
        EXPECT_TRUE(status.ok()) << status.message();
      }
      EXPECT_TRUE(mine == nullptr || mine->finish().ok());
      closed.arrive_and_wait();
    }
  });
}

// Given a directory that went while a rank waited there, expect it to say why the rendezvous ended.
TEST_F(FileRendezvousTest, a_reason_outlives_the_directory) {
  std::unique_ptr<Rendezvous> zero, one;
  ASSERT_TRUE(make(0, 3, &zero).ok());
  ASSERT_TRUE(make(1, 3, &one).ok());
  zero->leave(peer_lost("rank 2 (host b) is lost: process 4711 exited"));
  std::filesystem::remove_all(directory_);
  std::vector<std::string> all;
  const Status status = one->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
  EXPECT_EQ(status.code(), PARALLAX_PEER_LOST);
  EXPECT_EQ(status.message(), "rank 2 (host b) is lost: process 4711 exited");
}

// Given ranks that come when the rendezvous has failed and all that were there have gone, rank 0
// too, expect them to hear why, and the last to take the directory away.
TEST_F(FileRendezvousTest, who_comes_late_hears_why) {
  const std::string reason = "rank 3 (host b) is lost: process 4711 exited";
  for (const uint32_t first : {0u, 1u}) {
    std::unique_ptr<Rendezvous> mine;
    ASSERT_TRUE(make(first, 4, &mine).ok());
    mine->leave(peer_lost(reason));
    mine.reset();
    for (uint32_t rank = 0; rank < 4; ++rank) {
      if (rank == first) continue;
      EXPECT_TRUE(std::filesystem::exists(directory_));
      ASSERT_TRUE(make(rank, 4, &mine).ok());
      std::vector<std::string> all;
      const Status status = mine->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
      EXPECT_EQ(status.message(), reason);
      mine.reset();
    }
    EXPECT_FALSE(std::filesystem::exists(directory_));
  }
}

TEST_F(FileRendezvousTest, at_its_deadline_rank_0_takes_the_directory_away) {
  std::unique_ptr<Rendezvous> zero, one;
  ASSERT_TRUE(make(0, 3, &zero).ok());
  ASSERT_TRUE(make(1, 3, &one).ok());
  std::vector<std::string> all;
  zero->leave(zero->allgather(bytes_of("x"), in_ms(50), &all));
  zero.reset();
  EXPECT_FALSE(std::filesystem::exists(directory_));
  const Status status = one->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
  EXPECT_EQ(status.code(), PARALLAX_PEER_LOST);
  EXPECT_TRUE(has(status, "passed its deadline: rank 2 never came")) << status.message();
}

// Given many ranks of which one is killed while some wait and others have yet to come, expect all
// to say one sentence, which names it, and the directory to go.
TEST_F(FileRendezvousTest, all_name_who_was_killed) {
  constexpr uint32_t kWorld = 24;
  constexpr uint32_t kVictim = 7;
  const pid_t child = start_rank(kVictim, kWorld, 0);
  if (!locks_are_seen(kVictim)) {
    end(child);
    GTEST_SKIP() << "the file system of " << root_ << " has no locks";
  }
  std::vector<Status> ends(kWorld);
  std::atomic<uint32_t> come_count = 0;
  std::atomic<uint32_t> gone_count = 0;
  std::thread killing([&] {
    while (come_count < kWorld / 4) std::this_thread::yield();
    end(child);
  });
  in_threads(kWorld, [&](uint32_t rank) {
    if (rank == kVictim) return;
    // A third comes whenever it does, a third late, a third when others have gone already.
    if (rank % 3 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(rank));
    while (rank % 3 == 2 && gone_count < rank / 3) std::this_thread::yield();
    std::unique_ptr<Rendezvous> mine;
    Status& status = ends[rank];
    status = make(rank, kWorld, &mine, kForeverMs);
    ++come_count;
    std::vector<std::string> all;
    if (status.ok()) status = mine->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
    if (mine != nullptr) mine->leave(status);
    mine.reset();
    ++gone_count;
  });
  killing.join();
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    if (rank == kVictim) continue;
    EXPECT_EQ(ends[rank].code(), PARALLAX_PEER_LOST);
    EXPECT_TRUE(has(ends[rank], "rank 7 (host host3) ended without a word"))
        << ends[rank].message();
  }
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

TEST_F(FileRendezvousTest, one_number_twice_is_refused) {
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
TEST_F(FileRendezvousTest, a_stale_directory_is_refused) {
  end(start_rank(0, 2, 0));
  std::unique_ptr<Rendezvous> mine;
  Status status = make(0, 2, &mine);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "another job")) << status.message();
  ASSERT_TRUE(make(1, 2, &mine).ok());
  std::vector<std::string> all;
  status = mine->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
  EXPECT_EQ(status.code(), PARALLAX_PEER_LOST) << status.message();
  EXPECT_TRUE(has(status, "earlier job")) << status.message();
}

TEST_F(FileRendezvousTest, blobs_of_another_job_are_not_believed) {
  std::unique_ptr<Rendezvous> mine;
  ASSERT_TRUE(make(0, 2, &mine).ok());
  std::ofstream(directory_ + "/blob.0.1") << "12345678 of yesterday";
  std::vector<std::string> all;
  const Status status = mine->allgather(bytes_of("x"), in_ms(kForeverMs), &all);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "another job")) << status.message();
}

TEST_F(FileRendezvousTest, worlds_must_agree) {
  std::unique_ptr<Rendezvous> zero;
  std::unique_ptr<Rendezvous> one;
  ASSERT_TRUE(make(0, 2, &zero).ok());
  ASSERT_TRUE(make(1, 3, &one).ok());
  std::vector<std::string> all;
  EXPECT_EQ(one->allgather(bytes_of("x"), in_ms(kForeverMs), &all).code(), PARALLAX_MISMATCH);
}

TEST_F(FileRendezvousTest, foreign_files_are_left_alone) {
  std::filesystem::create_directory(directory_);
  std::ofstream(directory_ + "/thesis.tex") << "years of work";
  std::unique_ptr<Rendezvous> mine;
  const Status status = make(0, 2, &mine);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "thesis.tex")) << status.message();
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/thesis.tex"));
}

TEST_F(FileRendezvousTest, an_unwritable_directory_is_named) {
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

}  // namespace
}  // namespace parallax
