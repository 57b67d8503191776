// SPDX-License-Identifier: Apache-2.0
// AnswerProgress: how far an answer has come that one peer sends in pieces. What one peer sends
// comes in order, so the place where the last piece ended is all there is to keep: a piece that
// comes twice, is left out or was never asked for lies elsewhere, and no mark for each row is
// needed to see it. Whoever gives the answer out owns this. Plain numbers; allocates nothing.
#ifndef PARALLAX_SERVER_ANSWER_PROGRESS_H_
#define PARALLAX_SERVER_ANSWER_PROGRESS_H_

#include <cstdint>

namespace parallax {

struct AnswerProgress {
  uint64_t due = 0;   // items, counted from 0, of this peer's answer
  uint64_t came = 0;  // every item before this one has been dealt with

  bool complete() const { return came == due; }

  // Takes the next `count` items; false if `first` is not the next one, if fewer are due, or if
  // there are none: an empty piece would end what is over once more.
  [[nodiscard]] bool take(uint64_t first, uint64_t count) {
    if (count == 0 || first != came || count > due - came) return false;
    came += count;
    return true;
  }

  // Takes the item `at` and gives up those before it: where the items between are other peers', and
  // only those peers know which. False if it lies before what has come.
  [[nodiscard]] bool skip_and_take(uint64_t at) {
    if (at < came || at >= due) return false;
    came = at + 1;
    return true;
  }
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_ANSWER_PROGRESS_H_
