// SPDX-License-Identifier: Apache-2.0
// Broadcast: bytes from a root to all, along the tree of that root. A rank tells its parent when it
// has a buffer, and a parent sends to those children alone, out of its own buffer as it fills: no
// byte is buffered in between. One broadcast is under way per rank at a time, in the order of the
// calls. So that ranks that disagree about the root are found out, whoever they take for their
// parent, each also reports root and size to its parent in the tree of rank 0 (its second parent),
// and waits for an answer. Engine's owner only.
#ifndef PARALLAX_COLLECTIVES_BROADCAST_H_
#define PARALLAX_COLLECTIVES_BROADCAST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "message/outbox.h"
#include "world/patterns.h"

namespace parallax {

class Broadcast {
 public:
  Broadcast(const HostMap& hosts, uint32_t rank, Outbox& outbox)
      : hosts_(hosts), rank_(rank), outbox_(outbox) {}

  // Joins the next one; only when !active(). The buffer is borrowed until finished().
  void start(uint32_t root, std::byte* buffer, uint64_t bytes);
  bool active() const { return active_; }
  // All bytes are here, every child has been sent them, and the ranks around agree.
  bool finished() const;
  void finish();

  // False: not what `from` may send now.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

  // Not empty: ranks disagree about this broadcast, and the job is to fail with this sentence.
  const std::string& mismatch() const { return mismatch_; }
  std::vector<uint32_t> missing_ranks() const;

 private:
  struct Ready {
    uint32_t rank, root;
    uint64_t sequence, bytes;
    uint8_t part;
  };
  static constexpr uint8_t kToParent = 0;  // header.part of kBroadcastReady, and of its answer
  static constexpr uint8_t kToSecondParent = 1;

  [[nodiscard]] bool on_ready(uint32_t from, const Section& section);
  [[nodiscard]] bool on_data(uint32_t from, const Section& section);
  void say_ready(uint32_t to, uint8_t part);
  bool due_from(const Ready& ready) const;
  [[nodiscard]] bool serve(const Ready& ready);
  void send_to(uint32_t child, uint64_t first, uint64_t count);

  const HostMap& hosts_;
  const uint32_t rank_;
  Outbox& outbox_;
  bool active_ = false;
  uint64_t sequence_ = 0;
  uint32_t root_ = 0;
  uint32_t parent_ = kNoRank;
  std::byte* buffer_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t received_ = 0;
  bool whole_ = false;  // the last message has arrived; an empty broadcast sends one too
  std::vector<uint32_t> children_;        // of this broadcast
  std::vector<uint32_t> ready_children_;  // that have a buffer
  std::vector<Ready> early_;              // reported before this rank joined
  uint32_t second_parent_ = kNoRank;      // parent in the tree of rank 0, unless it is parent_
  bool second_parent_answered_ = false;
  std::vector<uint32_t> unheard_;  // ranks that this one is the second parent of, still to be heard
  uint32_t pending_ = 0;
  std::string mismatch_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_BROADCAST_H_
