// SPDX-License-Identifier: Apache-2.0
// RecordedTransport: another transport, whose messages and losses are told to the story as they are
// sent and reported. One thread.
#ifndef PARALLAX_TESTS_TRANSCRIPTS_RECORDED_TRANSPORT_H_
#define PARALLAX_TESTS_TRANSCRIPTS_RECORDED_TRANSPORT_H_

#include <string>
#include <string_view>
#include <vector>

#include "transcripts/story.h"
#include "transport/transport.h"

namespace parallax::transcripts {

class RecordedTransport final : public Transport {
 public:
  RecordedTransport(Transport& inner, uint32_t rank, Story& story)
      : inner_(inner), rank_(rank), story_(story) {}

  std::string_view name() const override { return inner_.name(); }
  size_t message_bytes_max() const override { return inner_.message_bytes_max(); }
  bool writable(uint32_t to) const override { return inner_.writable(to); }
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override {
    std::vector<std::byte> bytes;
    for (const Segment& segment : segments) {
      const auto* data = static_cast<const std::byte*>(segment.data);
      bytes.insert(bytes.end(), data, data + segment.bytes);
    }
    const Status sent = inner_.send(to, segments, cookie);
    if (sent.ok()) story_.message(rank_, to, bytes);
    return sent;
  }
  bool poll(Receiver& receiver) override {
    Listener listener(*this, receiver);
    return inner_.poll(listener);
  }
  int wait_fd() const override { return inner_.wait_fd(); }
  bool arm() override { return inner_.arm(); }
  void forget(uint32_t rank) override { inner_.forget(rank); }

 private:
  class Listener final : public Receiver {
   public:
    Listener(RecordedTransport& transport, Receiver& receiver)
        : transport_(transport), receiver_(receiver) {}
    void on_message(uint32_t from, std::span<const std::byte> message) override {
      receiver_.on_message(from, message);
    }
    void on_sent(uint64_t cookie) override { receiver_.on_sent(cookie); }
    void on_lost(uint32_t rank, Loss loss, std::string_view why) override {
      transport_.story_.add_now("rank " + std::to_string(transport_.rank_) +
                                ": its transport reports rank " + std::to_string(rank) +
                                (loss == Loss::kDead ? " dead: " : " unreachable: ") +
                                std::string(why));
      receiver_.on_lost(rank, loss, why);
    }

   private:
    RecordedTransport& transport_;
    Receiver& receiver_;
  };

  Transport& inner_;
  uint32_t rank_;
  Story& story_;
};

}  // namespace parallax::transcripts

#endif  // PARALLAX_TESTS_TRANSCRIPTS_RECORDED_TRANSPORT_H_
