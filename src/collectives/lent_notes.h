// SPDX-License-Identifier: Apache-2.0
// LentNotes: what was lent to this rank of one step of an exchange and is still to be read. Loans
// of one operation are read in the order of their coming, those of several operations a block each
// in turns. Not thread-safe; nothing blocks, and memory grows with the most there were at a time.
#ifndef PARALLAX_COLLECTIVES_LENT_NOTES_H_
#define PARALLAX_COLLECTIVES_LENT_NOTES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "message/lending.h"

namespace parallax {

struct LentNote {
  uint32_t op = 0;     // which operation it is for
  LentPart part;       // of what is still to be read
  uint64_t count = 0;  // elements of it
  uint32_t dtype = 0;  // of each
};

class LentNotes {
 public:
  bool empty() const { return notes_.empty(); }
  void clear() { notes_.clear(); }
  void add(const LentNote& note) { notes_.push_back(note); }

  // Up to so many elements of the first note of each operation: read(note, count) takes them off
  // the note, or says false, that nothing of this operation may be read now. False: nothing was.
  template <typename Read>
  bool round(uint64_t count_max, Read read) {
    bool any = false;
    for (size_t i = 0; i < notes_.size(); ++i) {
      LentNote& note = notes_[i];
      const auto before = notes_.begin() + static_cast<std::ptrdiff_t>(i);
      const bool first = std::none_of(notes_.begin(), before, [&note](const LentNote& each) {
        return each.op == note.op && each.count > 0;
      });
      if (first) any |= read(note, std::min(note.count, count_max));
    }
    std::erase_if(notes_, [](const LentNote& note) { return note.count == 0; });
    return any;
  }

 private:
  std::vector<LentNote> notes_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_LENT_NOTES_H_
