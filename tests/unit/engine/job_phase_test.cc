// SPDX-License-Identifier: Apache-2.0
// How far a job has come, and what calls of a running job are told in each phase.
#include "engine/job_phase.h"

#include <gtest/gtest.h>

#include "support/words.h"

namespace parallax::testkit {
namespace {

TEST(JobPhase, IsOnePhaseAtATime) {
  const Status failure;
  JobPhase phase(failure);
  const auto are = [&phase] {
    return std::vector<bool>{phase.open(), phase.committing(), phase.running(), phase.closing(),
                             phase.closed()};
  };
  EXPECT_EQ(are(), (std::vector<bool>{true, false, false, false, false}));
  phase.commit();
  EXPECT_EQ(are(), (std::vector<bool>{false, true, false, false, false}));
  phase.run();
  EXPECT_EQ(are(), (std::vector<bool>{false, false, true, false, false}));
  phase.close();
  EXPECT_EQ(are(), (std::vector<bool>{false, false, false, true, false}));
  phase.end();
  EXPECT_EQ(are(), (std::vector<bool>{false, false, false, false, true}));
}

TEST(JobPhase, ACallIsToldWhyTheJobDoesNotTakeIt) {
  const Status failure;
  JobPhase phase(failure);
  EXPECT_EQ(phase.check_running("pull").code(), PARALLAX_STATE);
  EXPECT_TRUE(has(phase.check_running("pull"), "pull: the job is not committed; call commit"));
  phase.commit();
  EXPECT_EQ(phase.check_running("pull").code(), PARALLAX_STATE);
  EXPECT_TRUE(has(phase.check_running("pull"), "pull: a commit is under way, or timed out"));
  phase.run();
  EXPECT_TRUE(phase.check_running("pull").ok());
  phase.close();
  EXPECT_TRUE(has(phase.check_running("barrier"), "barrier: the job is closing"));
  phase.end();
  EXPECT_EQ(phase.check_running("barrier").code(), PARALLAX_STATE);
  EXPECT_TRUE(has(phase.check_running("barrier"), "barrier: the job is closing"));
}

TEST(JobPhase, WhatIsPreparedIsBeforeTheFirstCommitOrBetweenSteps) {
  const Status failure;
  JobPhase phase(failure);
  StepWindow window;
  EXPECT_TRUE(phase.check_preparing("register", window).ok());
  EXPECT_FALSE(phase.committed());
  phase.commit();
  EXPECT_TRUE(has(phase.check_preparing("register", window), "register: a commit is under way"));
  phase.run();
  EXPECT_TRUE(phase.check_preparing("register", window).ok());
  window.begin();
  EXPECT_EQ(phase.check_preparing("register", window).code(), PARALLAX_STATE);
  EXPECT_TRUE(
      has(phase.check_preparing("register", window),
          "register: step 1 is under way; end it, and wait for its step_end request first"));
  window.end(1);
  window.decide();
  EXPECT_TRUE(has(phase.check_preparing("commit", window),
                  "commit: step 1 is not over; wait for its step_end request first"));
  window.finish();
  EXPECT_TRUE(phase.check_preparing("commit", window).ok());
  phase.commit();
  EXPECT_TRUE(phase.committed()) << "it stays so";
  phase.run();
  phase.close();
  EXPECT_TRUE(has(phase.check_preparing("commit", window), "commit: the job is closing"));
}

TEST(JobPhase, CallsOfAFailedJobSayWhatFailedIt) {
  Status failure;
  JobPhase phase(failure);
  phase.run();
  failure = peer_lost("rank 1 is lost");
  EXPECT_EQ(phase.check_running("push").code(), PARALLAX_PEER_LOST);
  phase.end();
  EXPECT_TRUE(has(phase.check_running("push"), "rank 1 is lost"));
}

}  // namespace
}  // namespace parallax::testkit
