// SPDX-License-Identifier: Apache-2.0
// Rounds of an exchange of rows. See chunked_rows.h.
#include "collectives/chunked_rows.h"

#include <algorithm>
#include <cstring>

#include "aggregate/accumulator.h"
#include "base/check.h"
#include "base/number.h"

namespace parallax {

ExchangeOptions ChunkedRows::options_of_chunk(ExchangeOptions options, uint64_t chunk_rows) {
  options.chunk_rows = 0;
  options.rows_max = std::min(options.rows_max, chunk_rows);
  options.rows_stay = false;
  return options;
}

namespace {

ExchangeOptions with_rounds(ExchangeOptions options, const RoundNames* names) {
  options.rounds = names;
  return options;
}

}  // namespace

ChunkedRows::ChunkedRows(const Columns& columns, const Partition& partition, Outbox& outbox,
                         Compute& compute, const ExchangeOptions& options)
    : columns_(columns),
      partition_(partition),
      lending_(outbox.lending()),
      compute_(compute),
      options_(options),
      row_bytes_(size_t{bytes_of_sum(options.sum)} * partition.row_elements()),
      divisor_(static_cast<uint32_t>(options.chunk_rows)),
      chunk_count_(static_cast<uint32_t>((partition.rows() - 1) / options.chunk_rows + 1)),
      chunk_partition_(partition.of_rows(options.chunk_rows)),
      rounds_(
          make_whole_rows(columns, chunk_partition_, outbox, compute,
                          with_rounds(options_of_chunk(options, options.chunk_rows), &names_))) {
  PARALLAX_CHECK(options.held && options.method != Method::kPushPull && chunk_count_ > 1);
  rounds_->set_runner(this);
}

ChunkedRows::~ChunkedRows() { lending_.forget(this); }

// ---- memory

size_t ChunkedRows::needed_bytes() {
  Arena measure;
  lay_out(measure);
  return measure.used_bytes();
}

Status ChunkedRows::reserve() {
  PARALLAX_RETURN_IF_ERROR(arena_.reserve(needed_bytes()));
  lay_out(arena_);
  PARALLAX_RETURN_IF_ERROR(rounds_->reserve_scratch());
  return options_.scratch == nullptr ? Status() : options_.scratch->reserve(options_.rows_max);
}

void ChunkedRows::lay_out(Arena& arena) {
  const uint64_t rows_max = options_.rows_max;
  // The caller's rows carry no count.
  const uint64_t slice_elements = partition_.row_elements() - (options_.counted ? 1 : 0);
  coalescer_.lay_out(arena, {.rows_max = rows_max,
                             .groups = chunk_count_,
                             .row_elements = static_cast<uint32_t>(slice_elements),
                             .sum = options_.sum,
                             .counted = options_.counted,
                             .scratch = compute_.at_once() ? options_.scratch : nullptr});
  const uint64_t own_rows = RowCoalescer::distinct_max(rows_max, partition_);
  const uint64_t rows_in_world = std::min(partition_.rows(), rows_max * columns_.world());
  for (StepBuffer& buffer : step_buffers_) {
    buffer.exchange = this;
    buffer.block = arena.take<std::byte>(RowCoalescer::block_bytes(own_rows, row_bytes_));
    buffer.chunk_first = arena.take<uint32_t>(chunk_count_ + 1);
    buffer.values = arena.take<std::byte>(rows_in_world * row_bytes_);
    buffer.row_keys = arena.take<uint32_t>(rows_in_world);
  }
  rounds_->lay_out(arena);
}

// ---- this rank's slice

void ChunkedRows::open(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  buffer.step = step;
  buffer.gives = Gives::kUnknown;
  buffer.row_count = 0;
  buffer.contributed = buffer.over = false;
  buffer.counts = {};
  if (round_ != 0) return;
  round_ = 1;
  step_ = step;
  rounds_->open(round_);
  rounds_->open(round_ + 1);
}

void ChunkedRows::contribute(uint64_t step, const Contribution& slice, uint32_t* pending) {
  PARALLAX_CHECK(slice.arriving == nullptr);
  StepBuffer& buffer = step_buffer(step);
  buffer.gives = Gives::kRows;
  buffer.first = slice.rows;
  buffer.more = slice.more;
  buffer.pending = pending;
  buffer.coalescing = true;
  ++*pending;  // of the job
  buffer.job.context = &buffer;
  buffer.job.cost_bytes = (slice.rows.count + slice.more.count) * row_bytes_;
  buffer.job.run = [](ComputeJob& job) {
    StepBuffer& coalescing = *static_cast<StepBuffer*>(job.context);
    coalescing.exchange->coalesce(coalescing);
  };
  buffer.job.done = [](ComputeJob& job) {
    StepBuffer& coalesced = *static_cast<StepBuffer*>(job.context);
    coalesced.coalescing = false;
    --*coalesced.pending;
    coalesced.exchange->take_part();
  };
  compute_.submit(buffer.job);
}

// Row keys then count from the first of their chunk.
void ChunkedRows::coalesce(StepBuffer& buffer) {
  coalescer_.coalesce(
      partition_, buffer.first, buffer.more,
      [this](uint32_t row_key) { return divisor_.quotient(row_key); }, buffer.block.data());
  buffer.block_rows = coalescer_.item_count();
  auto* const row_keys =
      reinterpret_cast<uint32_t*>(buffer.block.data() + buffer.block_rows * row_bytes_);
  for (uint32_t chunk = 0; chunk < chunk_count_; ++chunk) {
    const uint32_t first = coalescer_.group_first(chunk);
    buffer.chunk_first[chunk] = first;
    const uint32_t end = first + coalescer_.group_count(chunk);
    for (uint32_t item = first; item < end; ++item) row_keys[item] -= base_of(chunk);
  }
  buffer.chunk_first[chunk_count_] = buffer.block_rows;
}

// Of others their words of each round tell.
void ChunkedRows::end(uint32_t from, uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  if (from != columns_.rank() || buffer.gives != Gives::kUnknown) return;
  buffer.gives = Gives::kNothing;
  take_part();
}

// In the round under way, if it is known what with.
void ChunkedRows::take_part() {
  StepBuffer& buffer = step_buffer(step_);
  const bool ready = buffer.step == step_ && buffer.gives != Gives::kUnknown && !buffer.coalescing;
  if (takes_part_ || !ready) return;
  takes_part_ = true;
  names_.set(round_, step_, chunk_);
  if (buffer.gives == Gives::kNothing) {
    return rounds_->contribute(round_, {.nothing = true}, &buffer.round_pending);
  }
  const std::byte* const rows = buffer.block.data();
  const auto* const row_keys =
      reinterpret_cast<const uint32_t*>(rows + buffer.block_rows * row_bytes_);
  const uint32_t first = buffer.chunk_first[chunk_];
  const DistinctRows distinct = {.row_keys = row_keys + first,
                                 .order = row_keys + buffer.block_rows + first,
                                 .rows = rows,
                                 .count = buffer.chunk_first[chunk_ + 1] - first};
  rounds_->contribute(round_, {.distinct = distinct}, &buffer.round_pending);
}

// ---- rounds

bool ChunkedRows::is_over(uint64_t round) const {
  const ExchangeState state = rounds_->state(round);
  return takes_part_ && state.contributed && state.reduced && state.delivered;
}

// The round that a section is of: the one under way, or the next, which is of the next chunk, or of
// the next step, where this was the last chunk, or is the first, and all there is.
bool ChunkedRows::find_round(const SectionHeader& header, uint64_t* round, uint32_t* chunk) const {
  const uint8_t bits = RoundNames::chunk_bits_of(header.part);
  const auto is = [&](uint64_t step, uint32_t of) {
    *chunk = of;
    return header.step == step && bits == RoundNames::bits_of(of);
  };
  *round = round_;
  if (is(step_, chunk_)) return true;
  *round = round_ + 1;
  if (chunk_ + 1 < chunk_count_ && is(step_, chunk_ + 1)) return true;
  return (chunk_ == 0 || chunk_ + 1 == chunk_count_) && is(step_ + 1, 0);
}

namespace {

// Beyond so many rows of a chunk, or elements.
bool has_rows_beyond(const Section& section, uint64_t rows) {
  const uint32_t count = section.header.count;
  if (section.payload.size() < sizeof(uint32_t) * count) return true;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t row_key;
    // By memcpy: messages promise no alignment.
    std::memcpy(&row_key, section.payload.data() + i * sizeof row_key, sizeof row_key);
    if (row_key >= rows) return true;
  }
  return false;
}

// What is of another size the exchange refuses; what is received in place is looked at there.
bool has_elements_beyond(const Section& section, uint64_t elements, SumType sum) {
  const SectionHeader& header = section.header;
  if (section.payload.size() != uint64_t{header.count} * bytes_of_sum(sum)) return false;
  const uint64_t inside = header.first < elements ? elements - header.first : 0;
  return with_sum_type(sum, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (uint64_t i = inside; i < header.count; ++i) {
      T element;
      std::memcpy(&element, section.payload.data() + i * sizeof element, sizeof element);
      if (!is_no_row(&element)) return true;
    }
    return false;
  });
}

