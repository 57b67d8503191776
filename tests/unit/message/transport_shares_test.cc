// SPDX-License-Identifier: Apache-2.0
#include "message/transport_shares.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "message/wire.h"

namespace parallax {
namespace {

// What it was told to send, and what it is told to deliver.
class OpenTransport final : public Transport {
 public:
  struct Sent {
    uint32_t to;
    uint64_t cookie;
  };

  std::string_view name() const override { return "open"; }
  size_t message_bytes_max() const override { return kMessageBytesMin; }
  bool writable(uint32_t to) const override { return to != refused; }
  Status send(uint32_t to, std::span<const Segment>, uint64_t cookie) override {
    sent.push_back({to, cookie});
    return {};
  }
  bool copies_sends(uint32_t to) const override { return to == 7; }
  bool poll(Receiver& receiver) override {
    if (next) next(receiver);
    return next != nullptr;
  }
  int wait_fd() const override { return 42; }
  bool arm() override { return true; }
  void forget(uint32_t rank) override { forgotten.push_back(rank); }

  std::vector<Sent> sent;
  std::vector<uint32_t> forgotten;
  uint32_t refused = UINT32_MAX;
  std::function<void(Receiver&)> next;
};

class Listener final : public Receiver {
 public:
  void on_message(uint32_t from, std::span<const std::byte>) override { heard.push_back(from); }
  std::byte* place(uint32_t from, std::span<const std::byte>, size_t) override {
    asked.push_back(from);
    return &own;
  }
  void on_placed(uint32_t from, std::span<const std::byte>, size_t) override {
    placed.push_back(from);
  }
  void on_sent(uint64_t cookie) override { sent.push_back(cookie); }
  void on_lost(uint32_t rank, Loss, std::string_view) override { lost.push_back(rank); }

