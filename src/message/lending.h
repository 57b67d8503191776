// SPDX-License-Identifier: Apache-2.0
// Lending: elements that neighbours read where they lie (transport/peer_memory.h), instead of being
// sent them. Who lends says in a section where they are, and under which number; who has read them
// all says so (kLoanRead), and *pending, which counted the loan, counts it no more: only then may
// what lies there change.
//
// What comes back to the place that it was read from, as a total to all who gave to it, is written
// there by the reader, block by block while the block is in its cache. Only to whole pages that the
// lender's request borrows, but for gaps that align its slices: other bytes may be in use.
//
// A rank that is lost, or a job that has failed, is not waited for: what was lent is taken back. A
// reader that was held up meanwhile finds, when it looks behind its last byte (was_meant()), that
// what it read is worth nothing; it stops, and hears of the cause like any other rank. Where it
// might still write, its owner has pages of its own by then.
//
// To read takes as long as the bytes are many, so it is not done where a message is taken: readers
// wait here for their turns, a bounded piece each, between which messages go out and leases are
// kept.
//
// Owned by the outbox; called by the engine's owner alone. Nothing blocks.
#ifndef PARALLAX_MESSAGE_LENDING_H_
#define PARALLAX_MESSAGE_LENDING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "transport/peer_memory.h"
#include "transport/transport.h"

namespace parallax {

// Of some bytes of a buffer, those in pages that are borrowed whole, counted from the first byte.
struct WholePages {
  uint64_t first = 0;
  uint64_t end = 0;
  bool any() const { return first < end; }
};

// The payload of a section of Encoding::kLent. Its first element lies at `place` of the sender.
struct LentPart {
  BufferPlace place;
  uint64_t bytes = 0;  // of the elements that the header counts, whose type follows from it
  uint64_t loan = 0;   // its number
  // Any: what is made of it comes back to the same place, and these of its bytes are the reader's
  // to write until it has said that it has read it.
  WholePages returns;
};
static_assert(sizeof(LentPart) == 48);

// Shorter runs travel in messages: a loan costs two of them, which a copy into one and out of it
// outweighs from here on.
inline constexpr uint64_t kLentBytesMin = 64 * 1024;
// Where the total comes back to the same place, one message says both that it is there and that the
// loan has ended, and it pays much sooner (docs/adr/0055).
inline constexpr uint64_t kReturnedBytesMin = 8 * 1024;

// Who reads what was lent to this rank.
class LentReader {
 public:
  // One bounded piece. False: it has nothing more to read now.
  virtual bool read_lent() = 0;

 protected:
  ~LentReader() = default;
};

class Lending {
 public:
  // The transport, which outlives this, is asked each time: it may go before the last reader.
  explicit Lending(Transport& transport);

  // Tests lend less than kLentBytesMin. The same on all ranks.
  void set_bytes_min(uint64_t bytes) { bytes_min_ = bytes; }
  uint64_t bytes_min(bool returns) const {
    return returns ? std::min(bytes_min_, kReturnedBytesMin) : bytes_min_;
  }

  // ---- this rank lends

  // Neighbours may map this memory, until unshare(). False: it stays this rank's alone.
  bool share(const SharedMemory& memory);
  void unshare(const void* base);
  // There may be who maps it.
  bool may_share() const { return transport_.peer_memory() != nullptr; }
  // And who writes there: not in parts of a job (message/part_memory.h).
  bool may_be_written() const { return may_share() && transport_.peer_memory()->may_be_written(); }
  // Where these bytes lie for whoever has mapped them; in no buffer: nobody has.
  BufferPlace place_of(const void* data, uint64_t bytes) const;
  // Where these bytes lie for that rank; in no buffer: it can't read them.
  BufferPlace place_for(uint32_t to, const void* data, uint64_t bytes) const;
  // The rank has said that it has this rank's buffer mapped.
  bool has_mapped(uint32_t rank, uint64_t buffer) const;
  // One more loan, of so many bytes, which *pending counts; `pages`: those of them that the rank
  // may write, or goes on reading should it be taken back; `parts`: so many it returns, each by
  // itself. Returns its number.
  uint64_t lend(uint32_t to, uint64_t bytes, uint32_t* pending, const ByteRange& pages = {},
                uint32_t parts = 1);
  // The rank has read so many parts of it, and with the last one all. False: it has no such loan.
  [[nodiscard]] bool returned(uint32_t by, uint64_t loan, uint32_t parts = 1);
  // What is lent to that rank, or to any, is not waited for any more; but where it may write, and
  // the kernel has no pages to put there instead.
  void take_back(uint32_t from);
  void take_back_all();

  // ---- this rank reads

  // As PeerMemory has them, and of nobody's memory where there is none.
  const std::byte* find(uint32_t rank, const BufferPlace& place, uint64_t bytes) const;
  std::byte* find_writable(uint32_t rank, const BufferPlace& place, uint64_t bytes) const;
  bool was_meant(uint32_t rank) const;

  // Who ends the job for a rank whose memory holds what it may not hold, which shows only as it is
  // read.
  void set_misfit(std::function<void(uint32_t rank)> misfit) { misfit_ = std::move(misfit); }
  void misfit(uint32_t rank) const {
    if (misfit_) misfit_(rank);
  }

  // So many bytes were read, or written, where they lay.
  void count_read(uint64_t bytes) { counts_.read_bytes += bytes; }
  void count_written(uint64_t bytes) { counts_.written_bytes += bytes; }

  // What is borrowed beside some bytes, right before and right behind them.
  struct Beside {
    uint64_t before = 0;
    uint64_t behind = 0;
  };
  // Of these bytes of a buffer of this rank, those in pages of which every byte is borrowed, or
  // fills up the buffer's last page.
  WholePages whole_pages(const BufferPlace& place, uint64_t bytes, const Beside& beside) const;
  // The pages that have them; `data` is the byte at `place`.
  ByteRange pages_of(const BufferPlace& place, const std::byte* data,
                     const WholePages& whole) const;

  // The reader has something to read, until it says otherwise; of two calls the higher priority.
  void wake(LentReader* reader, int32_t priority = 0);
  // It is about to go.
  void forget(const LentReader* reader);
  // A turn for each of those that are awake and have the highest priority. False: there was none.
  bool read();
  bool to_read() const { return !awake_.empty(); }

  struct Counts {
    uint64_t lent_bytes = 0;  // to others, so far
    uint64_t read_bytes = 0;  // of others
    uint64_t written_bytes = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Loan {
    uint32_t to = 0;
    uint32_t use = 0;             // of this place in loans_, counted; part of the number
    uint32_t* pending = nullptr;  // null: the place is free
    ByteRange pages;              // that its reader may write, or goes on reading
    uint32_t parts = 0;           // that it has not read
  };

  struct Awake {
    LentReader* reader = nullptr;
    int32_t priority = 0;
  };

  void end(uint32_t place);
  std::vector<Awake>::iterator find_awake(const LentReader* reader);

  Transport& transport_;
  const uint64_t page_bytes_;
  uint64_t bytes_min_ = kLentBytesMin;
  std::vector<Loan> loans_;
  std::vector<uint32_t> free_;  // places
  std::vector<Awake> awake_;    // the most urgent first
  std::function<void(uint32_t rank)> misfit_;
  Counts counts_;
};

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_LENDING_H_
