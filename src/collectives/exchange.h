// SPDX-License-Identifier: Apache-2.0
// Exchange: what one variable's gradient does in a step, as everything above sees it: ranks
// contribute slices, sections travel, and in the end each rank has the part of the sum that it owns
// and, where the method gives it back, the whole. Engine, votes, tables and results know nothing
// else of how a gradient travels.
//
// A step at one exchange: open -> contribute (or not) and end, in any order with sections of other
// ranks -> state says reduced, then delivered -> owned and whole are read. Two steps are open at a
// time, t and t + 1: a rank is at most one ahead of another, since step t + 1 cannot be decided
// before all have applied step t. Step t + 2 takes over the memory of step t.
//
// Memory is reserved once; a step allocates nothing. Everything here is called by the engine's
// owner, none of it blocks, and messages go by the outbox that the exchange was made with.
#ifndef PARALLAX_COLLECTIVES_EXCHANGE_H_
#define PARALLAX_COLLECTIVES_EXCHANGE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "aggregate/coalesced_ids.h"
#include "aggregate/combine.h"
#include "aggregate/reduced_gradient.h"
#include "base/arena.h"
#include "base/byte_range.h"
#include "base/compute.h"
#include "base/leaving_elements.h"
#include "base/number.h"
#include "base/status.h"
#include "device/communicator.h"
#include "message/outbox.h"
#include "planner/plan.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class AlgorithmChoice;
class DomainColumns;
class Entries;
class HostStaging;
class PulledLists;
class RoundNames;
class RunMember;
struct DenseShape;

// Sends that read rows of a step and are not packed yet, by step & 1.
using UnsentRows = std::array<uint32_t, 2>;

// Up to so many hosts, who has no rows for an owner says so to it; beyond, a census tells
// (census.h).
inline constexpr uint32_t kMarkerHostsMax = 64;

struct ExchangeOptions {
  uint32_t variable = 0;
  Method method = Method::kAllreduce;
  uint64_t rows_max = 0;        // rows in one slice; 0 for dense
  bool ordered = false;         // sums in a fixed order of ranks and hosts
  SumType sum = SumType::kF32;  // of sums; slices are converted where they enter
  // Of elements that the framework holds: the dtype that slices have, unless one has another, and
  // in which they travel and results come back then. Not said: the sum's.
  uint32_t dtype = kSumsOwn;
  static constexpr uint32_t kSumsOwn = UINT32_MAX;
  // Totals are multiplied by it where they are made, once, in the sum type, as far as the exchange
  // can (ReducedGradient::scaled).
  double factor = 1;
  // Of rows on their way from their host to who adds them up: what they are rounded to, on all
  // hosts alike, where there are several. Not said: they are not.
  uint32_t wire = kSumsOwn;
  bool held = false;  // the framework's: every rank gets all of the sum, and owns none of it
  // With ids: every row ends in one element more, which counts the ranks that gave the row. The
  // partition's row_elements has it.
  bool counted = false;
  // ReducedGradient::contributors of the whole.
  bool counts_contributors = false;
  int32_t priority = 0;  // of all that it sends and reads
  uint32_t marker_hosts_max = kMarkerHostsMax;
  // Of dense ones: who chooses the algorithm, and outlives the exchange's making; null: the direct
  // one.
  AlgorithmChoice* algorithms = nullptr;
  // What ranks say on boards, which outlives the exchange: where there is room, what is to go
  // `oneshot` goes so. Null: in messages.
  Entries* entries = nullptr;
  // Of rows: where the ranks of the host read them, which outlives the exchange. Null: nowhere.
  HostStaging* staging = nullptr;
  // Of rows: who sums those of a NUMA node first, which outlives the exchange; not where
  // sums have an order. Null: nobody does.
  const DomainColumns* domains = nullptr;
  // Of rows: an index for all exchanges of the group, which outlives them. Null: each has its own.
  RowScratch* scratch = nullptr;
  // Of rows that the framework holds: they go in chunks of so many row keys, one after the other
  // (chunked_rows.h). 0: all at once.
  uint64_t chunk_rows = 0;
  // Of rows, one chunk of them at a time: what a round is called in messages. It outlives the
  // exchange. Null: a step, as it is.
  const RoundNames* rounds = nullptr;
  // Of rows: who uses an owner's part reads rows where they lie (ReducedGradient::places), as long
  // as staging->readable(). Nothing else is made of that part than a step of its table. Where hosts
  // are several only what lies in this rank's own memory stays, and the exchange sees to that.
  bool rows_stay = false;
  // Of rows that are pushed to their owners: what was pulled of them in the step, which outlives
  // the exchange. Null: nothing is known of that, and all row keys are sent.
  const PulledLists* pulled = nullptr;
  // Of rows: what of them is coded on its way to other hosts, which outlives the exchange. Null:
  // nothing.
  const RowCodings* codings = nullptr;
  // Of rows that are pushed to their owners: where sends of them are counted, which outlives the
  // exchange: a step may be decided before they have gone (ExchangeState::handed_on). Null: they
  // have gone by then.
  UnsentRows* unsent = nullptr;
};

