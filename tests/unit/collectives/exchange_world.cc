// SPDX-License-Identifier: Apache-2.0
// The network and the ranks of a world of exchanges. See exchange_world.h.
#include "unit/collectives/exchange_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/byte_range.h"
#include "base/check.h"
#include "collectives/host_rows.h"
#include "support/host_map_of.h"
#include "support/slot_maps.h"
#include "unit/collectives/arriving_rows.h"
#include "world/domain_columns.h"

namespace parallax::exchange_conformance {

namespace {

constexpr uint32_t kWorkPercent = 20;  // of the actions are a rank's, the others an arrival
constexpr uint32_t kSlowPercent = 15;  // of the looks at a peer find no credit

}  // namespace

// A rank is its own transport: what it sends goes to the world's links. Pieces are written at once,
// long before their messages arrive.
class ExchangeWorld::Rank final : public Transport,
                                  public Receiver,
                                  public OutboxObserver,
                                  public RemoteWrites,
                                  public PeerMemory {
 public:
  Rank(ExchangeWorld& world, uint32_t rank, const Candidate& candidate)
      : world_(world),
        rank_(rank),
        columns(world.hosts_, rank),
        domains(columns),
        outbox(rank, *this, *this, *this),
        in_flight_(world.size()),
        retracted_(world.size()) {
    const Setting& setting = world.setting_;
    outbox.lending().set_bytes_min(setting.lent_bytes_min);
    outbox.lending().set_misfit([this](uint32_t of) { world_.misfits_.push_back(of); });
    PARALLAX_CHECK(outbox.start(0).ok());
    if (candidate.rows) {
      std::vector<uint64_t> bytes(setting.variable);
      bytes.push_back(HostRows::block_bytes(world.partition_, setting.shape.rows_max, setting.sum));
      staging.add(bytes);
      PARALLAX_CHECK(scratch.reserve(setting.shape.rows_max * columns.locals().size()).ok());
    }
    exchange = candidate.make(columns, world.partition_, outbox, compute,
                              {.variable = setting.variable,
                               .rows_max = setting.shape.rows_max,
                               .ordered = setting.ordered,
                               .sum = setting.sum,
                               .counted = setting.counted,
                               .staging = &staging,
                               .domains = domains.any() ? &domains : nullptr,
                               .scratch = setting.lends ? &scratch : nullptr,
                               .rows_stay = setting.rows_stay});
    foretold_bytes = exchange->needed_bytes();
    PARALLAX_CHECK(exchange->reserve().ok());
    open(1);
    open(2);
  }

  void open(uint64_t step) {
    exchange->open(step);
    opened_ = step;
  }
  // A rank may finish a step without the news that another has ended it.
  bool over(uint64_t step) const { return step + 2 <= opened_; }

  std::string_view name() const override { return "world of exchanges"; }
  size_t message_bytes_max() const override { return world_.setting_.message_bytes_max; }
  bool writable(uint32_t to) const override {
    return in_flight_[to] < kSendsInFlightMax && !world_.random_.chance(kSlowPercent);
  }
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t token) override {
    std::vector<std::byte> message;
    for (const Segment& segment : segments) {
      const auto* data = static_cast<const std::byte*>(segment.data);
      message.insert(message.end(), data, data + segment.bytes);
    }
    world_.on_message(rank_, to, message);
    ++in_flight_[to];
    sent_.push_back({to, token});
    return {};
  }
  RemoteWrites* remote_writes() override {
    return world_.setting_.piece_bytes_max > 0 ? this : nullptr;
  }
  size_t piece_bytes_max(uint32_t to) override {
    const bool is_near = columns.host_of(to) == columns.host();
    return world_.setting_.unknown_memory && is_near ? 0 : world_.setting_.piece_bytes_max;
  }
  Status send(uint32_t to, std::span<const Segment> segments, const PlacedPiece& piece,
              uint64_t token) override {
    PARALLAX_CHECK(piece.area == to + 1 && piece.key.size() == 1 && !segments.empty());
    PARALLAX_CHECK(world_.ranks_[to]->shared_parts > 0);
    PARALLAX_CHECK(piece.bytes <= world_.setting_.piece_bytes_max);
    std::memcpy(reinterpret_cast<void*>(piece.address), piece.data, piece.bytes);
    world_.ranks_[to]->written_bytes += piece.bytes;
    return send(to, segments, token);
  }
  bool know(const ByteRange& area) override {
    known_.push_back(area);
    return true;
  }
  bool has_room(const ByteRange& part) const override {
    return !world_.setting_.unknown_memory ||
           std::any_of(known_.begin(), known_.end(), [&part](const ByteRange& area) {
             return part.first >= area.first && part.first + part.bytes <= area.first + area.bytes;
           });
  }
  void forget_area(const ByteRange&) override {}
  bool share(const ByteRange& part, SharedPart* shared) override {
    PARALLAX_CHECK(part.first != 0 && part.bytes > 0);
    if (!has_room(part)) return false;
    ++shared_parts;
    *shared = {.area = rank_ + 1, .key = key_};
    return true;
  }
  void unshare(uint32_t area) override {
    PARALLAX_CHECK(area == rank_ + 1 && shared_parts > 0);
    --shared_parts;
  }
  void withdraw() override {}

