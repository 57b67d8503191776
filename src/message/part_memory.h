// SPDX-License-Identifier: Apache-2.0
// Of the memory that the ranks of a host read of each other, what the groups of a job have
// (transport_shares.h): a board is divided among them, and of buffers, which are the rank's
// whatever groups it is in, a part knows its ranks by its own numbers, and can take back by itself
// what it has lent.
//
// Design notes. A board begins with a directory: a word for each region that is a part's, with its
// epoch, which no other group has. A rank chooses a region of its own board as it opens the part,
// and writes the word before it tells the others that it has (engine/split_calls.h); so all find it
// before the part's first use, whichever region it is, or find that there is none, which is the
// same for all. It is nobody's again once the part's goodbye is over, when all of its ranks have
// heard that all close, from when on none looks there (Engine::run), and zero before another part
// has it.
//
// The word is also what a part takes back by. Between two ranks the transport has one mark, for
// good (PeerMemory::retract), and the whole job goes on where a part is closed in mid-step. So the
// part's mark is its word: while it stands, what that rank lends in this part is meant.
//
// Owned by who drives the groups. Nothing blocks.
#ifndef PARALLAX_MESSAGE_PART_MEMORY_H_
#define PARALLAX_MESSAGE_PART_MEMORY_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/boards.h"
#include "transport/peer_memory.h"
#include "transport/transport.h"

namespace parallax {

// So many parts of a rank have boards and lend at once.
inline constexpr uint32_t kBoardPartsMax = 16;

struct BoardDirectory {
  std::array<std::atomic<uint64_t>, kBoardPartsMax> parts;  // 0: nobody's
};

// What the whole job has of each board.
class WholeBoards final : public Boards {
 public:
  // Asked each time: the transport, which outlives this, may have none.
  explicit WholeBoards(Transport& transport) : transport_(transport) {}
  std::byte* own() override;
  const std::byte* of(uint32_t rank) const override;
  size_t bytes() const override;
  void post() override { transport_.boards()->post(); }
  uint64_t posts() const override { return transport_.boards()->posts(); }
  void heed(bool posts) override { transport_.boards()->heed(posts); }

 private:
  Transport& transport_;
};

// The regions of this rank's board.
class BoardRegions {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // For a part; kNone: all are taken. `directory` is this rank's, with the regions behind it.
  uint32_t take(std::byte* directory, uint32_t epoch);
  void give_back(std::byte* directory, uint32_t region);

 private:
  std::array<bool, kBoardPartsMax> taken_ = {}, written_ = {};
};

// What a part has of each board.
class PartBoards final : public Boards {
 public:
  // All outlive this, but for the transport, of which nothing is asked once it is gone. `ranks` are
  // the part's, as the transport numbers them.
  PartBoards(Transport& transport, BoardRegions& regions, uint32_t epoch,
             std::span<const uint32_t> ranks);
  PartBoards(const PartBoards&) = delete;
  PartBoards& operator=(const PartBoards&) = delete;

  // This rank has a region. Others may have none.
  bool has_region() const { return region_ != BoardRegions::kNone; }
  // The part's goodbye is over.
  void give_back();
  // What this rank has lent in this part is no longer meant, for good.
  void retract();
  // What that rank has lent in this part is.
  bool was_meant(uint32_t rank) const;

  std::byte* own() override;
  const std::byte* of(uint32_t rank) const override;
  size_t bytes() const override;
  void post() override { transport_.boards()->post(); }
  uint64_t posts() const override { return transport_.boards()->posts(); }
  void heed(bool) override {}  // of the rank as a whole: the whole job's to say

 private:
  struct Found {
    const std::byte* board = nullptr;
    const std::atomic<uint64_t>* word = nullptr;
    uint32_t region = BoardRegions::kNone;
  };
  // Kept once it is there.
  const Found& find(uint32_t rank) const;

  Transport& transport_;
  BoardRegions& regions_;
  const uint64_t word_;
  const std::span<const uint32_t> ranks_;
  mutable std::vector<Found> found_;  // by rank
  uint32_t region_ = BoardRegions::kNone;
};

// The transport's, by a part's numbers, to be read alone: what others may write is made private as
// it is taken back, for good, and the whole job goes on with it. Where this rank has no region, it
// lends nothing.
class PartPeerMemory final : public PeerMemory {
 public:
  // All outlive this, as for PartBoards.
  PartPeerMemory(Transport& transport, PartBoards& boards, std::span<const uint32_t> ranks)
      : transport_(transport), boards_(boards), ranks_(ranks) {}

  bool share(const SharedMemory& memory) override {
    return boards_.has_region() && all().share(memory);
  }
  void unshare(const void* base) override { all().unshare(base); }
  BufferPlace place_of(const void* data, uint64_t bytes) const override {
    return boards_.has_region() ? all().place_of(data, bytes) : BufferPlace();
  }
  uint64_t used_bytes(uint64_t buffer) const override { return all().used_bytes(buffer); }
  bool mapped_by(uint32_t rank, uint64_t buffer) const override {
    return all().mapped_by(ranks_[rank], buffer);
  }
  bool may_be_written() const override { return false; }
  const std::byte* find(uint32_t rank, const BufferPlace& place, uint64_t bytes) override {
    return all().find(ranks_[rank], place, bytes);
  }
  void retract(uint32_t) override { boards_.retract(); }
  bool was_meant(uint32_t rank) const override {
    return all().was_meant(ranks_[rank]) && boards_.was_meant(rank);
  }
  PeerMemoryCounts counts() const override { return all().counts(); }

 private:
  PeerMemory& all() const { return *transport_.peer_memory(); }

  Transport& transport_;
  PartBoards& boards_;
  const std::span<const uint32_t> ranks_;
};

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_PART_MEMORY_H_
