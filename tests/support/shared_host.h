// SPDX-License-Identifier: Apache-2.0
// SharedHost: the PeerMemory of ranks that are objects of one thread: what one shares every other
// has mapped at once, unless a test says otherwise.
#ifndef PARALLAX_TESTS_SUPPORT_SHARED_HOST_H_
#define PARALLAX_TESTS_SUPPORT_SHARED_HOST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/byte_range.h"
#include "transport/peer_memory.h"

namespace parallax::testkit {

class SharedHost {
 public:
  class Rank final : public PeerMemory {
   public:
    Rank(SharedHost& host, uint32_t rank) : host_(host), rank_(rank) {}

    bool share(const SharedMemory& memory) override {
      if (refuses) return false;
      shared[++numbers_] = memory;
      return true;
    }
    void unshare(const void* base) override {
      std::erase_if(shared, [base](const auto& each) { return each.second.base == base; });
    }
    BufferPlace place_of(const void* data, uint64_t bytes) const override {
      const ByteRange wanted = ByteRange::at(data, bytes);
      for (const auto& [number, memory] : shared) {
        const ByteRange all = ByteRange::at(memory.base, memory.bytes);
        if (wanted.first < all.first || wanted.first + bytes > all.first + all.bytes) continue;
        return {.buffer = number, .offset = wanted.first - all.first};
      }
      return {};
    }
    uint64_t used_bytes(uint64_t buffer) const override {
      const auto found = shared.find(buffer);
      return found == shared.end() ? 0 : found->second.used_bytes;
    }
    bool mapped_by(uint32_t rank, uint64_t buffer) const override {
      return rank != rank_ && shared.count(buffer) > 0;
    }
    const std::byte* find(uint32_t rank, const BufferPlace& place, uint64_t bytes) override {
      const Rank& other = *host_.ranks_[rank];
      const auto found = other.shared.find(place.buffer);
      if (unmapped || found == other.shared.end() || place.offset > found->second.bytes ||
          bytes > found->second.bytes - place.offset) {
        return nullptr;
      }
      return found->second.base + place.offset;
    }
    std::byte* find_writable(uint32_t rank, const BufferPlace& place, uint64_t bytes) override {
      if (!writes) return nullptr;
      return const_cast<std::byte*>(find(rank, place, bytes));
    }
    void retract(uint32_t) override { retracted = true; }
    bool make_private(const ByteRange& pages) override {
      made_private.push_back(pages);
      return true;
    }
    bool was_meant(uint32_t rank) const override {
      if (before_asked) before_asked();
      return !host_.ranks_[rank]->retracted;
    }
    PeerMemoryCounts counts() const override { return {}; }

    std::map<uint64_t, SharedMemory> shared;  // by number
    bool refuses = false;                     // to share more
    bool unmapped = false;                    // this rank has mapped nothing of others
    bool writes = false;                      // others' memory, where they let it
    std::vector<ByteRange> made_private;
    bool retracted = false;              // what others read here is not meant
    std::function<void()> before_asked;  // of was_meant()

   private:
    SharedHost& host_;
    const uint32_t rank_;
    uint64_t numbers_ = 0;
  };

  explicit SharedHost(uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(*this, rank));
    }
  }
  Rank& rank(uint32_t number) { return *ranks_[number]; }

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_SHARED_HOST_H_
