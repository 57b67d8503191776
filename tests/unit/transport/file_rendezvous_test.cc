// SPDX-License-Identifier: Apache-2.0
// Meetings in a directory: rounds, the missing, the lost, the double, the stale.
#include "transport/rendezvous/file_rendezvous.h"

#include <filesystem>
#include <fstream>

#include "unit/transport/file_meeting.h"

namespace parallax {
namespace {

using file_meeting::blob_of;
using file_meeting::bytes_of;
using file_meeting::FileMeeting;
using file_meeting::has;
using file_meeting::in_ms;
using file_meeting::in_threads;
using file_meeting::kClock;
using file_meeting::meet;
using file_meeting::options_for;

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

}  // namespace
}  // namespace parallax