// What a DenseExchange moves where it is a collective's, beside the steps: one step, whose number
// is the collective's, with sections of their own kinds and a contribution of every rank that has
// one. Its sends all count in the *pending that place() was given.
struct BesideSteps {
  bool copies = false;  // numbers travel as they are, of `dtype`, and nothing is combined
  uint32_t dtype = PARALLAX_F32;
  Combine combine = Combine::kSum;
  bool placed = false;  // place() says where the result goes: no memory is reserved for it
};

struct Destination {
  std::byte* values = nullptr;  // null: none
  uint32_t dtype = PARALLAX_F32;
};

// Elements of a contribution that are still on their way to where they lie, front to back, as from
// a device, or rows of one with ids: how many are there, and who is told of more. Whoever brings
// them owns this, and keeps it until all are there or none come any more. Engine's owner only.
struct ArrivingElements {
  uint64_t count = 0;          // those that are there, from the first on
  bool given_up = false;       // no more come: the job fails
  std::function<void()> more;  // of who reads them, once there is somebody
  bool over = false;           // whoever does has all, or knows that no more come

  void bring(uint64_t now) {
    if (now == count) return;
    count = now;
    if (more && !over) more();
  }
  void give_up() {
    given_up = true;
    if (more && !over) more();
  }
};

// One rank's slice. Of a variable without ids: the elements, all of them. With ids: rows, and
// beside rows that are every row of the variable in order (no ids), `more` rows by id.
struct Contribution {
  RowValues elements = {};
  RowSlice rows = {}, more = {};
  // Of fused tables, at an exchange of managed rows, in place of these: slices, of which those of a
  // table follow each other. They are borrowed as what they name is.
  std::span<const RowSlice> parts = {};
  // These are all that there are; or, where slices are coalesced within the call, some, with which
  // the contribution begins or goes on, or the last, of which there may be none. Nothing is told
  // to anybody before the last.
  enum class Parts : uint8_t { kAll, kSome, kLast } which_parts = Parts::kAll;
  // Of rows: ids that were coalesced before, which may be theirs (CoalescedIds::has). Read within
  // the call alone. Null: none.
  const CoalescedIds* coalesced = nullptr;
  // Of rows: they may be read where they lie until all ranks of the host have applied the step.
  // Then the exchange may hold them: see settle().
  bool may_stay = false;
  // Of rows, in place of a slice: rows that were coalesced before, which a RowExchange takes.
  DistinctRows distinct = {};
  // Or, which it takes too: that none come. Its end of the step is not told then.
  bool nothing = false;
  // The elements stay as they are until the step is delivered here, whatever *pending says.
  bool lasting = false;
  // Of elements: they, and what lies before and behind them and is borrowed of the caller by the
  // same request, so that all of it is free at one time, with the few bytes between that aligned
  // it, which nobody reads or writes. Of no bytes: that is not said.
  ByteRange borrowed = {};
  // Where the caller wants the whole, which may be where the elements are: written, if at all, once
  // what it replaces was read. whole() tells where the whole is; there, if the dtype is the sum's.
  Destination result = {};
  // Told what is there of the whole, where that is written to `result`; null: nobody asks.
  const LeavingElements* leaving = nullptr;
  // Of a DeviceExchange: the elements and the result lie on a device, and this is the point of the
  // caller's stream from which on they may be read and written.
  DeviceMark after = 0;
  // Of elements that are not lasting, or of rows without `more`, at an exchange that
  // takes_arriving(): they are still on their way, and the result lies elsewhere; ids are there.
  // *pending is back behind the last of them. Null: all are there.
  ArrivingElements* arriving = nullptr;
};