// As the exchange of the rounds is to see it.
Section section_of(const Section& section, uint64_t round) {
  Section of_round = section;
  of_round.header.step = round;
  of_round.header.part = RoundNames::stage_of(section.header.part);
  return of_round;
}

}  // namespace

// The last chunk may have fewer rows than the exchange of a round knows of.
bool ChunkedRows::fits_chunk(const Section& section, uint32_t chunk) const {
  if (chunk + 1 < chunk_count_) return true;
  const uint64_t rows = partition_.rows() - base_of(chunk);
  if (section.header.encoding == Encoding::kRows) return !has_rows_beyond(section, rows);
  return section.header.encoding != Encoding::kDense ||
         !has_elements_beyond(section, rows * partition_.row_elements(), options_.sum);
}

bool ChunkedRows::on_section(uint32_t from, const Section& section) {
  uint64_t round = 0;
  uint32_t chunk = 0;
  // An owner says that rows have arrived even before it has its part in that round.
  if (!find_round(section.header, &round, &chunk) || !fits_chunk(section, chunk) ||
      !names_.hear(round, section.header.step, chunk)) {
    return false;
  }
  if (!rounds_->on_section(from, section_of(section, round))) return false;
  return !is_over(round_) || take_round();
}

std::byte* ChunkedRows::place_of(uint32_t from, const Section& section) {
  uint64_t round = 0;
  uint32_t chunk = 0;
  if (!find_round(section.header, &round, &chunk)) return nullptr;
  return rounds_->place_of(from, section_of(section, round));
}