  // What ranks contribute is in buffers of which the world knows the addresses.
  PeerMemory* peer_memory() override {
    return world_.setting_.lends || world_.setting_.staged ? this : nullptr;
  }
  bool share(const SharedMemory& memory) override {
    if (!world_.setting_.staged) return false;
    staged_ = memory;
    return true;
  }
  void unshare(const void*) override { staged_ = {}; }
  BufferPlace place_of(const void* data, uint64_t bytes) const override {
    const ByteRange wanted = ByteRange::at(data, bytes);
    if (data == staged_.base) return {.buffer = kStaged};
    if (!world_.setting_.lends) return {};
    for (uint64_t step = 0; step < contributions_.size(); ++step) {
      const std::vector<std::byte>& values = contributions_[step].values;
      const ByteRange all = ByteRange::at(values.data(), values.size());
      const bool inside =
          wanted.first >= all.first && wanted.first + wanted.bytes <= all.first + all.bytes;
      if (!inside || bytes == 0) continue;
      return {.buffer = step + 1, .offset = wanted.first - all.first};
    }
    return {};
  }
  bool mapped_by(uint32_t rank, uint64_t buffer) const override {
    const Setting& setting = world_.setting_;
    const bool mapped =
        buffer != kStaged || setting.all_staged || (rank_ * 31 + rank * 17 + setting.seed) % 3 != 0;
    return mapped && rank != rank_ && columns.host_of(rank) == columns.host();
  }
  const std::byte* find(uint32_t rank, const BufferPlace& place, uint64_t bytes) override {
    if (place.buffer != kStaged) return bytes_of(rank, place, bytes);
    const Rank& other = *world_.ranks_[rank];
    const uint64_t all = other.staged_.bytes;
    const bool inside = place.offset <= all && bytes <= all - place.offset;
    if (rank == unmapped_rank || !other.mapped_by(rank_, kStaged) || !inside) return nullptr;
    return other.staged_.base + place.offset;
  }
  std::byte* find_writable(uint32_t rank, const BufferPlace& place, uint64_t bytes) override {
    return world_.setting_.read_only ? nullptr : bytes_of(rank, place, bytes);
  }
  std::byte* bytes_of(uint32_t rank, const BufferPlace& place, uint64_t bytes) {
    Rank& other = *world_.ranks_[rank];
    if (!other.mapped_by(rank_, place.buffer) || place.buffer == 0 ||
        place.buffer > other.contributions_.size()) {
      return nullptr;
    }
    std::vector<std::byte>& values = other.contributions_[place.buffer - 1].values;
    if (place.offset > values.size() || bytes > values.size() - place.offset) return nullptr;
    return values.data() + place.offset;
  }
  void retract(uint32_t rank) override { retracted_[rank] = true; }
  bool was_meant(uint32_t rank) const override { return !world_.ranks_[rank]->retracted_[rank_]; }
  bool make_private(const ByteRange&) override { return true; }
  PeerMemoryCounts counts() const override { return {}; }
  std::string json() const override { return "{}"; }
  bool copies_sends(uint32_t) const override { return world_.setting_.seed % 2 == 0; }
  bool poll(Receiver&) override { return complete_sends(); }
  int wait_fd() const override { return -1; }
  bool arm() override { return true; }
  void forget(uint32_t) override {}

