// SPDX-License-Identifier: Apache-2.0
// DenseExchange: runs the schedule of a dense algorithm, one of algorithms.h, for one variable. It
// knows nothing of which algorithm it is.
//
// Design notes. Elements move in pieces, as messages bring them: what a piece completes is sent on,
// added or copied at once, so sums, sends and receives of one range overlap. Every operation goes
// through its range front to back, and a peer sends in order, so one number tells how far each is;
// a piece that is not the next of its operation is refused, and the engine names its sender.
//
// What is summed goes ahead of what is still to be summed elsewhere: a total leaves while it is in
// the cache, its range is done while the next is on its way, and of many variables in a call the
// first is done before the last has left.
//
// Bytes are added where they arrive, and sends read them where they lie: the caller's slice, a sum,
// the result. The result is the caller's buffer where a contribution names one, else memory of the
// exchange. A range of the result is taken only once this rank has sent its share of it: before, no
// rank can have the sum, and what the result replaces may still be read. Where a rank adds
// what it also sends, that says nothing, and a result that would lie where the slice does stays
// here.
//
// Where the transport can write into a peer's memory, a rank offers the peers whose returned ranges
// are long the place of those in its result, ahead of its own share; pieces then come without their
// bytes. An offer is a favour: what is queued or comes without it is copied as ever. Where most of
// the result can come so to memory of the exchange and none of it to the caller's buffer, which
// the network does not know, it comes to the exchange's, and is copied when it is whole.
//
// Between ranks that read each other's memory (message/lending.h), what lies in a shared buffer is
// lent: the receiver notes where, and adds or copies it from there in turns, a block of each addend
// after the other, so that the sum's block stays in the cache. Addends wait for this rank's own:
// the first two then go into the sum in one pass, and the sum where the caller wants its result.
// What others gave in place gets its total there: each block is written to them while it is in the
// cache. From elsewhere they read it, where it is lent in turn.
//
// A *narrow* slice, of 16-bit numbers that are summed as floats, travels as it is, and is widened
// where it is added. Who gives one, and has its result in the same dtype, gets totals that were
// rounded once, by whoever made them: an element says of what type it is by its length. That takes
// a result of which nothing travels on. Totals are scaled (ExchangeOptions::factor) as a block of
// them is complete, before anybody has it.
#ifndef PARALLAX_COLLECTIVES_DENSE_EXCHANGE_H_
#define PARALLAX_COLLECTIVES_DENSE_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "aggregate/dense_accumulator.h"
#include "base/arena.h"
#include "base/byte_range.h"
#include "collectives/algorithms.h"
#include "collectives/exchange.h"
#include "collectives/lent_notes.h"
#include "collectives/narrow_numbers.h"
#include "collectives/run_member.h"
#include "collectives/schedule_wiring.h"
#include "message/outbox.h"
#include "message/place_offer.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class DenseExchange final : public Exchange, private LentReader {
 public:
  // All references outlive the exchange. `of_hosts`: see AllreduceShape; elements are then rows
  // made dense, and a leader's slice is what its column owns alone, range after range.
  DenseExchange(const Columns& columns, const Partition& partition, Outbox& outbox,
                const ExchangeOptions& options, const DenseAlgorithm& algorithm,
                bool of_hosts = false);
  // Of a collective: `elements` of the whole by this schedule. Of `options` variable, ordered and
  // sum are looked at.
  DenseExchange(const Columns& columns, uint64_t elements, Outbox& outbox,
                const ExchangeOptions& options, Schedule schedule, const BesideSteps& beside);
  // Of a step's, by this schedule: `elements` that every rank of it gives, and gets the sum of.
  DenseExchange(const Columns& columns, uint64_t elements, Outbox& outbox,
                const ExchangeOptions& options, Schedule schedule);
  DenseExchange(const DenseExchange&) = delete;
  DenseExchange& operator=(const DenseExchange&) = delete;
  ~DenseExchange() override;

  // In an arena of the caller's, instead of reserve().
  void lay_out(Arena& arena);

  Status reserve() override;
  size_t needed_bytes() override;
  const Arena& arena() const override { return arena_; }
  void open(uint64_t step) override;
  // Of a collective, after open() and before anything comes: where the result goes, if this rank
  // has any, instead of memory of the exchange, and what its sends count in.
  void place(uint64_t step, std::byte* result, uint32_t* pending);
  // Of a collective, before this rank's own share: who sends to it may place it.
  void offer_places(uint64_t step);
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) override;
  // This rank's input is nothing. `contributed`: somebody gave a slice without rows.
  void contribute_nothing(uint64_t step, bool contributed);
  void end(uint32_t from, uint64_t step) override;
  [[nodiscard]] bool on_section(uint32_t from, const Section& section) override;
  std::byte* place_of(uint32_t from, const Section& section) override;
  ExchangeState state(uint64_t step) const override;
  MissingRanks missing(uint64_t step) const override;
  ReducedGradient owned(uint64_t step) const override;
  ReducedGradient whole(uint64_t step) const override;
  ExchangeCounts counts(uint64_t step) const override;
  RunMember* run_member() override { return in_runs_.suits ? &in_runs_ : nullptr; }
  // Of a collective: this rank has sent and received all of it, but for what *pending counts.
  bool moved(uint64_t step) const { return step_buffer(step).left == 0 && state(step).delivered; }

 private:
  struct Elements {
    uint64_t count = 0, in_row = 1;
    bool made_dense = false;
  };
  // Null: of a step.
  DenseExchange(const Columns& columns, const Elements& elements, Outbox& outbox,
                const ExchangeOptions& options, ScheduleWiring wiring, const BesideSteps* beside);

  struct OpState {
    uint64_t done = 0;       // receives: elements that came; sends: that were queued
    uint64_t noted = 0;      // receives: of loans, that are still to be read
    Send* queued = nullptr;  // sends: what is not packed yet
    bool nothing = false;    // it brings nothing
    uint32_t area = 0;       // receives: which its sender may write to; 0: none
    uint32_t offer = 0;      // sends: in offers, from 1 on; 0: there is none
    bool open = false;       // receives: its sender may write where they come
    bool narrow = false;     // sends: who gets them has given narrow numbers
    BufferPlace over;        // sends: where this rank may write them; in no buffer: nowhere
    uint64_t loan = 0;       // sends: what ends when they are written
    WholePages returns;      // sends: which of their bytes may be
  };
  // Of this rank's input, where it still comes.
  struct Arrival {
    ArrivingElements* from = nullptr;  // null: all of it is there
    uint64_t read = 0;                 // elements
  };
  struct StepBuffer {
    uint64_t step = 0;
    RowValues input;
    Arrival arrival;
    ByteRange borrowed;           // with the input in it, as the contribution says
    uint32_t* pending = nullptr;  // of the contribution
    ResultPlace result;
    bool narrow = false;                       // what this rank gives and gets is
    const LeavingElements* leaving = nullptr;  // then: who is told what is there of it
    std::span<std::byte> own_result;
    // Where its receiver has offered a place for it.
    void place_send(const OpState& state, size_t element_bytes, Send* send) const;
    ByteRange own_bytes() const { return ByteRange::at(own_result.data(), own_result.size()); }
    bool is_known = false;               // it is, to the transport's writes
    uint32_t areas_shared = 0;           // of receives
    std::vector<DenseAccumulator> sums;  // of the cells that are sums
    std::span<uint64_t> done;            // by cell: elements, from its first, that are complete
    std::span<OpState> ops;
    LentNotes notes;                // of loans
    std::deque<PlaceOffer> offers;  // of receivers of this rank's sends
    size_t offer_count = 0;
    uint32_t results_left = 0;  // cells of the result that are not whole
    uint64_t left = 0;          // elements that are still to be received, or queued to be sent
    bool ended = false;         // this rank contributed, or will not
    bool held = false;          // it did in a run (run_member.h)
    bool part_summed = false;   // held: the part that this rank sums is
    bool lent = false;          // not held any more: to all, who write their totals over it
    bool contributed = false;   // as far as this rank was told
    bool has_values = false;    // some of the result has values
  };

  // What of this goes in runs (dense_exchange_runs.cc).
  struct InRuns final : RunMember {
    explicit InRuns(DenseExchange& exchange);
    Range part() const override { return whole.wiring_.schedule().owned; }
    double factor() const override { return whole.options_.factor; }
    bool in_order() const override { return whole.ordered_; }
    void hold(uint64_t step, const Contribution& slice, uint32_t* pending) override;
    bool is_held(uint64_t step) const override { return whole.step_buffer(step).held; }
    void release(uint64_t step) override;
    [[nodiscard]] bool brought(uint64_t step, uint32_t by) override;

    DenseExchange& whole;
    const bool suits;
  };

  // A collective has one alone.
  StepBuffer& step_buffer(uint64_t step) { return step_buffers_[beside_ ? 0 : step & 1]; }
  const StepBuffer& step_buffer(uint64_t step) const {
    return step_buffers_[beside_ ? 0 : step & 1];
  }
  [[nodiscard]] bool fits(const StepBuffer& buffer, uint32_t op, const Section& section) const;
  void bring(StepBuffer& buffer, uint32_t op, uint64_t count, const RowValues& values, bool lent);
  void leave_out(StepBuffer& buffer, uint32_t op);
  void end_offer(StepBuffer& buffer, uint32_t op);
  void end_offers(StepBuffer& buffer);
  [[nodiscard]] bool on_offer(uint32_t from, const Section& section);
  // Of what is lent (dense_exchange_lent.cc).
  [[nodiscard]] bool note(StepBuffer& buffer, uint32_t op, const Section& section);
  bool read_lent() override;
  bool read_note(StepBuffer& buffer, LentNote& note, uint64_t count);
  void place_sums(StepBuffer& buffer, const Contribution& slice);
  void arrive(uint64_t step);
  void lend(StepBuffer& buffer, uint32_t op, Send& send);
  void send_over(StepBuffer& buffer, uint32_t op, uint64_t at, uint64_t count,
                 const std::byte* values);
  void sum_moved(StepBuffer& buffer, uint32_t cell);
  void read(StepBuffer& buffer, uint32_t op, uint64_t at, uint64_t count);
  void write_result(StepBuffer& buffer, uint32_t cell, uint64_t count, const RowValues& values);
  void result_moved(StepBuffer& buffer, uint32_t cell, uint64_t count);
  void send(StepBuffer& buffer, uint32_t op, uint64_t at, uint64_t count, const std::byte* values);
  Send new_send(const StepBuffer& buffer, uint32_t op, uint64_t at, uint64_t count) const;

  const Columns& columns_;
  const uint64_t elements_, row_elements_;
  Outbox& outbox_;
  const ExchangeOptions options_;
  const bool made_dense_;
  const bool beside_;                            // the steps: a collective's
  const SectionKind reduce_kind_, gather_kind_;  // of its elements
  const bool defers_;        // loans that are addends wait for this rank's own contribution
  bool taken_back_ = false;  // what was read of a loan is worth nothing: the job is about to end
  const Combine combine_;
  const uint32_t dtype_;        // of sums, or of what is only copied
  const size_t element_bytes_;  // of one
  const ScheduleWiring wiring_;
  const bool ordered_;  // sums add by turn
  // The result may come in any dtype: it is complete when it has come, and nothing of it travels.
  const bool finishes_;
  const NarrowNumbers numbers_;  // alike on all ranks
  const bool placed_;            // of a collective: place() says where the result goes
  InRuns in_runs_{*this};
  Arena arena_;
  std::array<StepBuffer, 2> step_buffers_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_DENSE_EXCHANGE_H_
