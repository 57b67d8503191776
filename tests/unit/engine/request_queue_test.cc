// SPDX-License-Identifier: Apache-2.0
#include "engine/request_queue.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace parallax