  void on_message(uint32_t from, std::span<const std::byte> message) override {
    world_.on_own_message(from, message);
  }
  void on_sent(uint64_t) override {}
  void on_lost(uint32_t, Loss, std::string_view) override {}
  void on_section_packed(uint32_t, const SectionHeader&, size_t) override {}
  void on_section_coded(uint32_t, const SectionHeader&, size_t) override {}
  void on_message_packed(uint32_t, size_t) override {}

  bool complete_sends() {
    const bool any = !sent_.empty();
    for (const auto& [to, token] : sent_) {
      --in_flight_[to];
      outbox.on_sent(token);
    }
    sent_.clear();
    return any;
  }

  // What was contributed in a step, and how far its end is.
  struct Contribution {
    std::vector<int64_t> ids;
    std::vector<std::byte> values, dense_values;
    uint32_t pending = 0;
    uint64_t ending = 0;  // the step whose end is still to be told
    uint64_t told = 0;
    bool held = false;  // its rows were, for a time
    ArrivingRows arriving;
  };
  Contribution& at(uint64_t step) { return contributions_[step & 1]; }

  void tell_end(uint64_t step) {
    Contribution& contribution = at(step);
    if (contribution.ending != step) return;
    if (exchange->holds(step)) exchange->settle(step, world_.random_.chance(70));
    if (!exchange->state(step).contributed) return;
    contribution.ending = 0;
    contribution.told = step;
    Send send;
    send.header.kind = SectionKind::kStepEnded;
    send.header.step = step;
    for (uint32_t column = 0; column < columns.count(); ++column) {
      outbox.add(columns.leader(columns.host(), column), send);
    }
    if (!columns.is_leader()) outbox.add(rank_, send);
  }

 private:
  ExchangeWorld& world_;
  const uint32_t rank_;

 public:
  Columns columns;
  DomainColumns domains;
  InlineCompute compute;
  Outbox outbox;
  HostStaging staging{columns, outbox.lending()};
  RowScratch scratch;
  std::unique_ptr<Exchange> exchange;
  uint32_t unmapped_rank = kNoRank;  // whose memory it has not mapped any more
  size_t foretold_bytes = 0;
  uint64_t written_bytes = 0;
  uint32_t shared_parts = 0;
  uint64_t loans_read = 0;

 private:
  static constexpr uint64_t kStaged = 3;  // the buffer that staging is in; before it contributions'
  SharedMemory staged_;
  const std::array<std::byte, 1> key_ = {};
  std::vector<ByteRange> known_;
  std::vector<uint32_t> in_flight_;
  std::vector<bool> retracted_;
  std::vector<std::pair<uint32_t, uint64_t>> sent_;
  std::array<Contribution, 2> contributions_;
  uint64_t opened_ = 0;
};

ExchangeWorld::ExchangeWorld(const Candidate& candidate, const Setting& setting)
    : setting_(setting),
      delivers_(candidate.delivers),
      random_(setting.seed),
      hosts_(map_of(candidate, setting)),
      partition_(setting.shape.rows, setting.gradient_elements(), candidate.rows,
                 candidate.uneven_owners ? testkit::uneven_slots(setting.world(), setting.seed)
                                         : testkit::even_slots(setting.world()),
                 setting.variable),
      links_(size_t{setting.world()} * setting.world()) {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    ranks_.push_back(std::make_unique<Rank>(*this, rank, candidate));
  }
}

ExchangeWorld::~ExchangeWorld() = default;

