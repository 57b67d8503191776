// SPDX-License-Identifier: Apache-2.0
// Stranger: speaks in the place of an engine that a test took over, and may send anything. Its
// messages are built section by section, or are those of another run, numbered anew.
#ifndef PARALLAX_TESTS_SUPPORT_STRANGER_H_
#define PARALLAX_TESTS_SUPPORT_STRANGER_H_

#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "message/wire.h"
#include "transport/transport.h"

namespace parallax::testkit {

class Nobody final : public Receiver {
 public:
  void on_message(uint32_t, std::span<const std::byte>) override {}
  void on_sent(uint64_t) override {}
  void on_lost(uint32_t, Loss, std::string_view) override {}
};

class Stranger {
 public:
  explicit Stranger(Transport& transport) : transport_(transport) {}

  void begin() {
    bytes.assign(sizeof(MessageHeader), std::byte{});
    header.section_count = 0;
  }
  void add(const SectionHeader& section, std::span<const std::byte> payload) {
    const size_t at = bytes.size();
    bytes.resize(at + sizeof section + payload.size());
    std::memcpy(&bytes[at], &section, sizeof section);
    if (!payload.empty()) std::memcpy(&bytes[at + sizeof section], payload.data(), payload.size());
    ++header.section_count;
  }
  // Takes what has come, too: its sender gets the credits back.
  void send(uint32_t to) {
    std::memcpy(bytes.data(), &header, sizeof header);
    const Segment segment{bytes.data(), bytes.size()};
    PARALLAX_CHECK(!transport_.writable(to) || transport_.send(to, {&segment, 1}, 0).ok());
    poll();
    ++header.sequence;
  }
  void poll() {
    Nobody nobody;
    transport_.poll(nobody);
  }

  // A message of one section.
  void send_one(uint32_t to, SectionHeader section, std::span<const std::byte> payload) {
    section.payload_bytes = static_cast<uint32_t>(payload.size());
    begin();
    add(section, payload);
    send(to);
  }
  // A message as another run sent it.
  void replay(uint32_t to, std::span<const std::byte> message) {
    bytes.assign(message.begin(), message.end());
    MessageHeader sent;
    std::memcpy(&sent, message.data(), sizeof sent);
    header.section_count = sent.section_count;
    send(to);
  }

  MessageHeader header = {.epoch = 1, .sequence = 1000};  // beyond what the engine has sent
  std::vector<std::byte> bytes;

 private:
  Transport& transport_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_STRANGER_H_
