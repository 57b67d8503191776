// SPDX-License-Identifier: Apache-2.0
// ExchangeWorld: one exchange and its outbox for every rank of a job, in one thread, without an
// engine. Messages are cut into sections, which wait per pair of ranks, in order; which pair is
// next, which rank works and which peer has credits is drawn from a seed. A test can hold back
// sections, look at each before it arrives, and slip in its own.
#ifndef PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_WORLD_H_
#define PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_WORLD_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "support/naive_training.h"
#include "unit/collectives/exchange_candidate.h"
#include "world/host_map.h"

namespace parallax::exchange_conformance {

using testkit::Contribution;

struct Setting {
  std::vector<uint32_t> hosts = {0};  // by rank: any number that tells hosts apart
  Shape shape;
  SumType sum = SumType::kF32;
  bool ordered = false;
  bool counted = false;
  uint32_t variable = 0;
  size_t message_bytes_max = 16384;
  uint64_t seed = 1;
  size_t piece_bytes_max = 0;  // that ranks write into each other's memory; 0: they do not
  // They write to exchanges' memory alone, not to that which is contributed; and not within a host.
  bool unknown_memory = false;
  uint64_t lent_bytes_min = 1;
  bool lends = seed % 3 == 0;  // ranks of a host read each other's contributions where they lie
  bool read_only = false;      // and can't write there
  // Rows of ranks of a host: read where they lie, of all ranks or of some; and left there.
  bool staged = seed % 4 != 0;
  bool all_staged = seed % 4 == 1;
  bool rows_stay = seed % 8 < 5;
  // Of ranks that give rows, some do while these still come.
  bool arrives = seed % 2 == 0;
  // Of memory on a host, where rows are given: each rank lies in one of so many, by chance.
  uint32_t domains = seed % 5 < 2 ? 1 : 2 + static_cast<uint32_t>(seed % 2);

  uint32_t world() const { return static_cast<uint32_t>(hosts.size()); }
  uint64_t gradient_elements() const { return shape.row_elements + (counted ? 1 : 0); }
  std::string say() const;
};

// Hosts and domains of memory, as a setting has them.
HostMap map_of(const Candidate& candidate, const Setting& setting);

// Numbers of a dtype, rounded to it, as they lie in memory.
std::vector<std::byte> bytes_of(uint32_t dtype, std::span<const double> values);

// A section under way. Its payload lies one byte off, as it may in a message.
struct Parcel {
  uint32_t from = 0;
  uint32_t to = 0;
  SectionHeader header = {};
  std::vector<std::byte> bytes = std::vector<std::byte>(1);

  std::span<std::byte> payload() { return std::span(bytes).subspan(1); }
  std::span<const std::byte> payload() const { return std::span(bytes).subspan(1); }
  Section section() const { return {header, payload()}; }
};

class ExchangeWorld {
 public:
  using Held = std::function<bool(const Parcel& parcel)>;
  using Tap = std::function<void(const Parcel& parcel)>;

  // Steps 1 and 2 are open everywhere.
  ExchangeWorld(const Candidate& candidate, const Setting& setting);
  ~ExchangeWorld();

  uint32_t size() const { return setting_.world(); }
  const Setting& setting() const { return setting_; }
  const HostMap& hosts() const { return hosts_; }
  const Partition& partition() const { return partition_; }
  const Columns& columns(uint32_t rank) const;
  Exchange& exchange(uint32_t rank);
  // What its exchange said, before, that it would reserve.
  size_t foretold_bytes(uint32_t rank) const;
  SeededRandom& random() { return random_; }

  // Its step before the last is over.
  void open(uint32_t rank, uint64_t step);
  // The contribution is copied. Nothing where it is not given.
  void contribute(uint32_t rank, uint64_t step, const Contribution& contribution);
  // Tells the leaders of its host once its slice is coalesced.
  void end(uint32_t rank, uint64_t step);
  bool end_told(uint32_t rank, uint64_t step) const;
  // Bytes that others have written into the rank's memory, and parts of it where they still may.
  uint64_t written_bytes(uint32_t rank) const;
  uint32_t shared_parts(uint32_t rank) const;
  // Loans that others have read so far.
  uint64_t loans_read(uint32_t rank) const;
  // What the rank wrote of totals where others lent their addends.
  uint64_t returned_bytes(uint32_t rank) const;
  // The rank's slice, as it lies in its buffer now.
  std::span<const std::byte> slice_of(uint32_t rank, uint64_t step) const;
  // The rank's rows of a step, where others read them; empty: nowhere.
  std::span<std::byte> staged_of(uint32_t rank, uint64_t step) const;
  // What the rank has mapped of another is gone; and that other's end is known there.
  void unmap(uint32_t rank, uint32_t of);
  void end_seen(uint32_t rank, uint32_t of);
  const Lending& lending_of(uint32_t rank) const;
  // Ranks that others found to have left what they may not, in order.
  const std::vector<uint32_t>& misfits() const { return misfits_; }
  // The rank gives another up: what that reads of it now is not meant any more.
  void take_back(uint32_t rank, uint32_t from);
  // All ranks, all.
  void take_all_back();
  // The rank's buffers are its own again.
  // Rows of its slice waited for word whether they stay where they are.
  bool was_held(uint32_t rank, uint64_t step) const;
  bool given_back(uint32_t rank, uint64_t step) const;

  // Some actions by chance.
  void wander(uint64_t actions);
  // Until nothing can move.
  void run();

  // Sections for which this says true stay where they are, and those behind them. Null: none.
  void hold(Held held) { held_ = std::move(held); }
  // Those under way, held or not.
  size_t under_way_to(uint32_t rank) const;
  // Sees each section of the exchange just before it arrives.
  void tap(Tap tap) { tap_ = std::move(tap); }
  // Hands a section over at once, past all that is under way.
  bool inject(const Parcel& parcel);
  // From here on a refused section is no failure of the test.
  void expect_anything() { expect_anything_ = true; }

 private:
  class Rank;

  void on_message(uint32_t from, uint32_t to, std::span<const std::byte> message);
  void on_own_message(uint32_t rank, std::span<const std::byte> message);
  bool work(uint32_t rank);
  bool deliver_one();
  void arrive(const Parcel& parcel);
  std::deque<Parcel>& link(uint32_t from, uint32_t to) { return links_[from * size() + to]; }

  const Setting setting_;
  const bool delivers_;
  SeededRandom random_;
  HostMap hosts_;
  Partition partition_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::deque<Parcel>> links_;  // from * size() + to
  std::vector<uint32_t> ready_;            // links with something, where nothing is held
  Held held_;
  Tap tap_;
  bool expect_anything_ = false;
  std::vector<uint32_t> misfits_;
};

}  // namespace parallax::exchange_conformance

#endif  // PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_WORLD_H_
