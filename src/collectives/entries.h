// SPDX-License-Identifier: Apache-2.0
// Entries: what the ranks of one host say of a step on their boards (transport/boards.h), for a
// group that has no others: an entry for each small variable and one for votes, at the same place
// on every rank's board, found by variable and step. Its owner writes what it has to say, and then
// the entry's word, which holds the step; the others read both where they lie. So a rank is heard
// by all for one store, and nothing is queued, sent or dispatched.
//
// Design notes. An entry exists twice, for even and odd steps. A rank writes that of step t + 2
// over that of t once t + 1 is decided here (StepWindow::may_start), or, of votes, finished. For
// that everybody has voted on t + 1, which a rank does as its oldest unfinished step: so it has
// finished t, for which it has read all of t that it needs (docs/architecture.md, "Why two step
// buffers suffice"). No reader is overtaken, and bytes are read and written plainly, in the order
// that the words give.
//
// Who waits for an entry looks at its word: the one cache line that is on its way, with the bytes
// in it where they are few. Where much is awaited, boards are looked through only if somebody has
// posted. What lies on another board is input: it is read within bounds, whatever it says.
//
// Engine's owner only; nothing blocks.
#ifndef PARALLAX_COLLECTIVES_ENTRIES_H_
#define PARALLAX_COLLECTIVES_ENTRIES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/boards.h"
#include "world/patterns.h"

namespace parallax {

// Of so many ranks at most, as `oneshot` and votes to all.
inline constexpr uint32_t kEntryRanksMax = 8;

// Where an entry lies on every board of the group; the bytes follow the word.
struct EntryPlace {
  uint32_t offset = 0;  // of the even step's
  uint32_t stride = 0;  // from there to the odd step's; 0: there is no entry
  uint32_t head = 0;    // of the word, and what fills up to the bytes
  bool exists() const { return stride != 0; }
};

enum class EntryKind : uint8_t {
  kNone = 0,  // nothing is said of that step yet
  kValues = 1,
  kNothing = 2,  // and nothing follows
};

// Who waits for entries of others.
class EntryReader {
 public:
  struct News {
    bool moved = false;
    bool awaits = false;  // more
  };
  // Takes what is there.
  virtual News read_entries() = 0;

 protected:
  ~EntryReader() = default;
};

class Entries {
 public:
  // Null: there are none. They outlive all reading and writing, not the entries.
  Entries(const Columns& columns, Boards* boards);
  Entries(const Entries&) = delete;
  Entries& operator=(const Entries&) = delete;

  // Once all ranks of the group are there, before its first variables.
  void find_boards();
  // All ranks of the group reach each other's boards. The same at all of them.
  bool usable() const { return !boards_.empty(); }

  // Between steps, in the same order at all ranks: an entry of so many bytes for the variable,
  // which keeps it. One that does not exist: there is no room, or it is not usable().
  EntryPlace reserve(uint32_t variable, uint64_t bytes);
  // Before any variable's, and before it is usable(), which says whether votes go there; and
  // others of the same kind, an entry for each call.
  EntryPlace reserve_votes(uint64_t bytes);
  EntryPlace reserve_note(uint64_t bytes) { return take(bytes, kWordBytes); }

  // All of the group's variables have one, and go so; not any more once one does not.
  bool are_all() const { return are_all_; }
  void are_not_all() { are_all_ = false; }

  // ---- this rank's own
  std::byte* own(const EntryPlace& place, uint64_t step) const {
    return own_ + at(place, step) + place.head;
  }
  // The bytes are written: tells all. They stay as they are until the step two after it.
  void publish(const EntryPlace& place, uint64_t step, EntryKind kind);
  // Wakes who sleeps, if something was published since.
  void flush() {
    if (!published_) return;
    published_ = false;
    transport_boards_->post();
  }

  // ---- of others
  EntryKind kind(uint32_t rank, const EntryPlace& place, uint64_t step) const {
    const uint64_t word =
        reinterpret_cast<const std::atomic<uint64_t>*>(boards_[rank] + at(place, step))
            ->load(std::memory_order_acquire);
    if (word >> kKindBits != step) return EntryKind::kNone;
    const uint64_t kind = word & kKindMask;
    return kind == static_cast<uint64_t>(EntryKind::kValues) ? EntryKind::kValues
                                                             : EntryKind::kNothing;
  }
  // Once its kind is kValues.
  const std::byte* of(uint32_t rank, const EntryPlace& place, uint64_t step) const {
    return boards_[rank] + at(place, step) + place.head;
  }

  // Somebody may have said something: the reader is asked, until it awaits nothing more. It has
  // looked for itself just now.
  void await(EntryReader* reader) { readers_.push_back(reader); }
  // The same of one that has not looked, or awaits more by now: the next look asks it.
  void await_unseen(EntryReader* reader);
  // Somebody awaits something of others.
  bool awaits() const { return !readers_.empty(); }
  // It is about to go.
  void forget(const EntryReader* reader);
  // Asks readers, few ones several times. True: something has come.
  bool look();

 private:
  static constexpr uint32_t kWordBytes = sizeof(uint64_t);
  static constexpr uint32_t kKindBits = 2;
  static constexpr uint64_t kKindMask = 3;
  // So many readers are asked at every look, and so often if nothing comes: to look at a word that
  // is in the cache takes a small part of what the rest of an engine's look does.
  static constexpr size_t kAskedMax = 8;
  static constexpr int kLooks = 8;

  static size_t at(const EntryPlace& place, uint64_t step) {
    return place.offset + (step & 1) * place.stride;
  }
  EntryPlace take(uint64_t bytes, uint32_t head);
  bool ask();

  const uint32_t rank_, world_;
  Boards* const transport_boards_;
  uint64_t bytes_ = 0;  // of each board; 0: there are none, or not for such a group
  std::byte* own_ = nullptr;
  std::vector<const std::byte*> boards_;  // by rank; none: not usable
  std::vector<EntryPlace> of_variables_;
  EntryPlace votes_;
  uint64_t used_bytes_ = 0;
  std::vector<EntryReader*> readers_;
  uint64_t posts_seen_ = 0;
  bool unseen_ = false;  // whatever was posted, there is somebody who has not looked
  bool published_ = false;
  bool are_all_ = true;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ENTRIES_H_
