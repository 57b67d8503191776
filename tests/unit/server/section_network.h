// SPDX-License-Identifier: Apache-2.0
// SectionNetwork: an outbox for each rank, and a network between them in one thread, without
// engines. What an outbox packs is taken apart again, and its sections are handed on one by one:
// which pair of ranks moves next is drawn from a seed, and only the order between two ranks is
// kept. A sender can be held back, and sections put in that no outbox packed. Where pieces may be
// placed, they are written as they are sent, into memory that is known and shared, or nowhere.
#ifndef PARALLAX_TESTS_UNIT_SERVER_SECTION_NETWORK_H_
#define PARALLAX_TESTS_UNIT_SERVER_SECTION_NETWORK_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_range.h"
#include "base/check.h"
#include "base/seeded_random.h"
#include "message/outbox.h"
#include "message/wire.h"
#include "transport/remote_writes.h"

namespace parallax::testkit {

// A section that owns its payload, which lies unaligned and ends where its memory does.
class OwnedSection {
 public:
  OwnedSection(const SectionHeader& header, std::span<const std::byte> payload) : header_(header) {
    const bool placed = header.encoding == Encoding::kPlaced;
    if (!placed) header_.payload_bytes = static_cast<uint32_t>(payload.size());
    bytes_.resize(kMisaligned + payload.size());
    if (!payload.empty()) std::memcpy(&bytes_[kMisaligned], payload.data(), payload.size());
  }
  Section view() const { return {header_, std::span(bytes_).subspan(kMisaligned)}; }

 private:
  static constexpr size_t kMisaligned = 1;
  SectionHeader header_;
  std::vector<std::byte> bytes_;
};

template <typename T>
std::span<const std::byte> as_payload(const std::vector<T>& numbers) {
  return std::as_bytes(std::span(numbers));
}

class SectionNetwork {
 public:
  // Takes a section that came to `to`; false refuses it.
  using Leader = std::function<bool(uint32_t to, uint32_t from, const Section& section)>;
  struct Refusal {
    uint32_t to, from;
    SectionHeader header;
  };

