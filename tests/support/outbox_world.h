// SPDX-License-Identifier: Apache-2.0
// OutboxWorld: one state machine and its outbox for every rank of a job, over inproc, in one
// thread, without an engine. A Part has `bool on_section(uint32_t from, const Section&)`. Tests
// only.
#ifndef PARALLAX_TESTS_SUPPORT_OUTBOX_WORLD_H_
#define PARALLAX_TESTS_SUPPORT_OUTBOX_WORLD_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "message/outbox.h"
#include "message/wire.h"
#include "transport/inproc/inproc_transport.h"

namespace parallax::testkit {

// Of 1 to `world_max` ranks their hosts, by name.
inline std::vector<std::string> draw_hosts(SeededRandom& random, uint32_t world_max) {
  const uint64_t world = 1 + random.below(world_max);
  const uint64_t hosts = 1 + random.below(world);
  std::vector<std::string> names;
  for (uint64_t i = 0; i < world; ++i) names.push_back(std::to_string(random.below(hosts)));
  return names;
}

template <typename Part>
class OutboxWorld {
 public:
  // Null: that rank has none, and refuses whatever comes.
  using Make = std::function<std::unique_ptr<Part>(uint32_t rank, Outbox& outbox)>;

  // What one rank packed of one kind.
  struct Packed {
    uint64_t sections = 0;
    uint64_t payload_bytes = 0;
  };

  OutboxWorld(uint32_t size, const Make& make) {
    const auto hub = std::make_shared<InprocHub>(size);
    for (uint32_t rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(rank, hub, make));
    }
  }

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  Part* find(uint32_t rank) { return ranks_[rank]->part(); }
  Part& at(uint32_t rank) { return *find(rank); }
  Outbox& outbox(uint32_t rank) { return ranks_[rank]->outbox(); }
  // One rank takes what came, and sends what is due.
  void pass(uint32_t rank) { ranks_[rank]->pass(); }
  // Until nothing moves.
  void settle() {
    for (int i = 0; i < 200; ++i) {
      for (auto& rank : ranks_) rank->pass();
    }
  }
  uint64_t refused_count() const {
    uint64_t refused = 0;
    for (const auto& rank : ranks_) refused += rank->refused_count();
    return refused;
  }
  Packed packed(uint32_t rank, SectionKind kind) const { return ranks_[rank]->packed(kind); }
  Packed packed(SectionKind kind) const {
    Packed all;
    for (const auto& rank : ranks_) {
      const Packed one = rank->packed(kind);
      all.sections += one.sections;
      all.payload_bytes += one.payload_bytes;
    }
    return all;
  }

 private:
  class Rank final : public Receiver, public OutboxObserver {
   public:
    Rank(uint32_t rank, const std::shared_ptr<InprocHub>& hub, const Make& make) {
      EXPECT_TRUE(InprocTransport::create(hub, rank, &transport_).ok());
      outbox_ = std::make_unique<Outbox>(rank, *transport_, *this, *this);
      EXPECT_TRUE(outbox_->start(1).ok());
      part_ = make(rank, *outbox_);
    }

    Part* part() { return part_.get(); }
    Outbox& outbox() { return *outbox_; }
    void pass() {
      transport_->poll(*this);
      outbox_->pump();
    }
    uint64_t refused_count() const { return refused_count_; }
    Packed packed(SectionKind kind) const {
      const auto found = packed_.find(kind);
      return found == packed_.end() ? Packed() : found->second;
    }

   private:
    void on_message(uint32_t from, std::span<const std::byte> message) override {
      SectionReader reader(message);
      Section section;
      while (reader.next(&section)) {
        const bool taken = part_ != nullptr && part_->on_section(from, section);
        refused_count_ += taken ? 0 : 1;
      }
    }
    void on_sent(uint64_t cookie) override { outbox_->on_sent(cookie); }
    void on_lost(uint32_t, Loss, std::string_view) override {}
    void on_section_packed(uint32_t, const SectionHeader& header, size_t) override {
      Packed& packed = packed_[header.kind];
      ++packed.sections;
      packed.payload_bytes += header.payload_bytes;
    }
    void on_section_coded(uint32_t, const SectionHeader&, size_t) override {}
    void on_message_packed(uint32_t, size_t) override {}

    std::unique_ptr<InprocTransport> transport_;
    std::unique_ptr<Outbox> outbox_;
    std::unique_ptr<Part> part_;
    uint64_t refused_count_ = 0;
    std::map<SectionKind, Packed> packed_;
  };

  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_OUTBOX_WORLD_H_
