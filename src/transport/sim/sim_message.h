// SPDX-License-Identifier: Apache-2.0
// SimMessage: one thing on the simulated wire, and MessagePool, which owns them all and reuses
// their memory by size class. One thread.
#ifndef PARALLAX_TRANSPORT_SIM_SIM_MESSAGE_H_
#define PARALLAX_TRANSPORT_SIM_SIM_MESSAGE_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace parallax {

enum class WireKind : uint8_t {
  kData,   // a message, sender to receiver
  kAck,    // the same object on its way back: the receiver has consumed it
  kReset,  // the connection ended at the sender's side
  kStray,  // bytes that nobody sent
};

struct SimMessage {
  SimMessage* next_pending = nullptr;  // in its link's list of sends that are not complete
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t cookie = 0;
  int64_t depart_ns = 0;
  std::array<Segment, kSegmentsMax> segments{};  // the sender's memory, to check that it was left
  uint32_t segment_count = 0;
  WireKind kind = WireKind::kData;
  bool pending = false;  // the sender waits for its completion
  bool on_wire = false;  // an event, an inbox or a held list points here
  bool dropped = false;  // do not deliver
  const char* why = "";  // of a reset; static
  Loss loss = Loss::kBroken;
  size_t bytes = 0;
  size_t offset = 0;  // where the payload begins in storage
  size_t placed = 0;  // bytes of it that are where its receiver wants them
  std::unique_ptr<std::byte[]> storage;
  uint32_t size_class = 0;

  std::span<std::byte> payload() { return {storage.get() + offset, bytes}; }
};

inline constexpr size_t kPayloadOffsetMax = 16;

class MessagePool {
 public:
  SimMessage* take(size_t bytes) {
    const auto size_class = static_cast<uint32_t>(std::bit_width(bytes | 63));
    SimMessage* message;
    if (!free_[size_class].empty()) {
      message = free_[size_class].back();
      free_[size_class].pop_back();
      auto storage = std::move(message->storage);
      *message = SimMessage{};
      message->storage = std::move(storage);
    } else {
      all_.push_back(std::make_unique<SimMessage>());
      message = all_.back().get();
      message->storage =
          std::make_unique<std::byte[]>((size_t{1} << size_class) + kPayloadOffsetMax);
    }
    message->size_class = size_class;
    message->bytes = bytes;
    return message;
  }

  // Gives it back once neither the sender nor the wire refers to it.
  void release_if_unused(SimMessage* message) {
    if (!message->pending && !message->on_wire) free_[message->size_class].push_back(message);
  }

  size_t allocated_count() const { return all_.size(); }

 private:
  std::vector<std::unique_ptr<SimMessage>> all_;
  std::array<std::vector<SimMessage*>, 64> free_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_SIM_MESSAGE_H_