  std::byte own{};
  std::vector<uint32_t> heard, asked, placed, lost;
  std::vector<uint64_t> sent;
};

std::vector<std::byte> message_of(uint32_t epoch) {
  const MessageHeader header = {.epoch = epoch, .sequence = 1, .section_count = 0};
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

constexpr uint32_t kWhole = 11, kOne = 22, kOther = 33;

class TransportSharesTest : public testing::Test {
 protected:
  TransportSharesTest() {
    part_[0] = shares_.add(kOne, std::vector<uint32_t>{7, 2, 5});
    part_[1] = shares_.add(kOther, std::vector<uint32_t>{2, 9});
    EXPECT_FALSE(part_[0]->poll(in_part_[0]));
    EXPECT_FALSE(part_[1]->poll(in_part_[1]));
  }
  void deliver(const std::function<void(Receiver&)>& what) {
    transport_.next = what;
    EXPECT_TRUE(shares_.whole().poll(whole_));
  }

  OpenTransport transport_;
  TransportShares shares_{transport_};
  Transport* part_[2];
  Listener whole_, in_part_[2];
};

TEST_F(TransportSharesTest, AMessageGoesToTheGroupOfItsEpoch) {
  deliver([](Receiver& receiver) {
    receiver.on_message(5, message_of(kOne));
    receiver.on_message(2, message_of(kOther));
    receiver.on_message(5, message_of(kWhole));
  });
  EXPECT_EQ(in_part_[0].heard, std::vector<uint32_t>{2}) << "5 is its third rank";
  EXPECT_EQ(in_part_[1].heard, std::vector<uint32_t>{0});
  EXPECT_EQ(whole_.heard, std::vector<uint32_t>{5});
}

// Given messages whose rest is still to come, expect the group of each to say where it goes, by its
// own number of the sender, and to get it; and nobody where the sender is not of the group.
TEST_F(TransportSharesTest, ARestGoesWhereTheGroupOfItsEpochSays) {
  deliver([this](Receiver& receiver) {
    EXPECT_EQ(receiver.place(5, message_of(kOne), 100), &in_part_[0].own);
    EXPECT_EQ(receiver.place(2, message_of(kOther), 100), &in_part_[1].own);
    EXPECT_EQ(receiver.place(5, message_of(kWhole), 100), &whole_.own);
    EXPECT_EQ(receiver.place(9, message_of(kOne), 100), nullptr);
    receiver.on_placed(5, message_of(kOne), 100);
    receiver.on_placed(2, message_of(kOther), 100);
    receiver.on_placed(5, message_of(kWhole), 100);
  });
  EXPECT_EQ(in_part_[0].asked, std::vector<uint32_t>{2});
  EXPECT_EQ(in_part_[0].placed, std::vector<uint32_t>{2});
  EXPECT_EQ(in_part_[1].placed, std::vector<uint32_t>{0});
  EXPECT_EQ(whole_.placed, std::vector<uint32_t>{5});
  EXPECT_TRUE(whole_.heard.empty());
}

TEST_F(TransportSharesTest, WhatIsNobodysIsTheWholeJobs) {
  deliver([](Receiver& receiver) {
    receiver.on_message(9, message_of(kOne));  // of no rank of that part
    receiver.on_message(1, message_of(99));
    receiver.on_message(2, std::vector<std::byte>(3));
    receiver.on_message(7, {});
  });
  EXPECT_EQ(whole_.heard, (std::vector<uint32_t>{9, 1, 2, 7}));
  EXPECT_TRUE(in_part_[0].heard.empty());
}

TEST_F(TransportSharesTest, SendsAndTheirCompletionsAreEachGroupsOwn) {
  ASSERT_TRUE(shares_.whole().send(3, {}, 6).ok());
  ASSERT_TRUE(part_[0]->send(1, {}, 6).ok());
  ASSERT_TRUE(part_[1]->send(1, {}, 6).ok());
  ASSERT_EQ(transport_.sent.size(), 3u);
  EXPECT_EQ(transport_.sent[0].to, 3u);
  EXPECT_EQ(transport_.sent[1].to, 2u);
  EXPECT_EQ(transport_.sent[2].to, 9u);
  EXPECT_NE(transport_.sent[1].cookie, transport_.sent[2].cookie);
  deliver([this](Receiver& receiver) { receiver.on_sent(transport_.sent[2].cookie); });
  EXPECT_TRUE(whole_.sent.empty() && in_part_[0].sent.empty());
  EXPECT_EQ(in_part_[1].sent, std::vector<uint64_t>{6});
  deliver([this](Receiver& receiver) {
    receiver.on_sent(transport_.sent[0].cookie);
    receiver.on_sent(transport_.sent[1].cookie);
  });
  EXPECT_EQ(whole_.sent, std::vector<uint64_t>{6});
  EXPECT_EQ(in_part_[0].sent, std::vector<uint64_t>{6});
}

TEST_F(TransportSharesTest, OnlyTheWholeJobLosesAndForgets) {
  deliver([](Receiver& receiver) { receiver.on_lost(2, Loss::kDead, "gone"); });
  EXPECT_EQ(whole_.lost, std::vector<uint32_t>{2});
  EXPECT_TRUE(in_part_[0].lost.empty());
  part_[0]->forget(1);
  EXPECT_TRUE(transport_.forgotten.empty());
  shares_.whole().forget(1);
  EXPECT_EQ(transport_.forgotten, std::vector<uint32_t>{1});
}

TEST_F(TransportSharesTest, RanksAreNumberedByTheGroup) {
  transport_.refused = 2;
  EXPECT_FALSE(part_[0]->writable(1));
  EXPECT_TRUE(part_[0]->writable(2));
  EXPECT_FALSE(part_[1]->writable(0));
  EXPECT_TRUE(part_[0]->copies_sends(0)) << "rank 7 of the job";
  EXPECT_FALSE(part_[1]->copies_sends(1));
}

TEST_F(TransportSharesTest, AnEpochIsTakenUntilItsPartHasEnded) {
  EXPECT_EQ(shares_.add(kOne, std::vector<uint32_t>{1}), nullptr);
  shares_.remove(kOne);
  deliver([](Receiver& receiver) { receiver.on_message(5, message_of(kOne)); });
  EXPECT_EQ(whole_.heard, std::vector<uint32_t>{5});
  Transport* again = shares_.add(kOne, std::vector<uint32_t>{1});
  ASSERT_NE(again, nullptr);
  Listener listener;
  EXPECT_FALSE(again->poll(listener));
  deliver([](Receiver& receiver) { receiver.on_message(1, message_of(kOne)); });
  EXPECT_EQ(listener.heard, std::vector<uint32_t>{0});
}

}  // namespace
}  // namespace parallax
