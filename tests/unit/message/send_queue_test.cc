// SPDX-License-Identifier: Apache-2.0
// In which order sends leave, against a sorted list.
#include "message/send_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <tuple>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

// What a queue is to have, by what was added between two fences: the first of these first, and of
// one group the higher priority, what goes ahead, what was added first, and the fence that ends it.
class Oracle {
 public:
  void add(const Send& send) {
    queued_.push_back({group_, send.fence ? 1 : 0, send.fence ? 0 : -int64_t{send.priority},
                       send.ahead ? 0 : 1, added_++, send.header.tag});
    if (send.fence) ++group_;
  }
  bool empty() const { return queued_.empty(); }
  uint32_t pop() {
    const auto first = std::min_element(queued_.begin(), queued_.end());
    const uint32_t tag = std::get<5>(*first);
    queued_.erase(first);
    return tag;
  }

 private:
  std::vector<std::tuple<uint64_t, int, int64_t, int, uint64_t, uint32_t>> queued_;
  uint64_t group_ = 0, added_ = 0;
};

class SendQueueTest : public testing::Test {
 protected:
  Send* make(int32_t priority = 0, bool ahead = false, bool fence = false) {
    Send& made = sends_.emplace_back();
    made.header.tag = static_cast<uint32_t>(sends_.size());
    made.priority = priority;
    made.ahead = ahead;
    made.fence = fence;
    return &made;
  }
  void add(Send* send) {
    queue_.add(send);
    oracle_.add(*send);
  }
  uint32_t pop() {
    EXPECT_FALSE(queue_.empty());
    const uint32_t front = queue_.front()->header.tag;
    const uint32_t tag = queue_.pop()->header.tag;
    EXPECT_EQ(tag, front);
    return tag;
  }

  std::deque<Send> sends_;
  SendQueue queue_;
  Oracle oracle_;
};

// Given sends of several priorities, that go ahead or are fences, among takings, expect what a
// sorted list gives.
TEST_F(SendQueueTest, is_a_sorted_list) {
  constexpr int32_t kPriorities[] = {0, 7, -3, INT32_MAX, INT32_MIN, 1};
  for (const int32_t priority : kPriorities) add(make(priority));
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SeededRandom random(seed);
    for (int i = 0; i < 400; ++i) {
      if (random.chance(55)) {
        const bool fence = random.chance(8);
        add(make(kPriorities[random.below(std::size(kPriorities))], !fence && random.chance(30),
                 fence));
      } else if (!oracle_.empty()) {
        ASSERT_EQ(pop(), oracle_.pop()) << "seed " << seed;
      }
    }
    while (!oracle_.empty()) ASSERT_EQ(pop(), oracle_.pop()) << "seed " << seed;
    ASSERT_TRUE(queue_.empty());
  }
}

// Given one priority alone, expect what goes ahead before a fence too, as it speaks of what is not
// ahead.
TEST_F(SendQueueTest, of_one_priority_what_goes_ahead_passes_a_fence) {
  Send* const first = make();
  Send* const fence = make(0, false, true);
  Send* const ahead = make(0, true);
  Send* const last = make();
  for (Send* each : {first, fence, ahead, last}) queue_.add(each);
  for (const Send* each : {ahead, first, fence, last}) EXPECT_EQ(pop(), each->header.tag);
  EXPECT_TRUE(queue_.empty());
}

// Given a fence that waits when the first send of another priority comes, expect that behind it.
TEST_F(SendQueueTest, a_priority_that_is_new_waits_for_fences) {
  Send* const first = make();
  Send* const fence = make(0, false, true);
  Send* const urgent = make(5);
  for (Send* each : {first, fence, urgent}) queue_.add(each);
  for (const Send* each : {first, fence, urgent}) EXPECT_EQ(pop(), each->header.tag);
  Send* const slow = make();
  Send* const more = make(9);
  for (Send* each : {slow, more}) queue_.add(each);
  for (const Send* each : {more, slow}) EXPECT_EQ(pop(), each->header.tag);
}

// Given sends that are hastened, expect them before others of their priority, and of no other.
TEST_F(SendQueueTest, hastens_within_a_priority) {
  uint32_t mine = 0, other = 0;
  std::vector<Send*> sends;
  for (const int32_t priority : {0, 4}) {
    for (uint32_t* const pending : {&other, &mine, &other, &mine}) {
      sends.push_back(make(priority));
      sends.back()->pending = pending;
      queue_.add(sends.back());
    }
  }
  queue_.hasten(&mine);
  for (const size_t each : {5, 7, 4, 6, 1, 3, 0, 2}) EXPECT_EQ(pop(), sends[each]->header.tag);
}

}  // namespace
}  // namespace parallax
