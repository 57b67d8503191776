// SPDX-License-Identifier: Apache-2.0
#include "engine/request_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace parallax {
namespace {

class RequestPoolTest : public testing::Test {
 protected:
  Request* take(RequestKind kind = RequestKind::kPush, uint64_t step = 1) {
    Request* request = nullptr;
    const Status taken = pool_.take(kind, step, &request);
    EXPECT_TRUE(taken.ok()) << taken.message();
    return request;
  }

  uint32_t completed_ = 0;
  RequestPool pool_{[this] { ++completed_; }};
};

TEST_F(RequestPoolTest, GivesAPendingRequestOfTheKindAndStep) {
  Request* request = take(RequestKind::kPull, 7);
  EXPECT_EQ(request->kind, RequestKind::kPull);
  EXPECT_EQ(request->step, 7u);
  EXPECT_FALSE(request->done());
  EXPECT_FALSE(request->free);
  EXPECT_EQ(pool_.outstanding(), 1u);
}

TEST_F(RequestPoolTest, FinishCompletesOnceAndTells) {
  Request* request = take();
  pool_.finish(request, invalid("wrong"));
  EXPECT_TRUE(request->done());
  EXPECT_EQ(request->status.code(), PARALLAX_INVALID);
  EXPECT_EQ(completed_, 1u);
  EXPECT_EQ(pool_.outstanding(), 1u) << "it is its caller's until it is released";
  EXPECT_ANY_THROW(pool_.finish(request, {}));
  EXPECT_EQ(completed_, 1u);
}

TEST_F(RequestPoolTest, ReleaseIsRefusedWhilePendingAndASecondTime) {
  Request* request = take();
  const Status pending = pool_.release(request);
  EXPECT_EQ(pending.code(), PARALLAX_STATE);
  EXPECT_NE(pending.message().find("pending"), std::string::npos);
  pool_.finish(request, {});
  EXPECT_TRUE(pool_.release(request).ok());
  const Status again = pool_.release(request);
  EXPECT_EQ(again.code(), PARALLAX_STATE);
  EXPECT_NE(again.message().find("already"), std::string::npos);
  EXPECT_EQ(pool_.outstanding(), 0u);
}

TEST_F(RequestPoolTest, AReleasedRequestIsUsedAgainAndKeepsItsMemory) {
  Request* request = take();
  request->slices.resize(3);
  request->pending = 0;
  pool_.finish(request, invalid("wrong"));
  ASSERT_TRUE(pool_.release(request).ok());
  Request* next = take(RequestKind::kReduce, 2);
  EXPECT_EQ(next, request);
  EXPECT_TRUE(next->slices.empty());
  EXPECT_GE(next->slices.capacity(), 3u);
  EXPECT_TRUE(next->status.ok());
  EXPECT_FALSE(next->done());
}

// What a request borrowed is looked up while it is pending: nothing of the call before may be
// there.
TEST_F(RequestPoolTest, AReusedRequestBorrowsNothingOfTheCallBefore) {
  std::byte memory[8] = {};
  for (const bool taken_back : {false, true}) {
    Request* request = take(RequestKind::kCollective);
    request->buffer = memory;
    request->send = ByteRange::at(memory, 4);
    request->recv = ByteRange::at(memory + 4, 4);
    if (taken_back) {
      pool_.take_back(request);
    } else {
      pool_.finish(request, {});
      ASSERT_TRUE(pool_.release(request).ok());
    }
    const ByteRange all = ByteRange::at(memory, sizeof memory);
    Request* next = take(RequestKind::kBroadcast);
    ASSERT_EQ(next, request);
    EXPECT_TRUE(next->buffer.empty());
    EXPECT_FALSE(next->send.overlaps(all));
    EXPECT_FALSE(next->recv.overlaps(all));
    pool_.take_back(next);
  }
}

TEST_F(RequestPoolTest, OneThatIsTakenBackIsNeitherCompletedNorOutstanding) {
  Request* request = take();
  pool_.take_back(request);
  EXPECT_EQ(completed_, 0u);
  EXPECT_EQ(pool_.outstanding(), 0u);
  EXPECT_EQ(take(), request);
}

TEST_F(RequestPoolTest, HandsOutUpToItsBoundAndOneMoreToClose) {
  pool_.reserve();
  std::set<Request*> taken;
  for (uint32_t i = 0; i < PARALLAX_REQUESTS_MAX; ++i) taken.insert(take());
  EXPECT_EQ(taken.size(), size_t{PARALLAX_REQUESTS_MAX}) << "no two calls share one";
  Request* request = nullptr;
  EXPECT_EQ(pool_.take(RequestKind::kBarrier, 0, &request).code(), PARALLAX_LIMIT);
  EXPECT_EQ(request, nullptr);
  take(RequestKind::kClose, 0);
}

TEST_F(RequestPoolTest, GrowthIsCountedBeyondTheFirstFewAndNotForReuse) {
  std::vector<Request*> requests;
  for (int i = 0; i < 17; ++i) requests.push_back(take());
  EXPECT_EQ(pool_.growth_count(), 0u);
  requests.push_back(take());
  EXPECT_EQ(pool_.growth_count(), 1u);
  for (Request* request : requests) pool_.finish(request, {});
  for (Request* request : requests) ASSERT_TRUE(pool_.release(request).ok());
  for (size_t i = 0; i < requests.size(); ++i) take();
  EXPECT_EQ(pool_.growth_count(), 1u);
}

TEST_F(RequestPoolTest, ATakenRequestIsThePoolsAgainUnlessItIsKept) {
  {
    TakenRequest taken(pool_);
    ASSERT_TRUE(taken.take(RequestKind::kPush, 1).ok());
    EXPECT_EQ(pool_.outstanding(), 1u);
  }
  EXPECT_EQ(pool_.outstanding(), 0u);
  TakenRequest taken(pool_);
  ASSERT_TRUE(taken.take(RequestKind::kPush, 1).ok());
  Request* kept = taken.keep();
  taken.give_back();
  EXPECT_EQ(pool_.outstanding(), 1u);
  EXPECT_FALSE(kept->free);
}

// Given a call that has a request, expect it made with that one, which no failure takes away.
TEST_F(RequestPoolTest, ARequestThatIsThereStaysItsOwners) {
  Request* there = take(RequestKind::kPush, 3);
  for (const bool kept : {false, true}) {
    TakenRequest taken(pool_, there);
    ASSERT_TRUE(taken.take(RequestKind::kPush, 3).ok());
    EXPECT_EQ(&*taken, there);
    if (kept) {
      EXPECT_EQ(taken.keep(), there);
    }
  }
  EXPECT_EQ(pool_.outstanding(), 1u);
  EXPECT_FALSE(there->free);
}

}  // namespace
}  // namespace parallax