const Columns& ExchangeWorld::columns(uint32_t rank) const { return ranks_[rank]->columns; }
uint64_t ExchangeWorld::written_bytes(uint32_t rank) const { return ranks_[rank]->written_bytes; }
uint32_t ExchangeWorld::shared_parts(uint32_t rank) const { return ranks_[rank]->shared_parts; }
uint64_t ExchangeWorld::loans_read(uint32_t rank) const { return ranks_[rank]->loans_read; }
uint64_t ExchangeWorld::returned_bytes(uint32_t rank) const {
  return ranks_[rank]->outbox.lending().counts().written_bytes;
}
std::span<const std::byte> ExchangeWorld::slice_of(uint32_t rank, uint64_t step) const {
  return ranks_[rank]->at(step).values;
}
std::span<std::byte> ExchangeWorld::staged_of(uint32_t rank, uint64_t step) const {
  return ranks_[rank]->staging.block(setting_.variable, step);
}
void ExchangeWorld::unmap(uint32_t rank, uint32_t of) { ranks_[rank]->unmapped_rank = of; }
void ExchangeWorld::end_seen(uint32_t rank, uint32_t of) { ranks_[of]->retract(rank); }
const Lending& ExchangeWorld::lending_of(uint32_t rank) const {
  return ranks_[rank]->outbox.lending();
}
void ExchangeWorld::take_back(uint32_t rank, uint32_t from) {
  ranks_[rank]->outbox.lending().take_back(from);
}
void ExchangeWorld::take_all_back() {
  for (const auto& each : ranks_) each->outbox.lending().take_back_all();
}
Exchange& ExchangeWorld::exchange(uint32_t rank) { return *ranks_[rank]->exchange; }
size_t ExchangeWorld::foretold_bytes(uint32_t rank) const { return ranks_[rank]->foretold_bytes; }

void ExchangeWorld::open(uint32_t rank, uint64_t step) { ranks_[rank]->open(step); }

void ExchangeWorld::contribute(uint32_t rank, uint64_t step, const Contribution& contribution) {
  if (!contribution.contributed) return;
  Rank& giver = *ranks_[rank];
  Rank::Contribution& kept = giver.at(step);
  PARALLAX_CHECK(kept.pending == 0);
  kept.held = false;
  kept.ids = contribution.ids;
  kept.values = bytes_of(contribution.dtype, contribution.values);
  kept.dense_values = bytes_of(contribution.dtype, contribution.dense_values);
  if (setting_.shape.rows_max == 0) {
    parallax::Contribution slice;
    slice.elements = {kept.values.data(), contribution.dtype};
    // Who wants the sum in place of its slice leaves that as it is until then.
    slice.lasting = delivers_ && random_.chance(50);
    if (slice.lasting) slice.result = {kept.values.data(), contribution.dtype};
    // Some programs' slices have pages to themselves, as far as is known.
    if (setting_.seed % 2 == 0)
      slice.borrowed = ByteRange::at(kept.values.data(), kept.values.size());
    giver.exchange->contribute(step, slice, &kept.pending);
    return;
  }
  const RowSlice rows = {.ids = {.wide = kept.ids.data()},
                         .count = static_cast<uint32_t>(kept.ids.size()),
                         .values = {kept.values.data(), contribution.dtype}};
  if (!contribution.dense) {
    const bool arrives =
        setting_.arrives && rows.count > 0 && takes_arriving(*giver.exchange) && random_.chance(70);
    if (arrives) kept.arriving.start(kept.values, rows.count);
    ArrivingElements* const arriving = arrives ? &kept.arriving.elements : nullptr;
    giver.exchange->contribute(step, {.rows = rows, .may_stay = !arrives, .arriving = arriving},
                               &kept.pending);
    kept.held = giver.exchange->holds(step);
    return;
  }
  const RowSlice every_row = {.ids = {},
                              .count = static_cast<uint32_t>(setting_.shape.rows),
                              .values = {kept.dense_values.data(), contribution.dtype}};
  giver.exchange->contribute(step, {.rows = every_row, .more = rows}, &kept.pending);
}

void ExchangeWorld::end(uint32_t rank, uint64_t step) { ranks_[rank]->at(step).ending = step; }

bool ExchangeWorld::end_told(uint32_t rank, uint64_t step) const {
  return ranks_[rank]->at(step).told == step;
}

bool ExchangeWorld::was_held(uint32_t rank, uint64_t step) const {
  return ranks_[rank]->at(step).held;
}

bool ExchangeWorld::given_back(uint32_t rank, uint64_t step) const {
  return ranks_[rank]->at(step).pending == 0;
}

// ---- the network

void ExchangeWorld::on_message(uint32_t from, uint32_t to, std::span<const std::byte> message) {
  SectionReader reader(message);
  Section section;
  while (reader.next(&section)) {
    std::deque<Parcel>& waiting = link(from, to);
    if (waiting.empty()) ready_.push_back(from * size() + to);
    Parcel& parcel = waiting.emplace_back(Parcel{from, to, section.header});
    parcel.bytes.insert(parcel.bytes.end(), section.payload.begin(), section.payload.end());
  }
  EXPECT_FALSE(reader.malformed());
}

