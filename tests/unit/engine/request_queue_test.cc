// SPDX-License-Identifier: Apache-2.0
#include "engine/request_queue.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace parallax {
namespace {

class RequestQueueTest : public testing::Test {
 protected:
  Request* push() {
    Request* request = nullptr;
    EXPECT_TRUE(pool_.take(RequestKind::kBarrier, 0, &request).ok());
    queue_.push(request);
    return request;
  }

  RequestPool pool_{{}};
  RequestQueue queue_{pool_};
};

TEST_F(RequestQueueTest, CompletesInTheOrderOfTheCalls) {
  EXPECT_TRUE(queue_.empty());
  Request* first = push();
  Request* second = push();
  EXPECT_EQ(&queue_.front(), first);
  queue_.finish_front(invalid("wrong"));
  EXPECT_TRUE(first->done());
  EXPECT_EQ(first->status.code(), PARALLAX_INVALID);
  EXPECT_FALSE(second->done());
  EXPECT_EQ(&queue_.front(), second);
}

TEST_F(RequestQueueTest, WhatIsBorrowedIsCompletedOnceItIsBack) {
  std::vector<Request*> requests = {push(), push(), push()};
  requests[1]->pending = 1;
  queue_.finish_unborrowed(invalid("over"));
  EXPECT_TRUE(requests[0]->done() && requests[2]->done());
  EXPECT_FALSE(requests[1]->done());
  ASSERT_FALSE(queue_.empty());
  EXPECT_EQ(&queue_.front(), requests[1]);
  queue_.finish_all(invalid("over"));
  EXPECT_TRUE(requests[1]->done());
  EXPECT_TRUE(queue_.empty());
}

// Given a question that throws, expect that what was completed before it is completed once, and the
// rest is still pending.
TEST_F(RequestQueueTest, ThoseThatAreDoneAreCompletedOnce) {
  std::vector<Request*> requests = {push(), push(), push(), push()};
  const auto throws_at_the_third = [&](const Request& request) {
    if (&request == requests[2]) throw std::runtime_error("no");
    return &request != requests[0];
  };
  EXPECT_THROW(queue_.finish_those(throws_at_the_third), std::runtime_error);
  EXPECT_TRUE(requests[1]->done() && requests[1]->status.ok());
  size_t asked = 0;
  queue_.finish_those([&](const Request& request) {
    EXPECT_NE(&request, requests[1]);
    ++asked;
    return &request == requests[3];
  });
  EXPECT_EQ(asked, 3u);
  EXPECT_FALSE(requests[0]->done() || requests[2]->done());
  EXPECT_TRUE(requests[3]->done());
}

}  // namespace
}  // namespace parallax