  // `piece_bytes_max`: of a piece that is placed; 0: none can be.
  SectionNetwork(uint32_t world, uint64_t seed, size_t piece_bytes_max = 0)
      : world_(world),
        piece_bytes_max_(piece_bytes_max),
        random_(seed),
        ways_(size_t{world} * world) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      ports_.push_back(std::make_unique<Port>(*this, rank));
      PARALLAX_CHECK(ports_.back()->outbox.start(1).ok());
    }
  }

  void on_section(Leader leader) { handler_ = std::move(leader); }
  // Told when sends of a rank were packed, so that what they borrowed may be used again.
  void on_packed(std::function<void(uint32_t rank)> packed) { packed_ = std::move(packed); }
  Outbox& outbox(uint32_t rank) { return ports_[rank]->outbox; }
  // Of the ranks' memory.
  struct Places {
    std::vector<ByteRange> areas;
    uint64_t shared = 0;  // parts, now
    uint64_t shares = 0;  // ever
    uint64_t written_bytes = 0;
    uint64_t refused_pieces = 0;  // not in an area
    bool none_shared = false;     // no room to register
  };
  Places& places(uint32_t rank) { return ports_[rank]->places; }
  // What the rank shares with others, which outlives this; null: nothing.
  void set_memory(uint32_t rank, PeerMemory* memory) { ports_[rank]->memory = memory; }
  SeededRandom& random() { return random_; }

  // Nothing of `from` goes to `to` or arrives there; what is packed meanwhile is at most what the
  // credits allow.
  void hold(uint32_t from, uint32_t to) { way(from, to).held = true; }
  void hold(uint32_t from) {
    for (uint32_t to = 0; to < world_; ++to) hold(from, to);
  }
  void release() {
    for (Way& each : ways_) each.held = false;
  }
  // Behind all that is on its way there.
  void inject(uint32_t from, uint32_t to, const SectionHeader& header,
              std::span<const std::byte> payload) {
    Way& on = way(from, to);
    on.sections.emplace_back(header, payload);
    on.messages.push_back(1);
  }

  // One move by chance: a section is delivered, or an outbox packs. False if none is left.
  bool move() {
    movable_.clear();
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (!ways_[i].sections.empty() && !ways_[i].held) movable_.push_back(i);
    }
    if (movable_.empty() || random_.chance(kPackPercent)) {
      if (pack()) return true;
      if (movable_.empty()) return false;
    }
    deliver(movable_[random_.below(movable_.size())]);
    return true;
  }
  void settle() {
    while (move()) {
    }
  }

  // A leader that refuses ends a job; a test looks here.
  const std::vector<Refusal>& refusals() const { return refusals_; }
  size_t delivered() const { return delivered_; }

 private:
  static constexpr uint32_t kPackPercent = 30;
  static constexpr size_t kCreditsMax = 3;  // of a way: what does not fit stays borrowed

  struct Way {
    std::deque<OwnedSection> sections;
    std::deque<size_t> messages;  // sections left of each
    bool held = false;
  };
  struct Port final : public Transport,
                      public Receiver,
                      public OutboxObserver,
                      public RemoteWrites {
    Port(SectionNetwork& in, uint32_t rank) : network(in), self(rank) {}

    std::string_view name() const override { return "sections"; }
    size_t message_bytes_max() const override { return kMessageBytesMin; }
    bool writable(uint32_t to) const override {
      const Way& way = network.way(self, to);
      return !way.held && way.messages.size() < kCreditsMax;
    }
    Status send(uint32_t to, std::span<const Segment> segments, uint64_t token) override {
      PARALLAX_CHECK(writable(to) && segments.size() == 1);
      network.take(self, to, {static_cast<const std::byte*>(segments[0].data), segments[0].bytes});
      sent.push_back(token);
      return {};
    }
    RemoteWrites* remote_writes() override { return network.piece_bytes_max_ > 0 ? this : nullptr; }
    size_t piece_bytes_max(uint32_t) override { return network.piece_bytes_max_; }
    Status send(uint32_t to, std::span<const Segment> segments, const PlacedPiece& piece,
                uint64_t token) override {
      Places& there = network.ports_[to]->places;
      PARALLAX_CHECK(piece.area == to + 1 && piece.key.size() == 1);
      PARALLAX_CHECK(piece.bytes <= network.piece_bytes_max_);
      const bool fits =
          std::any_of(there.areas.begin(), there.areas.end(), [&](const ByteRange& area) {
            return piece.address >= area.first &&
                   piece.address + piece.bytes <= area.first + area.bytes;
          });
      if (fits) {
        std::memcpy(reinterpret_cast<void*>(piece.address), piece.data, piece.bytes);
        there.written_bytes += piece.bytes;
      } else {
        ++there.refused_pieces;
      }
      return send(to, segments, token);
    }
    bool know(const ByteRange& area) override {
      PARALLAX_CHECK(area.first != 0);
      places.areas.push_back(area);
      return true;
    }
    void forget_area(const ByteRange& area) override {
      PARALLAX_CHECK(places.shared == 0);
      std::erase_if(places.areas, [&](const ByteRange& each) { return each.first == area.first; });
    }
    bool has_room(const ByteRange&) const override { return true; }
    bool share(const ByteRange& part, SharedPart* shared) override {
      PARALLAX_CHECK(
          std::any_of(places.areas.begin(), places.areas.end(), [&](const ByteRange& area) {
            return part.first >= area.first && part.first + part.bytes <= area.first + area.bytes;
          }));
      if (places.none_shared) return false;
      ++places.shared;
      ++places.shares;
      *shared = {.area = self + 1, .key = key};
      return true;
    }
    void unshare(uint32_t area) override {
      PARALLAX_CHECK(area == self + 1 && places.shared > 0);
      --places.shared;
    }
    void withdraw() override {}
    std::string json() const override { return "{}"; }
    bool poll(Receiver&) override { return false; }
    int wait_fd() const override { return -1; }
    bool arm() override { return true; }
    void forget(uint32_t) override {}
    PeerMemory* peer_memory() override { return memory; }

    void on_message(uint32_t from, std::span<const std::byte> message) override {
      network.take(from, self, message);
    }
    void on_sent(uint64_t) override {}
    void on_lost(uint32_t, Loss, std::string_view) override {}
    void on_section_packed(uint32_t, const SectionHeader&, size_t) override {}
    void on_section_coded(uint32_t, const SectionHeader&, size_t) override {}
    void on_message_packed(uint32_t, size_t) override {}

    SectionNetwork& network;
    const uint32_t self;
    std::vector<uint64_t> sent;
    Places places;
    PeerMemory* memory = nullptr;
    const std::array<std::byte, 1> key = {std::byte{7}};
    Outbox outbox{self, *this, *this, *this};
  };

  Way& way(uint32_t from, uint32_t to) { return ways_[size_t{from} * world_ + to]; }

  void take(uint32_t from, uint32_t to, std::span<const std::byte> message) {
    SectionReader reader(message);
    Section section;
    Way& on = way(from, to);
    size_t count = 0;
    for (; reader.next(&section); ++count)
      on.sections.emplace_back(section.header, section.payload);
    EXPECT_FALSE(reader.malformed());
    on.messages.push_back(count);
  }

  bool pack() {
    const uint64_t first = random_.below(world_);
    for (uint32_t i = 0; i < world_; ++i) {
      Port& port = *ports_[(first + i) % world_];
      for (const uint64_t token : port.sent) port.outbox.on_sent(token);
      port.sent.clear();
      if (!port.outbox.pump()) continue;
      if (packed_) packed_(port.self);
      return true;
    }
    return false;
  }

  void deliver(size_t index) {
    Way& on = ways_[index];
    const OwnedSection section = std::move(on.sections.front());
    on.sections.pop_front();
    if (--on.messages.front() == 0) on.messages.pop_front();
    ++delivered_;
    const auto from = static_cast<uint32_t>(index / world_);
    const auto to = static_cast<uint32_t>(index % world_);
    if (!handler_(to, from, section.view())) refusals_.push_back({to, from, section.view().header});
  }

  const uint32_t world_;
  const size_t piece_bytes_max_;
  SeededRandom random_;
  Leader handler_;
  std::function<void(uint32_t)> packed_;
  std::vector<Way> ways_;  // by sender and receiver
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<size_t> movable_;
  std::vector<Refusal> refusals_;
  size_t delivered_ = 0;
};

// "rank 2 refused kind 15 of rank 0 (tag 1, step 3)", for each.
inline std::string told(const std::vector<SectionNetwork::Refusal>& refusals) {
  std::string text;
  for (const SectionNetwork::Refusal& each : refusals) {
    text += "rank " + std::to_string(each.to) + " refused kind " +
            std::to_string(static_cast<int>(each.header.kind)) + " of rank " +
            std::to_string(each.from) + " (tag " + std::to_string(each.header.tag) + ", step " +
            std::to_string(each.header.step) + ")\n";
  }
  return text;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_SERVER_SECTION_NETWORK_H_
