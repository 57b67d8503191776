// SPDX-License-Identifier: Apache-2.0
// Boards: a piece of memory of each rank that it alone writes, and all ranks of its host read where
// it lies. What a transport offers beside messages, where it has a way. What is written, where, and
// when it may be written again is for those to settle who use it (collectives/entries.h); here is
// the memory, and a way to wake who sleeps.
//
// Design notes. Who writes says so behind it by post(): it counts its posts on its own board, then
// looks who sleeps. Who goes to sleep says that it does, and then looks at the counts (arm() of the
// transport, which says false while somebody has posted since a poll() of it, behind which boards
// were looked at). Both in one order for all, so that at least one of the two sees the other. A
// look without sleep needs neither: it is made where the news is expected.
//
// Not every sleep is to be ended so (heed()). A rank that looks for nothing on boards is woken for
// nothing: its thread would take the core from its caller, who is about to write there himself. One
// that comes to look for something in the midst of such a sleep, by a call of another thread, first
// says that posts wake it, and reads the counts, then looks. Who posts writes the board, then the
// count, then looks who is to be woken. The counts and what says who sleeps are in one order for
// all, so either he finds the sleeper, or the count that the sleeper reads is his: then what he
// wrote before it is seen by the look.
//
// What lies on another rank's board is input: it may be anything, and change while it is read.
//
// Threads: as the transport's. Nothing blocks.
#ifndef PARALLAX_TRANSPORT_BOARDS_H_
#define PARALLAX_TRANSPORT_BOARDS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace parallax {

// Of each board: addresses alone, until pages are touched.
inline constexpr size_t kBoardBytes = size_t{13} << 20;
// What of it is the transport's, at the beginning.
inline constexpr size_t kBoardHeadBytes = 4096;

struct BoardHead {
  std::atomic<uint64_t> posts;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(BoardHead) <= kBoardHeadBytes);

class Boards {
 public:
  static constexpr size_t kBytes = kBoardBytes - kBoardHeadBytes;

  // From the beginning of a page on, zero as the rank begins; until the transport ends. Null: this
  // rank has no share.
  virtual std::byte* own() = 0;
  // Of them, what is there to be used: all, or a group's share (message/part_memory.h).
  virtual size_t bytes() const { return kBytes; }
  // Another rank's, which stays mapped whatever becomes of that rank. Null: it has none here.
  virtual const std::byte* of(uint32_t rank) const = 0;
  // Something was written to this rank's since the last call. Who polls without a sleep looks at
  // the boards behind each poll().
  virtual void post() = 0;
  // Changes whenever another rank has posted.
  virtual uint64_t posts() const = 0;
  // Whether posts of others are to end this rank's sleeps; at first they are. `false` is for those
  // from the next arm() on, and they may end them all the same. `true` also is for one that has
  // begun: the caller looks at the boards behind it, as to what was posted until then.
  virtual void heed(bool posts) = 0;

 protected:
  ~Boards() = default;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_BOARDS_H_
