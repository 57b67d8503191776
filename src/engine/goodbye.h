// SPDX-License-Identifier: Apache-2.0
// Goodbye: how ranks close a job together, in two rounds of the tree. After the first, every rank
// has come to close. The second makes sure that every rank knows that before any of them leaves: as
// long as a rank does not, it would take one that has left for a lost one, or a lost one for one
// that has left. A rank that closes takes part in nothing more; if others wait for it in a commit,
// the first or a later one, or in a step, some rank of the tree sees it (missed), at which a report
// of theirs meets its goodbye.
//
// One for a job. Reports and answers of TreeKind::kClose and kCloseConfirm come as they come.
// Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_GOODBYE_H_
#define PARALLAX_ENGINE_GOODBYE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "group/step_window.h"
#include "group/trees.h"

namespace parallax {

class Goodbye {
 public:
  // A rank that closes although others wait for it, and before what it does so; "": none.
  struct Leaver {
    uint32_t rank = 0;
    std::string before = {};
  };

  // The trees outlive this.
  Goodbye(uint32_t rank, Trees& trees) : rank_(rank), trees_(trees) {}

  // This rank closes, once, having ended so many steps.
  void start(uint64_t ended);
  // Moves on what can be moved.
  void advance();
  // Of one of the two kinds; false: not a payload of it.
  [[nodiscard]] bool merge_report(TreeKind kind, std::span<const std::byte> payload);
  [[nodiscard]] bool on_answer(TreeKind kind, std::span<const std::byte> payload);

  // Every rank has come to close: nobody waits for another's step.
  bool all_closing() const { return all_closing_; }
  // Every rank knows that, too: this one may leave, and a peer that ends is no loss any more.
  bool confirmed() const { return confirmed_; }

  // A rank has ended or fallen silent, and no notice said why. Until this rank has said goodbye, or
  // that rank has said it to this one, nobody may leave: then it is lost. After that it may simply
  // have left.
  bool may_have_left(uint32_t rank) const;
  // Its answer is what this rank's goodbye still waits for.
  bool waits_for(uint32_t rank) const;
  // Its having left counts as that answer.
  void take_leaving_as_answer() { confirmed_ = true; }

  // `voted`: the last step that another rank is known to have voted on; 0: none.
  // This rank closes, or one below it in the tree.
  bool somebody_closes() const { return started_ || leaving_.ended != UINT64_MAX; }
  Leaver missed(bool committing, const StepWindow& window, uint64_t voted) const;

 private:
  // As it travels, and lies in memory: ranks prove equal byte order at the rendezvous.
  struct Leaving {
    uint64_t ended = UINT64_MAX;  // nobody leaves
    uint64_t rank = 0;
  };

  const uint32_t rank_;
  Trees& trees_;
  bool started_ = false;
  Leaving leaving_;  // of those below in the tree that close: the one that ended fewest steps
  bool all_closing_ = false;
  bool confirmed_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_GOODBYE_H_
