// SPDX-License-Identifier: Apache-2.0
// CollectiveRounds: collectives beside the steps: which calls of the ranks are one (CollectiveKey),
// whether they agree, and when their numbers may move. Engine's owner only; nothing blocks.
//
// Design notes. Each collective is a round up and down the tree of rank 0, as commits and votes
// are: a rank reports once it has called and its children have reported, and the root answers. The
// report says what the call is, so the root knows of any two that differ, and its answer fails that
// collective alike on every rank before anything has moved: the job goes on. Few numbers travel
// with the report, and their result with the answer. More move after it, by the schedule of their
// kind (CollectiveRun): then every rank has called, so what arrives finds its buffers, and a rank
// that is ahead makes its neighbours hold nothing but one report for each call that it has under
// way, of which PARALLAX_REQUESTS_MAX bounds the number.
//
// Of one tag a rank has one collective under way, the others wait behind it: a child is then at
// most one report ahead, and nothing has to be counted for a tag that may never be used again.
//
// A rank says that it closes only after all that it has called is reported (said()), so that
// whoever hears that knows of what it will never call (check_leaving()).
#ifndef PARALLAX_ENGINE_COLLECTIVE_ROUNDS_H_
#define PARALLAX_ENGINE_COLLECTIVE_ROUNDS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/collective.h"
#include "collectives/collective_report.h"
#include "collectives/collective_run.h"
#include "collectives/fused_values.h"
#include "engine/request_pool.h"
#include "group/trees.h"
#include "message/outbox.h"
#include "world/patterns.h"

namespace parallax {

// What a collective waits for, the first of these that is not empty.
struct CollectiveWait {
  CollectiveKey key;
  uint32_t kind = 0;
  bool behind = false;            // another of its tag
  std::vector<uint32_t> to_call;  // children in the tree
  std::vector<uint32_t> to_answer;
  std::vector<uint32_t> to_send;
};

class CollectiveRounds {
 public:
  struct Parts {
    const Columns& columns;
    const Trees& trees;  // who closes
    Outbox& outbox;
    RequestPool& requests;
    bool ordered = false;  // sums in a fixed order
  };

  // All parts outlive this.
  explicit CollectiveRounds(const Parts& parts);
  CollectiveRounds(const CollectiveRounds&) = delete;
  CollectiveRounds& operator=(const CollectiveRounds&) = delete;

  // A checked call; its buffers are borrowed until the request completes. LIMIT.
  Status post(Collective what, uint64_t tag, Request** request);
  // A call that is wrong by itself: it takes its place among the others all the same, so that
  // theirs end with a MISMATCH and the next ones still meet. Returns `why`.
  Status refuse(uint64_t tag, Status why);
  // Of Layer::kCollective. False: not what that rank may send now.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);
  // As Exchange's.
  std::byte* place_of(uint32_t from, const Section& section);
  // Completes what has moved.
  void advance();

  // A result is given piece by piece, and there is more: the next piece is due at once.
  bool giving() const { return giving_; }
  // A run of the engine begins, in which one piece of a result is given.
  void start_run() { giving_ = false; }

  // No call of this rank waits to be passed on or to move.
  bool at_rest() const { return posted_.empty() && moving_.empty(); }
  // Every call of this rank is reported, or over.
  bool said() const;
  // PEER_LOST: a rank that closes has left out a collective that others wait for. `closing`: this
  // one has called close.
  Status check_leaving(bool closing) const;
  CollectiveWait waiting(const Request& request) const;

  // The job is over. Completes the requests whose buffers no send reads any more.
  void finish_all(const Status& status);

 private:
  enum class Phase : uint8_t {
    kGathering,  // until all below have called
    kReported,   // until the answer
    kMoving,
    kComparing,  // whose counts differ
  };
  struct Call {
    Call(Collective asked, Request* of) : what(std::move(asked)), request(of), values(what) {}
    const Collective what;
    Request* const request;  // refused: nobody's, but of their number
    CollectiveMismatch refused;
    Phase phase = Phase::kGathering;
    FusedValues values;
    std::unique_ptr<CollectiveRun> run;  // none if it is fused
    std::vector<uint8_t> told_counts;    // by rank
    uint32_t told = 0;
    std::string wrong_counts;
  };
  // Of one key.
  struct Slot {
    explicit Slot(size_t children) : reports(children) {}
    std::vector<std::vector<std::byte>> reports;  // by child; empty: none
    uint32_t reported = 0;
    std::deque<std::unique_ptr<Call>> calls;  // of this rank; the first is under way
    bool gathers() const { return !calls.empty() && calls.front()->phase == Phase::kGathering; }
  };
  struct PairCounts {
    uint64_t sent, expected;  // of the sender for the receiver, and the other way round
  };

  static bool takes_numbers(const Call& call);
  CollectiveKey key_of(uint64_t tag) const { return {tag != 0, tag != 0 ? tag : next_}; }
  // The next of its key.
  Request* keep(std::unique_ptr<Call> call, TakenRequest& taken);
  Slot& slot_of(const CollectiveKey& key);
  void complete(const Call& call, const Status& status);
  [[nodiscard]] bool on_report(uint32_t from, const CollectiveKey& key,
                               std::span<const std::byte> payload);
  [[nodiscard]] bool on_answer(uint32_t from, const CollectiveKey& key, Slot& slot,
                               std::span<const std::byte> payload);
  [[nodiscard]] bool on_counts(uint32_t from, const CollectiveKey& key, Slot& slot,
                               std::span<const std::byte> payload);
  [[nodiscard]] bool may_hold(size_t child, const CollectiveKey& key) const;
  void pass_on_if_complete(const CollectiveKey& key, Slot& slot);
  CollectiveReport gather(Slot& slot);
  void answer(const CollectiveKey& key, Slot& slot, const CollectiveAnswer& answer,
              std::span<const std::byte> values);
  void tell_counts(const CollectiveKey& key, const Call& call);
  void finish_if_told(const CollectiveKey& key, Slot& slot);
  void finish(const CollectiveKey& key, Slot& slot, const Status& status);
  void send(uint32_t to, SectionKind kind, const CollectiveKey& key,
            std::span<const std::byte> head, std::span<const std::byte> values);
  uint32_t rank() const { return parts_.columns.rank(); }

  const Parts parts_;
  // By the standard constants: a rank may call before the commit that brings others.
  AlgorithmChoice algorithms_;
  const uint32_t parent_;
  const std::vector<uint32_t> children_;
  std::map<CollectiveKey, Slot> slots_;
  std::vector<CollectiveKey> posted_;  // since the last pass
  std::vector<CollectiveKey> moving_;
  std::vector<uint32_t> held_;  // reports, by child
  uint64_t next_ = 0;           // number of the next call of tag 0
  bool giving_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_COLLECTIVE_ROUNDS_H_
