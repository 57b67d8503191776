// SPDX-License-Identifier: Apache-2.0
// An outbox over a transport that records, for tests of what is packed into which message. Tests
// only.
#ifndef PARALLAX_TESTS_UNIT_MESSAGE_OUTBOX_FIXTURE_H_
#define PARALLAX_TESTS_UNIT_MESSAGE_OUTBOX_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/check.h"
#include "message/outbox.h"
#include "message/wire.h"

namespace parallax::outbox_tests {

constexpr size_t kMessageBytes = 4096;
constexpr size_t kRoomBytes = kMessageBytes - sizeof(MessageHeader);
constexpr uint32_t kSelf = 0;

struct Sent {
  uint32_t to;
  uint64_t cookie;
  std::vector<std::byte> bytes;
  std::vector<const std::byte*> from;  // of its segments
};

class RecordingTransport final : public Transport {
 public:
  std::string_view name() const override { return "recording"; }
  size_t message_bytes_max() const override { return kMessageBytes; }
  bool writable(uint32_t to) const override {
    const auto found = credits.find(to);
    return found == credits.end() || found->second > 0;
  }
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override {
    PARALLAX_CHECK(writable(to));
    if (to == lost) return peer_lost("gone");
    Sent& message = sent.emplace_back(Sent{to, cookie, {}, {}});
    for (const Segment& segment : segments) {
      const auto* data = static_cast<const std::byte*>(segment.data);
      message.bytes.insert(message.bytes.end(), data, data + segment.bytes);
      message.from.push_back(data);
    }
    if (credits.count(to) > 0) --credits[to];
    return {};
  }
  bool poll(Receiver&) override { return false; }
  int wait_fd() const override { return -1; }
  bool arm() override { return true; }
  void forget(uint32_t) override {}
  bool copies_sends(uint32_t) const override { return copies; }

  PeerMemory* peer_memory() override { return memory; }

  bool copies = false;
  PeerMemory* memory = nullptr;
  std::map<uint32_t, int> credits;  // peers not named have any number
  uint32_t lost = UINT32_MAX;
  std::vector<Sent> sent;
};

struct Got {
  uint32_t from;
  SectionHeader header;
  std::vector<std::byte> payload;
};

inline std::vector<Got> sections_of(uint32_t from, std::span<const std::byte> message) {
  std::vector<Got> got;
  SectionReader reader(message);
  Section section;
  while (reader.next(&section)) {
    got.push_back({from, section.header, {section.payload.begin(), section.payload.end()}});
  }
  EXPECT_FALSE(reader.malformed());
  return got;
}

class OutboxTest : public testing::Test, public Receiver, public OutboxObserver {
 protected:
  void SetUp() override { ASSERT_TRUE(outbox_.start(77).ok()); }

  void on_message(uint32_t from, std::span<const std::byte> message) override {
    for (Got& got : sections_of(from, message)) looped_.push_back(std::move(got));
    if (throws_) throw std::runtime_error("a check failed");
    if (reply_ > 0) {
      --reply_;
      send_number(kSelf, 1000 + reply_);
    }
  }
  void on_sent(uint64_t cookie) override { outbox_.on_sent(cookie); }
  void on_lost(uint32_t, Loss, std::string_view) override {}
  void on_section_packed(uint32_t, const SectionHeader&, size_t bytes) override {
    section_bytes_ += bytes;
  }
  void on_section_coded(uint32_t, const SectionHeader&, size_t bytes) override {
    spared_bytes_ += bytes;
  }
  void on_message_packed(uint32_t, size_t bytes) override {
    message_bytes_ += bytes;
    ++messages_;
  }

  void send_number(uint32_t to, uint64_t number) {
    SectionHeader header;
    header.kind = SectionKind::kTreeUp;
    header.step = number;
    outbox_.send_bytes(to, header, std::as_bytes(std::span(&number, 1)));
  }
  Send dense_send(const std::vector<float>& values, uint64_t first, uint32_t tag) {
    Send send;
    send.header.kind = SectionKind::kHostReduce;
    send.header.encoding = Encoding::kDense;
    send.header.flags = kSectionLast;
    send.header.tag = tag;
    send.header.first = first;
    send.dense = reinterpret_cast<const std::byte*>(values.data());
    send.count = values.size();
    send.pending = &pending_;
    ++pending_;
    return send;
  }
  // Sends complete at once; sections in the order sent.
  std::vector<Got> flush(uint32_t to) {
    std::vector<Got> all;
    while (outbox_.pump()) {
      for (const Sent& message : transport_.sent) outbox_.on_sent(message.cookie);
      for (const Sent& message : transport_.sent) {
        if (message.to != to) continue;
        for (Got& got : sections_of(message.to, message.bytes)) all.push_back(std::move(got));
      }
      transport_.sent.clear();
    }
    return all;
  }

  RecordingTransport transport_;
  Outbox outbox_{kSelf, transport_, *this, *this};
  std::vector<Got> looped_;
  bool throws_ = false;
  uint64_t reply_ = 0;
  uint32_t pending_ = 0;
  size_t section_bytes_ = 0, message_bytes_ = 0, messages_ = 0, spared_bytes_ = 0;
};

template <typename T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

inline const std::byte* bytes_of(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

}  // namespace parallax::outbox_tests

#endif  // PARALLAX_TESTS_UNIT_MESSAGE_OUTBOX_FIXTURE_H_