// Within a section, or in the midst of what the exchange does.
void ChunkedRows::on_moved() {
  if (is_over(round_)) lending_.wake(this, options_.priority);
}

bool ChunkedRows::read_lent() {
  if (!is_over(round_)) return false;
  if (!take_round()) {
    // Whose rows they are is not known any more.
    lending_.misfit(columns_.rank());
    return false;
  }
  return is_over(round_);
}

// What the round has delivered. False: more rows than ranks may give, or some that are not there.
bool ChunkedRows::take_round() {
  StepBuffer& buffer = step_buffer(step_);
  const ReducedGradient round = rounds_->whole(round_);
  if (!(round.rows ? take_rows(round, buffer) : take_elements(round, buffer))) return false;
  buffer.contributed |= round.contributed;
  const ExchangeCounts counts = rounds_->counts(round_);
  buffer.counts.touched_rows += counts.touched_rows;
  buffer.counts.given_rows += counts.given_rows;
  buffer.counts.union_rows += counts.union_rows;
  next_round();
  return true;
}

bool ChunkedRows::take_rows(const ReducedGradient& round, StepBuffer& buffer) const {
  if (round.row_count > buffer.row_keys.size() - buffer.row_count) return false;
  const uint32_t base = base_of(chunk_);
  for (uint32_t i = 0; i < round.row_count; ++i) {
    const uint64_t row_key = uint64_t{base} + round.row_keys[i];
    if (row_key >= partition_.rows()) return false;
    buffer.row_keys[buffer.row_count + i] = static_cast<uint32_t>(row_key);
  }
  if (round.row_count > 0) {
    std::memcpy(&buffer.values[buffer.row_count * row_bytes_], round.values,
                round.row_count * row_bytes_);
  }
  buffer.row_count += round.row_count;
  return true;
}

// Of rows made dense those that somebody gave.
bool ChunkedRows::take_elements(const ReducedGradient& round, StepBuffer& buffer) const {
  if (!round.has_values) return true;
  const uint32_t base = base_of(chunk_);
  return with_sum_type(options_.sum, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (uint32_t i = 0; i < divisor_.value(); ++i) {
      const std::byte* const row = round.values + i * row_bytes_;
      if (is_no_row(reinterpret_cast<const T*>(row))) continue;
      const uint64_t row_key = uint64_t{base} + i;
      if (row_key >= partition_.rows() || buffer.row_count == buffer.row_keys.size()) return false;
      buffer.row_keys[buffer.row_count] = static_cast<uint32_t>(row_key);
      std::memcpy(&buffer.values[buffer.row_count * row_bytes_], row, row_bytes_);
      ++buffer.row_count;
    }
    return true;
  });
}

// The round before the one that is over was over everywhere before that began: it is the next's
// memory that this takes over.
void ChunkedRows::next_round() {
  StepBuffer& buffer = step_buffer(step_);
  ++round_;
  takes_part_ = false;
  rounds_->open(round_ + 1);
  ++chunk_;
  if (chunk_ == chunk_count_ || !buffer.contributed) {
    buffer.over = true;
    ++step_;
    chunk_ = 0;
  }
  take_part();
}

// ---- results

ExchangeState ChunkedRows::state(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  return {.contributed = !buffer.coalescing, .reduced = buffer.over, .delivered = buffer.over};
}

// Of a later step, who keeps the one before it.
MissingRanks ChunkedRows::missing(uint64_t step) const {
  return step_buffer(step).over ? MissingRanks() : rounds_->missing(round_);
}

ReducedGradient ChunkedRows::owned(uint64_t step) const {
  ReducedGradient part;
  part.rows = part.by_rows = true;
  part.contributed = step_buffer(step).contributed;
  return part;
}

ReducedGradient ChunkedRows::whole(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  ReducedGradient all;
  all.rows = all.by_rows = true;
  all.counted = options_.counted;
  all.sum = options_.sum;
  all.row_elements = partition_.row_elements();
  all.contributed = buffer.contributed;
  all.row_count = buffer.row_count;
  all.has_values = all.row_count > 0;
  all.row_keys = buffer.row_keys.data();
  all.values = buffer.values.data();
  return all;
}

}  // namespace parallax