// Of a rank to itself: at once, as its outbox delivers it.
void ExchangeWorld::on_own_message(uint32_t rank, std::span<const std::byte> message) {
  SectionReader reader(message);
  Section section;
  while (reader.next(&section)) {
    Parcel parcel = {rank, rank, section.header};
    parcel.bytes.insert(parcel.bytes.end(), section.payload.begin(), section.payload.end());
    arrive(parcel);
  }
  EXPECT_FALSE(reader.malformed());
}

bool ExchangeWorld::deliver_one() {
  if (ready_.empty()) return false;
  // From a place by chance on, the first that is not held.
  const size_t start = random_.below(ready_.size());
  for (size_t i = 0; i < ready_.size(); ++i) {
    const size_t at = (start + i) % ready_.size();
    std::deque<Parcel>& waiting = links_[ready_[at]];
    if (held_ && held_(waiting.front())) continue;
    const Parcel parcel = std::move(waiting.front());
    waiting.pop_front();
    if (waiting.empty()) {
      ready_[at] = ready_.back();
      ready_.pop_back();
    }
    arrive(parcel);
    return true;
  }
  return false;
}

void ExchangeWorld::arrive(const Parcel& parcel) {
  if (parcel.header.kind == SectionKind::kStepEnded) {
    Rank& to = *ranks_[parcel.to];
    if (!to.over(parcel.header.step)) to.exchange->end(parcel.from, parcel.header.step);
    return;
  }
  if (tap_) tap_(parcel);
  if (parcel.header.kind == SectionKind::kLoanRead) {
    Rank& lender = *ranks_[parcel.to];
    const bool lent = lender.outbox.lending().returned(parcel.from, parcel.header.first);
    EXPECT_TRUE(lent || expect_anything_);
    ++lender.loans_read;
    return;
  }
  if (inject(parcel) || expect_anything_) return;
  ADD_FAILURE() << "rank " << parcel.to << " refused a section of rank " << parcel.from << ", kind "
                << static_cast<int>(parcel.header.kind) << ", step " << parcel.header.step
                << ", first " << parcel.header.first << ", count " << parcel.header.count;
}

bool ExchangeWorld::inject(const Parcel& parcel) {
  return ranks_[parcel.to]->exchange->on_section(parcel.from, parcel.section());
}

size_t ExchangeWorld::under_way_to(uint32_t rank) const {
  size_t count = 0;
  for (uint32_t from = 0; from < size(); ++from) count += links_[from * size() + rank].size();
  return count;
}

// ---- the ranks

// One look of a rank at what it has to do; false: nothing is left for it now.
bool ExchangeWorld::work(uint32_t rank) {
  Rank& each = *ranks_[rank];
  bool moved = each.complete_sends();
  while (ComputeJob* job = each.compute.take_done()) {
    job->done(*job);
    moved = true;
  }
  for (const uint64_t step : {each.at(0).ending, each.at(1).ending}) {
    if (step != 0) each.tell_end(step);
  }
  for (const uint64_t step : {0, 1}) {
    ArrivingRows& arriving = each.at(step).arriving;
    if (!arriving.left()) continue;
    arriving.bring_some(random_);
    moved = true;
  }
  moved |= each.outbox.pump();
  moved |= each.outbox.lending().read();
  return moved || !each.outbox.idle();
}

void ExchangeWorld::wander(uint64_t actions) {
  for (uint64_t i = 0; i < actions; ++i) {
    if (random_.chance(kWorkPercent) || !deliver_one()) {
      work(static_cast<uint32_t>(random_.below(size())));
    }
  }
}

void ExchangeWorld::run() {
  for (bool moved = true; moved;) {
    moved = false;
    while (deliver_one()) {
      moved = true;
      if (random_.chance(kWorkPercent)) work(static_cast<uint32_t>(random_.below(size())));
    }
    for (uint32_t rank = 0; rank < size(); ++rank) moved |= work(rank);
  }
}

}  // namespace parallax::exchange_conformance
