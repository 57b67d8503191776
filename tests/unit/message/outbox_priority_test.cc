// SPDX-License-Identifier: Apache-2.0
// What leaves first for a peer where several sends wait for it.
#include <gtest/gtest.h>

#include <vector>

#include "message/outbox.h"
#include "unit/message/outbox_fixture.h"

namespace parallax::outbox_tests {
namespace {

std::vector<uint32_t> tags_of(const std::vector<Got>& sections) {
  std::vector<uint32_t> tags;
  for (const Got& got : sections) {
    if (tags.empty() || tags.back() != got.header.tag) tags.push_back(got.header.tag);
  }
  return tags;
}

// Given a long send that has begun, expect a more urgent one, and what of that goes ahead, after at
// most what the transport has, and then the rest of the long one, in order; control before all.
TEST_F(OutboxTest, AnUrgentSendPassesWhatIsLeftOfALongOne) {
  transport_.credits[4] = 1;
  const std::vector<float> many(5000, 1.0f), few(10, 2.0f);
  outbox_.add(4, dense_send(many, 0, 1));
  EXPECT_TRUE(outbox_.pump());
  ASSERT_EQ(transport_.sent.size(), 1u);
  uint64_t next = 0;
  for (const Got& got : sections_of(4, transport_.sent[0].bytes)) next += got.header.count;
  outbox_.on_sent(transport_.sent[0].cookie);
  transport_.sent.clear();
  Send ahead = dense_send(few, 0, 2);
  ahead.ahead = true;
  outbox_.add(4, ahead);
  for (const bool goes_ahead : {false, true}) {
    Send urgent = dense_send(few, 0, goes_ahead ? 4 : 3);
    urgent.priority = 1;
    urgent.ahead = goes_ahead;
    outbox_.add(4, urgent);
  }
  Send late = dense_send(few, 0, 5);
  late.priority = -1;
  late.ahead = true;
  outbox_.add(4, late);
  send_number(4, 6);
  transport_.credits[4] = 100;
  const std::vector<Got> sections = flush(4);
  EXPECT_EQ(tags_of(sections), (std::vector<uint32_t>{0, 4, 3, 2, 1, 5}));
  for (const Got& got : sections) {
    if (got.header.tag != 1) continue;
    EXPECT_EQ(got.header.first, next);
    next += got.header.count;
  }
  EXPECT_EQ(next, many.size());
  EXPECT_EQ(pending_, 0u);
  EXPECT_TRUE(outbox_.idle());
}

// Given sends of several priorities when their peer is dropped, or all data is, expect all of them
// released.
TEST_F(OutboxTest, EveryPriorityIsDropped) {
  const std::vector<float> values(5000, 1.0f);
  for (const uint32_t to : {4u, 5u}) {
    transport_.credits[to] = 0;
    for (const int32_t priority : {0, 3, -3}) {
      Send send = dense_send(values, 0, 1);
      send.priority = priority;
      outbox_.add(to, send);
    }
  }
  EXPECT_EQ(pending_, 6u);
  outbox_.drop(4);
  EXPECT_EQ(pending_, 3u);
  outbox_.drop_data();
  EXPECT_EQ(pending_, 0u);
}

// Given sends to others and to this rank itself in the midst of a call, expect the others' to
// leave, and this rank's own to be delivered by the next turn.
TEST_F(OutboxTest, InTheMidstOfACallNothingComesFromHere) {
  const std::vector<float> values(10, 1.0f);
  outbox_.add(kSelf, dense_send(values, 0, 1));
  outbox_.add(4, dense_send(values, 0, 2));
  EXPECT_TRUE(outbox_.pump(false));
  EXPECT_FALSE(outbox_.pump(false));
  EXPECT_EQ(transport_.sent.size(), 1u);
  EXPECT_TRUE(looped_.empty());
  EXPECT_EQ(pending_, 1u);
  EXPECT_TRUE(outbox_.pump());
  ASSERT_EQ(looped_.size(), 1u);
  EXPECT_EQ(looped_[0].header.tag, 1u);
  EXPECT_EQ(pending_, 0u);
}

}  // namespace
}  // namespace parallax::outbox_tests
