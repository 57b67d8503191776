// SPDX-License-Identifier: Apache-2.0
// SplitCalls: parts of a group. A split is collective over the ranks that it names, which all give
// the same list; the others know nothing of it. Its ranks meet along a tree of their own, by their
// places in the list, in two rounds:
//
//   call   every rank has called; the first of the list gives the part its number, down the tree
//   open   every rank has opened the part, and can be sent its messages; then all may use it
//
// A rank that calls also tells those below it in that tree which have not, that it waits. So
// whoever is waited for knows, and one that closes the job instead says so to all. A caller whose
// time is up takes that back.
//
// Ranks that name the same list again split again; such calls match in their order. A report may
// come before this rank has called; it is kept, a few for each rank.
//
// A part's number tells its epoch, which no other view of the job has. Engine's owner only; nothing
// blocks.
#ifndef PARALLAX_ENGINE_SPLIT_CALLS_H_
#define PARALLAX_ENGINE_SPLIT_CALLS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/request_pool.h"
#include "message/outbox.h"
#include "world/host_map.h"

namespace parallax {

// What a part takes of whoever holds the groups of this rank. Both as a split goes on, by the
// engine's owner.
struct PartMaker {
  // A number that this rank, first of a part, has given to none before; 0: there is none left.
  std::function<uint32_t()> next_number;
  // Opens the part: from then on its messages may come. `ranks` are the group's numbers. LIMIT.
  std::function<Status(uint32_t number, std::span<const uint32_t> ranks)> open;
};

class SplitCalls {
 public:
  // All but the maker outlive this. Without a maker, splits are UNSUPPORTED.
  SplitCalls(const HostMap& hosts, uint32_t rank, Outbox& outbox, RequestPool& requests)
      : hosts_(hosts), rank_(rank), outbox_(outbox), requests_(requests) {}
  void set_maker(PartMaker maker) { maker_ = std::move(maker); }

  // Posts a split: its request's `part` is the number once it is complete. INVALID, LIMIT.
  Status split(std::span<const uint32_t> ranks, Request** request);
  // Moves on what can be moved. LIMIT: a part cannot be opened.
  [[nodiscard]] Status advance();
  // Of Layer::kSplit. False: not what `from` may send now.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

  // The caller returns without its outcome. What others do is theirs.
  void leave(const Request& request);
  // Another rank waits in a split that this one has not called.
  bool awaited() const { return !early_.empty(); }
  // No split of this rank is pending.
  bool at_rest() const { return splits_.empty(); }
  // Whom a split still waits for; empty where it is not pending.
  std::vector<uint32_t> missing_ranks(const Request& request) const;
  void finish_all(const Status& status);

  // Reports and waits kept for one rank: of as many splits as it may have under way.
  static constexpr uint32_t kEarlyMax = PARALLAX_REQUESTS_MAX;

 private:
  enum class Round : uint8_t {
    kCall = 0,
    kOpen = 1,
    kWait = 2,  // no round: down the tree, that one waits for the call
    kLeft = 3,  // no round: that one waits no more
  };
  enum class Stage : uint8_t {
    kPosted,    // those below are to be told
    kCalling,   // some below have not called
    kCalled,    // that is told up the tree, and the number comes down
    kNumbered,  // the part can be opened
    kOpening,   // it is open here, and not everywhere below
    kOpened,    // that is told up the tree, and the end comes down
    kOver,      // all may use it
    kRefused,   // there is no number for it
  };
  // Which split: the same on all its ranks.
  struct Key {
    uint64_t digest = 0;   // of the list
    uint32_t ordinal = 0;  // among the splits of this list
    bool operator==(const Key&) const = default;
  };
  struct Split {
    Key key;
    std::vector<uint32_t> ranks;
    uint32_t place = 0;  // this rank's
    Request* request = nullptr;
    Stage stage = Stage::kPosted;
    std::array<std::vector<uint8_t>, 2> reported = {};  // by round and child
    uint32_t number = 0;                                // 0: not known yet
    // The caller went without its outcome, before there was a number: for others as if it had not
    // called, unless they hear so too late.
    bool left = false;
  };
  struct Early {
    uint32_t from = 0;
    Key key;
  };

  Split* find(const Key& key);
  Split* find_called(const Key& key);  // its caller still waits
  static uint32_t parent(const Split& split) { return split.ranks[(split.place - 1) / kArity]; }
  static std::span<const uint32_t> children(const Split& split);
  [[nodiscard]] static bool note_report(Split& split, Round round, uint32_t from);
  static bool all_reported(const Split& split, Round round);
  void take_early(Split& split);
  [[nodiscard]] bool keep_early(uint32_t from, const Key& key);
  [[nodiscard]] bool take_wait(uint32_t from, const Key& key);
  [[nodiscard]] bool take_left(uint32_t from, const Key& key);
  void tell_those_to_call(Round round, const Split& split);
  [[nodiscard]] bool take_report(uint32_t from, Round round, const Key& key);
  [[nodiscard]] bool take_answer(uint32_t from, Round round, const SectionHeader& header);
  Status advance(Split& split, bool* moved);
  void take_call(Split& split);
  Status outcome(const Split& split) const;
  Status open(Split& split);
  void take_opened(Split& split);
  void tell(uint32_t to, SectionKind kind, Round round, const Split& split);
  void tell_children(Round round, const Split& split);

  static constexpr uint32_t kArity = 4;

  const HostMap& hosts_;
  const uint32_t rank_;
  Outbox& outbox_;
  RequestPool& requests_;
  PartMaker maker_;
  std::vector<std::unique_ptr<Split>> splits_;       // pending
  std::unordered_map<uint64_t, uint32_t> ordinals_;  // by digest: splits called so far
  std::vector<Early> early_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_SPLIT_CALLS_H_