struct ExchangeState {
  bool contributed = false;  // what this rank contributed is read, and may be sent: no job has it
  bool reduced = false;      // this rank's part of the sum is complete (also where it has none)
  bool delivered = false;    // all that this rank gets back is here
  // Or, of what is pushed to owners: what this rank has for them is on its way, and nothing that
  // other ranks of its host gave is still to be read.
  bool handed_on = false;
};

// Ranks that a step which is not complete waits for here, ascending.
struct MissingRanks {
  std::vector<uint32_t> to_give = {};    // what this rank sums is not all here
  std::vector<uint32_t> to_return = {};  // else, whose sums are not
  // Else, whose word is not here that nothing more comes (census.h): they may have given all, and
  // wait for others themselves.
  std::vector<uint32_t> to_tell = {};
  bool empty() const { return to_give.empty() && to_return.empty() && to_tell.empty(); }
};

// Ascending, each once.
inline void sort_and_unite(std::vector<uint32_t>& ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
}

// What the planner wants to know of an exchange and a step.
struct ExchangeCounts {
  uint64_t touched_rows = 0;  // distinct rows that this rank's host contributed, as far as this
                              // rank leads them
  uint64_t given_rows = 0;    // distinct rows of each rank that gives them to this one, added up
  uint64_t union_rows = 0;    // distinct rows of all hosts, each counted by one rank
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Reserves the memory of two steps, of needed_bytes(). LIMIT.
  virtual Status reserve() = 0;
  virtual size_t needed_bytes() = 0;  // before reserve()
  virtual const Arena& arena() const = 0;

  // Gives the buffers of step - 2, which must be over everywhere, to `step`.
  virtual void open(uint64_t step) = 0;
  // This rank's slice, at most once a step. Buffers are borrowed until *pending is back where it
  // was before the call.
  virtual void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) = 0;
  // A step is about to be looked at, given to or summed up here: what that takes of the exchange is
  // asked of the memory; and of what contribute() writes the beginning.
  virtual void prefetch(uint64_t /*step*/) const {}
  virtual void prefetch_given(uint64_t /*step*/) const {}
  // Rows of this rank's slice that may stay where they are (Contribution::may_stay) are not given
  // to anybody yet: not before settle() says whether they are to. Else they are copied. True: they
  // stay. They may not be held when the step is to end.
  virtual bool holds(uint64_t /*step*/) const { return false; }
  virtual bool settle(uint64_t /*step*/, bool /*stay*/) { return false; }
  // A rank of this host, or this one, ended the step: what it did not contribute is absent. Told to
  // the leaders of its host and to itself, so that whoever sums what others give is one; and of
  // itself before anything that follows from it comes.
  virtual void end(uint32_t from, uint64_t step) = 0;
  // `from` is any rank of the world, the step is open. False: not what that rank may send now.
  [[nodiscard]] virtual bool on_section(uint32_t from, const Section& section) = 0;
  // Of a section in place that is still to come, and that on_section() would take: where its
  // payload goes as it is. Null: nowhere. Stays so until it has come.
  virtual std::byte* place_of(uint32_t /*from*/, const Section& /*section*/) { return nullptr; }

  virtual ExchangeState state(uint64_t step) const = 0;
  // For the sentence of a timeout.
  virtual MissingRanks missing(uint64_t step) const = 0;
  // Once reduced: this rank's part.
  virtual ReducedGradient owned(uint64_t step) const = 0;
  // The same of rows that hosts sum at their owner: by which each is found, in an index that is
  // made if need be. Null: they are others. Who hands on another's owned() hands on this, too.
  virtual const RowIndex* owned_index(uint64_t /*step*/) { return nullptr; }
  // Once delivered: all of it.
  virtual ReducedGradient whole(uint64_t step) const = 0;
  // Rows: once reduced.
  virtual ExchangeCounts counts(uint64_t step) const = 0;

  // By which a slice of it goes in a run with others (run_member.h); null: it goes alone.
  virtual RunMember* run_member() { return nullptr; }
};

// What chooses among algorithms knows of a variable without row ids.
DenseShape dense_shape(const Partition& partition, const ExchangeOptions& options);

// It goes on boards alone (board_exchange.h): ranks say there too what they do not give, and wait
// for no word that a step has ended.
bool is_on_boards(const Exchange& exchange);
// It takes what is still on its way (Contribution::arriving).
bool takes_arriving(const Exchange& exchange);

// All references outlive the exchange.
std::unique_ptr<Exchange> make_exchange(const Columns& columns, const Partition& partition,
                                        Outbox& outbox, Compute& compute,
                                        const ExchangeOptions& options);

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_EXCHANGE_H_
