// SPDX-License-Identifier: Apache-2.0
// The outbox over a transport that records: what is packed into which message, when, in what order.
#include "message/outbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/seeded_random.h"
#include "message/wire.h"
#include "unit/message/outbox_fixture.h"

namespace parallax::outbox_tests {
namespace {

TEST_F(OutboxTest, DenseSendsAreCutAtTheGrain) {
  for (const size_t count : {0, 1, 255, 256, 257, 1000, 1012, 1013, 5000}) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
    outbox_.add(3, dense_send(values, 512, 9));
    const std::vector<Got> sections = flush(3);
    ASSERT_FALSE(sections.empty()) << "nothing is a section too: it says that it was the last";
    uint64_t at = 0;
    for (size_t i = 0; i < sections.size(); ++i) {
      const SectionHeader& header = sections[i].header;
      EXPECT_EQ(header.first, 512 + at);
      EXPECT_EQ(header.tag, 9u);
      EXPECT_EQ(header.flags, i + 1 == sections.size() ? kSectionLast : 0) << count;
      EXPECT_EQ(at % kDenseGrain, 0u);
      const auto part = values_of<float>(sections[i].payload);
      ASSERT_EQ(part.size(), header.count);
      for (size_t j = 0; j < part.size(); ++j) ASSERT_EQ(part[j], values[at + j]);
      at += header.count;
    }
    EXPECT_EQ(at, count);
    EXPECT_EQ(pending_, 0u);
    EXPECT_TRUE(outbox_.idle());
  }
}

// Given bytes that are to be whole behind so much that a part of them would fit, expect them in the
// next message.
TEST_F(OutboxTest, WholeBytesAreNotCut) {
  const std::vector<std::byte> before(4000), bytes(200, std::byte{7});
  for (const bool whole : {false, true}) {
    Send send;
    send.header.kind = SectionKind::kBroadcastData;
    send.bytes = before.data();
    send.count = before.size();
    outbox_.add(1, send);
    send.whole = whole;
    send.bytes = bytes.data();
    send.count = bytes.size();
    outbox_.add(1, send);
    std::vector<uint32_t> counts;
    for (const Got& got : flush(1)) counts.push_back(got.header.count);
    EXPECT_EQ(counts.size(), whole ? 2u : 3u);
    EXPECT_EQ(counts.back() == bytes.size(), whole);
  }
}

TEST_F(OutboxTest, BytesOfAnyLength) {
  std::vector<std::byte> bytes(10000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  Send send;
  send.header.kind = SectionKind::kBroadcastData;
  send.header.first = 5;
  send.bytes = bytes.data();
  send.count = bytes.size();
  outbox_.add(1, send);
  size_t at = 0;
  for (const Got& got : flush(1)) {
    EXPECT_EQ(got.header.first, 5 + at);
    EXPECT_TRUE(std::equal(got.payload.begin(), got.payload.end(),
                           bytes.begin() + static_cast<ptrdiff_t>(at)));
    at += got.payload.size();
  }
  EXPECT_EQ(at, bytes.size());
}

TEST_F(OutboxTest, SmallSendsToOnePeerShareAMessage) {
  const std::vector<float> values(10, 1.0f);
  for (uint32_t tag = 0; tag < 20; ++tag) outbox_.add(2, dense_send(values, 0, tag));
  send_number(2, 5);
  ASSERT_TRUE(outbox_.pump());
  ASSERT_EQ(transport_.sent.size(), 1u);
  const auto sections = sections_of(2, transport_.sent[0].bytes);
  ASSERT_EQ(sections.size(), 21u);
  EXPECT_EQ(sections[0].header.kind, SectionKind::kTreeUp) << "control goes ahead";
  for (uint32_t tag = 0; tag < 20; ++tag) EXPECT_EQ(sections[1 + tag].header.tag, tag);
  MessageHeader header;
  std::memcpy(&header, transport_.sent[0].bytes.data(), sizeof header);
  EXPECT_EQ(header.magic, kWireMagic);
  EXPECT_EQ(header.epoch, 77u);
  EXPECT_EQ(header.sequence, 1u);
  EXPECT_EQ(messages_, 1u);
  EXPECT_EQ(message_bytes_, section_bytes_ + sizeof(MessageHeader));
  EXPECT_EQ(transport_.sent[0].bytes.size(), message_bytes_);
}

TEST_F(OutboxTest, NothingWithoutCreditsAndControlAheadOfWhatWaits) {
  transport_.credits[4] = 0;
  const std::vector<float> values(3000, 1.0f);
  outbox_.add(4, dense_send(values, 0, 1));
  EXPECT_FALSE(outbox_.pump());
  EXPECT_TRUE(outbox_.has_queued(4));
  EXPECT_FALSE(outbox_.idle());
  EXPECT_EQ(pending_, 1u) << "still borrowed";
  transport_.credits[4] = 1;
  EXPECT_TRUE(outbox_.pump());
  EXPECT_EQ(transport_.sent.size(), 1u);
  EXPECT_EQ(pending_, 1u) << "the rest of it";
  send_number(4, 6);
  transport_.credits[4] = 10;
  EXPECT_TRUE(outbox_.pump());
  EXPECT_EQ(pending_, 0u);
  const auto second = sections_of(4, transport_.sent[1].bytes);
  EXPECT_EQ(second[0].header.kind, SectionKind::kTreeUp) << "ahead of the rest of a send";
  for (size_t i = 0; i < transport_.sent.size(); ++i) {
    MessageHeader header;
    std::memcpy(&header, transport_.sent[i].bytes.data(), sizeof header);
    EXPECT_EQ(header.sequence, i + 1);
  }
  EXPECT_FALSE(outbox_.idle()) << "sends have not completed";
  for (const Sent& message : transport_.sent) outbox_.on_sent(message.cookie);
  EXPECT_TRUE(outbox_.idle());
}

// Given a transport that copies what it sends, or lends it on, expect a completed send to be news
// where something was lent, or waits to be sent.
TEST_F(OutboxTest, ACompletedSendIsNewsToWhoWaits) {
  for (const bool copies : {true, false}) {
    transport_.copies = copies;
    transport_.sent.clear();
    send_number(1, 1);
    outbox_.pump();
    ASSERT_EQ(transport_.sent.size(), 1u);
    EXPECT_EQ(outbox_.on_sent(transport_.sent[0].cookie), !copies);
    transport_.sent.clear();
    transport_.credits[2] = 0;
    send_number(1, 2);
    send_number(2, 3);
    outbox_.pump();
    ASSERT_EQ(transport_.sent.size(), 1u);
    EXPECT_TRUE(outbox_.on_sent(transport_.sent[0].cookie)) << "another one is queued";
    transport_.credits[2] = 1;
    outbox_.pump();
    outbox_.on_sent(transport_.sent[1].cookie);
    EXPECT_TRUE(outbox_.idle());
  }
}

// Given what leaves a rank, expect news where something that it borrowed is free or lost, or where
// the rank gets it itself, once.
TEST_F(OutboxTest, WhatIsPackedIsNewsToWhoWaitsForIt) {
  const auto news = [this] {
    outbox_.pump();
    const bool is = outbox_.take_news();
    EXPECT_FALSE(outbox_.take_news()) << "once";
    return is;
  };
  EXPECT_FALSE(news());
  send_number(1, 1);
  EXPECT_FALSE(news()) << "control";
  send_number(kSelf, 2);
  EXPECT_TRUE(news()) << "this rank's own";
  const std::vector<float> values(3);
  transport_.credits[1] = 0;
  outbox_.add(1, dense_send(values, 0, 7));
  EXPECT_FALSE(news()) << "it waits";
  transport_.credits[1] = 1;
  EXPECT_TRUE(news()) << "data";
  EXPECT_EQ(pending_, 0u);
  transport_.lost = 2;
  send_number(2, 3);
  EXPECT_TRUE(news()) << "a loss";
}

// Given a long send that has begun, and one that goes ahead, expect control, that one whole, and
// then the rest; and those that go ahead in the order of their adding.
TEST_F(OutboxTest, AheadOfOtherDataBehindControl) {
  transport_.credits[4] = 1;
  const std::vector<float> values(5000, 1.0f);
  outbox_.add(4, dense_send(values, 0, 1));
  EXPECT_TRUE(outbox_.pump());
  for (const uint32_t tag : {2u, 3u}) {
    Send send = dense_send(values, 0, tag);
    send.ahead = true;
    outbox_.add(4, send);
  }
  send_number(4, 6);
  EXPECT_EQ(outbox_.peers_with_data(), std::vector<uint32_t>{4});
  transport_.sent.clear();
  transport_.credits[4] = 100;
  std::vector<uint32_t> tags;
  for (const Got& got : flush(4)) {
    if (tags.empty() || tags.back() != got.header.tag) tags.push_back(got.header.tag);
  }
  EXPECT_EQ(tags, (std::vector<uint32_t>{0, 2, 3, 1}));
  EXPECT_EQ(pending_, 0u);
}

// Given sends that are hastened, the first of which has begun, expect them before the others, in
// order, and the others in theirs; and nothing of what goes to another peer.
TEST_F(OutboxTest, HastenedSendsGoAhead) {
  const std::vector<float> values(5000, 1.0f);
  uint32_t late = 0;
  const auto add = [&](uint32_t tag, uint32_t* pending) {
    Send send = dense_send(values, 0, tag);
    --pending_;
    send.pending = pending;
    ++*pending;
    outbox_.add(4, send);
  };
  transport_.credits[4] = 1;
  add(1, &pending_);
  EXPECT_TRUE(outbox_.pump());
  add(2, &late);
  add(3, &pending_);
  add(4, &late);
  outbox_.hasten(4, &pending_);
  outbox_.hasten(5, &pending_);
  add(5, &late);
  transport_.credits[4] = 100;
  std::vector<uint32_t> tags;
  for (const Got& got : flush(4)) {
    if (tags.empty() || tags.back() != got.header.tag) tags.push_back(got.header.tag);
  }
  EXPECT_EQ(tags, (std::vector<uint32_t>{1, 3, 2, 4, 5}));
  EXPECT_EQ(pending_ + late, 0u);
}

// Given what goes ahead to a peer without credits, expect it known as data, and let go with it.
TEST_F(OutboxTest, WhatGoesAheadIsDroppedWithData) {
  const std::vector<float> values(3000, 1.0f);
  for (const bool all : {false, true}) {
    const uint32_t to = all ? 5 : 6;
    transport_.credits[to] = 0;
    Send send = dense_send(values, 0, 1);
    send.ahead = true;
    outbox_.add(to, send);
    EXPECT_TRUE(outbox_.has_queued(to));
    EXPECT_EQ(outbox_.peers_with_data(), std::vector<uint32_t>{to});
    if (all) {
      outbox_.drop_data();
    } else {
      outbox_.drop(to);
    }
    EXPECT_EQ(pending_, 0u);
    EXPECT_FALSE(outbox_.has_queued(to));
    EXPECT_TRUE(outbox_.peers_with_data().empty());
  }
}

TEST_F(OutboxTest, ValuesAreReadAsLateAsPossible) {
  transport_.credits[1] = 0;
  std::vector<float> values(4, 1.0f);
  outbox_.add(1, dense_send(values, 0, 0));
  EXPECT_FALSE(outbox_.pump());
  values[2] = 9;
  transport_.credits[1] = 1;
  const auto sections = flush(1);
  EXPECT_EQ(values_of<float>(sections[0].payload)[2], 9);
}

TEST_F(OutboxTest, ASlowPeerDoesNotHoldUpTheOthers) {
  transport_.credits[1] = 0;
  const std::vector<float> values(100000, 1.0f);
  outbox_.add(1, dense_send(values, 0, 0));
  outbox_.add(2, dense_send(values, 0, 0));
  size_t elements = 0;
  for (const Got& got : flush(2)) elements += got.header.count;
  EXPECT_EQ(elements, values.size());
  EXPECT_EQ(pending_, 1u);
}

TEST_F(OutboxTest, SendBuffersInFlightAreBounded) {
  const std::vector<float> values(1000000, 1.0f);
  outbox_.add(1, dense_send(values, 0, 0));
  while (outbox_.pump()) {
  }
  const size_t in_flight = transport_.sent.size();
  EXPECT_LE(in_flight, 64u);
  EXPECT_GT(in_flight, 0u);
  outbox_.on_sent(transport_.sent[0].cookie);
  EXPECT_TRUE(outbox_.pump());
  EXPECT_EQ(transport_.sent.size(), in_flight + 1) << "one came back, one goes";
}

TEST_F(OutboxTest, LoopbackIsDeliveredAtOnceAndMayAnswerItself) {
  reply_ = 3;
  send_number(kSelf, 1);
  EXPECT_TRUE(outbox_.pump());
  EXPECT_TRUE(transport_.sent.empty());
  ASSERT_EQ(looped_.size(), 4u);
  EXPECT_EQ(looped_[0].header.step, 1u);
  EXPECT_EQ(looped_[3].header.step, 1000u);
  EXPECT_TRUE(outbox_.idle());
}

TEST_F(OutboxTest, DroppedPeersGetNothingMore) {
  transport_.credits[5] = 0;
  const std::vector<float> values(3000, 1.0f);
  outbox_.add(5, dense_send(values, 0, 0));
  send_number(5, 1);
  outbox_.drop(5);
  EXPECT_EQ(pending_, 0u) << "given back";
  EXPECT_FALSE(outbox_.has_queued(5));
  outbox_.add(5, dense_send(values, 0, 0));
  send_number(5, 2);
  EXPECT_EQ(pending_, 0u);
  transport_.credits[5] = 10;
  EXPECT_FALSE(outbox_.pump());
  EXPECT_TRUE(outbox_.idle());
}

TEST_F(OutboxTest, ARefusedSendDropsThePeer) {
  transport_.lost = 6;
  const std::vector<float> values(3000, 1.0f);
  outbox_.add(6, dense_send(values, 0, 0));
  outbox_.pump();
  EXPECT_EQ(pending_, 0u);
  EXPECT_TRUE(outbox_.idle()) << "its buffer is free again";
}

TEST_F(OutboxTest, AfterDropDataControlStillGoes) {
  transport_.credits[1] = 0;
  const std::vector<float> values(3000, 1.0f);
  outbox_.add(1, dense_send(values, 0, 0));
  outbox_.drop_data();
  outbox_.add(2, dense_send(values, 0, 0));
  EXPECT_EQ(pending_, 0u);
  send_number(1, 8);
  transport_.credits[1] = 5;
  const auto sections = flush(1);
  ASSERT_EQ(sections.size(), 1u);
  EXPECT_EQ(sections[0].header.step, 8u);
}

TEST_F(OutboxTest, ControlIsNeverCut) {
  const std::vector<std::byte> blob(Outbox::kControlBytesMax, std::byte{3});
  SectionHeader header;
  header.kind = SectionKind::kTreeDown;
  const std::vector<float> values(200, 1.0f);
  for (int i = 0; i < 5; ++i) {
    outbox_.send_bytes(1, header, blob);
    outbox_.add(1, dense_send(values, 0, 0));
  }
  size_t blobs = 0;
  for (const Got& got : flush(1)) {
    if (got.header.kind != SectionKind::kTreeDown) continue;
    ++blobs;
    EXPECT_EQ(got.payload, blob);
  }
  EXPECT_EQ(blobs, 5u);
  EXPECT_THROW(outbox_.send_bytes(1, header, std::vector<std::byte>(blob.size() + 1)),
               InternalError);
}

// Given random sends of every encoding to several peers with few credits, expect every item once
// and in order, and the sends of a peer in the order of their adding.
TEST_F(OutboxTest, RandomSendsArriveWholeAndInOrder) {
  SeededRandom random(4);
  std::vector<float> values(5000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::map<uint32_t, std::vector<uint64_t>> counts;  // by peer: of each send, in order
  std::map<uint32_t, uint32_t> at_send;
  std::map<uint32_t, uint64_t> at_item;
  size_t delivered = 0;
  const auto take = [&](const Sent& message) {
    EXPECT_LE(message.bytes.size(), kMessageBytes);
    for (const Got& got : sections_of(message.to, message.bytes)) {
      uint32_t& send = at_send[message.to];
      EXPECT_EQ(got.header.tag, send);
      EXPECT_EQ(got.header.first, at_item[message.to]);
      const auto items = values_of<float>(got.payload);
      const uint64_t first = got.header.first * items.size() / std::max(got.header.count, 1u);
      for (size_t i = 0; i < items.size(); ++i) {
        ASSERT_EQ(items[i], static_cast<float>(first + i));
      }
      at_item[message.to] += got.header.count;
      ++delivered;
      if ((got.header.flags & kSectionLast) == 0) continue;
      EXPECT_EQ(at_item[message.to], counts[message.to][send]);
      ++send;
      at_item[message.to] = 0;
    }
    outbox_.on_sent(message.cookie);
  };
  for (int round = 0; round < 3000; ++round) {
    const auto to = static_cast<uint32_t>(1 + random.below(4));
    Send send = dense_send(values, 0, static_cast<uint32_t>(counts[to].size()));
    send.count = random.chance(60) ? random.below(40) : random.below(2500);
    counts[to].push_back(send.count);
    if (random.chance(50)) {
      send.header.encoding = Encoding::kValues;
      send.rows = {.values = bytes_of(values), .row_elements = 2};
    }
    outbox_.add(to, send);
    transport_.copies = random.chance(50);
    for (uint32_t peer = 1; peer <= 4; ++peer)
      transport_.credits[peer] = static_cast<int>(random.below(4));
    outbox_.pump();
    for (const Sent& message : transport_.sent) take(message);
    transport_.sent.clear();
  }
  transport_.credits.clear();
  while (outbox_.pump()) {
    for (const Sent& message : transport_.sent) take(message);
    transport_.sent.clear();
  }
  for (const auto& [to, sends] : counts) EXPECT_EQ(at_send[to], sends.size());
  EXPECT_EQ(pending_, 0u);
  EXPECT_GT(delivered, 3000u);
}

TEST_F(OutboxTest, SteadyStateDoesNotGrow) {
  const std::vector<float> values(300, 1.0f);
  outbox_.reserve_sends(40);
  for (int step = 0; step < 50; ++step) {
    for (uint32_t peer = 1; peer <= 4; ++peer) {
      for (uint32_t tag = 0; tag < 9; ++tag) outbox_.add(peer, dense_send(values, 0, tag));
      send_number(peer, 1);
    }
    flush(1);
  }
  EXPECT_EQ(outbox_.growth_count(), 0u);
  for (uint32_t tag = 0; tag < 200; ++tag) outbox_.add(1, dense_send(values, 0, tag));
  EXPECT_GT(outbox_.growth_count(), 0u) << "growth is counted";
}

// Given a loopback message whose reading fails, expect what is due to others to leave at the next
// pump, and no buffer to be lost.
TEST_F(OutboxTest, a_failure_on_loopback_holds_nothing_back) {
  throws_ = true;
  for (const uint32_t to : {1u, kSelf, 2u, 3u}) send_number(to, to);
  EXPECT_THROW(outbox_.pump(), std::runtime_error);
  throws_ = false;
  outbox_.pump();
  std::vector<uint32_t> reached;
  for (const Sent& message : transport_.sent) {
    reached.push_back(message.to);
    outbox_.on_sent(message.cookie);
  }
  std::sort(reached.begin(), reached.end());
  EXPECT_EQ(reached, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_TRUE(outbox_.idle());
}

}  // namespace
}  // namespace parallax::outbox_tests
