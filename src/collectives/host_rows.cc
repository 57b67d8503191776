// SPDX-License-Identifier: Apache-2.0
// From a rank's slice to the sum of its host. See host_rows.h.
#include "collectives/host_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/prefetch.h"
#include "collectives/round_names.h"

namespace parallax {

namespace {

Send rows_of_rank(const ExchangeOptions& options, uint64_t step, uint8_t flags) {
  Send send;
  send.header = {.kind = SectionKind::kLocalReduce,
                 .encoding = Encoding::kRows,
                 .flags = flags,
                 .tag = options.variable,
                 .step = step};
  name_round(options.rounds, &send.header);
  send.priority = options.priority;
  return send;
}

}  // namespace

HostRows::HostRows(const Columns& columns, const Partition& partition, Outbox& outbox,
                   Compute& compute, const ExchangeOptions& options, Owners owners, User& user)
    : columns_(columns),
      partition_(partition),
      outbox_(outbox),
      compute_(compute),
      options_(options),
      owners_(owners),
      user_(user),
      row_bytes_(size_t{bytes_of_sum(options.sum)} * partition.row_elements()),
      notes_(columns, partition, outbox.lending(), options_, row_bytes_),
      item_bytes_(RowCoalescer::block_bytes(1, row_bytes_)) {
  for (uint32_t column = 0; column < columns.count(); ++column) {
    const std::vector<uint32_t>& owners_of_column = columns.owners(column);
    if (std::any_of(owners_of_column.begin(), owners_of_column.end(),
                    [this](uint32_t owner) { return active(owner); })) {
      active_columns_.push_back(column);
      leads_ |= columns.is_leader() && column == columns.my_column();
    }
  }
  is_alone_ = leads_ && columns.locals().size() == 1 && columns.host_count() > 1;
}

HostRows::~HostRows() { outbox_.lending().forget(this); }

bool HostRows::active(uint32_t owner) const {
  return owners_ == Owners::kRanges ? partition_.range_of(owner).count > 0
                                    : partition_.rows_owned(owner) > 0;
}

std::vector<uint32_t> HostRows::owners_beside_leader(uint32_t column) const {
  std::vector<uint32_t> owners;
  for (const uint32_t local : columns_.locals()) {
    const bool leader = local == columns_.leader(columns_.host(), column);
    if (!leader && columns_.column_of(local) == column && active(local)) owners.push_back(local);
  }
  return owners;
}

uint64_t HostRows::column_rows() const {
  uint64_t rows = 0;
  for (const uint32_t owner : columns_.owners(columns_.my_column())) {
    rows += owners_ == Owners::kRanges
                ? partition_.range_of(owner).count / partition_.row_elements()
                : partition_.rows_owned(owner);
  }
  return rows;
}

uint64_t HostRows::block_bytes(const Partition& partition, uint64_t rows_max, SumType sum) {
  return RowCoalescer::block_bytes(RowCoalescer::distinct_max(rows_max, partition),
                                   partition.row_elements() * bytes_of_sum(sum));
}

void HostRows::lay_out(Arena& arena) {
  const uint64_t rows_max = options_.rows_max;
  // The caller's rows carry no count.
  const uint64_t slice_elements = partition_.row_elements() - (options_.counted ? 1 : 0);
  coalescer_.lay_out(arena, {.rows_max = rows_max,
                             .groups = columns_.count(),
                             .row_elements = static_cast<uint32_t>(slice_elements),
                             .sum = options_.sum,
                             .counted = options_.counted,
                             .pieces = true,
                             .scratch = compute_.at_once() ? options_.scratch : nullptr});
  for (uint64_t parity = 0; parity < step_buffers_.size(); ++parity) {
    StepBuffer& buffer = step_buffers_[parity];
    buffer.host_rows = this;
    buffer.notes = arena.take<StagedNote>(columns_.count());
    buffer.block = {};
    if (options_.staging != nullptr) {
      buffer.block = options_.staging->block(options_.variable, parity);
    }
    const size_t needed_bytes = block_bytes(partition_, rows_max, options_.sum);
    PARALLAX_CHECK(buffer.block.empty() || buffer.block.size() >= needed_bytes);
    if (buffer.block.empty()) buffer.block = arena.take<std::byte>(needed_bytes);
    if (!leads_) continue;
    const auto locals = static_cast<uint32_t>(columns_.locals().size());
    buffer.sources = arena.take<Source>(locals);
    buffer.sum.lay_out(arena, {.sources = locals,
                               .rows_max = std::min(column_rows(), rows_max * locals),
                               .source_rows_max = std::min(column_rows(), rows_max),
                               .row_elements = static_cast<uint32_t>(partition_.row_elements()),
                               .ordered = options_.ordered,
                               .rows_stay = options_.rows_stay,
                               .scratch = options_.scratch,
                               .sum = options_.sum});
  }
}

void HostRows::open(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  buffer.step = step;
  buffer.contributed = buffer.in_place = buffer.held = false;
  buffer.arrival = {};
  if (!leads_) return;
  buffer.sum.clear();
  buffer.given_rows = 0;
  std::fill(buffer.sources.begin(), buffer.sources.end(), Source{});
  buffer.missing = static_cast<uint32_t>(buffer.sources.size());
  buffer.joining = buffer.joined = 0;
}

// ---- a rank's own slice

void HostRows::prefetch(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  prefetch_bytes(this, reinterpret_cast<const std::byte*>(&step_buffers_) -
                           reinterpret_cast<const std::byte*>(this));
  prefetch_object(&buffer);
}

void HostRows::contribute(uint64_t step, const Contribution& slice, uint32_t* pending) {
  if (slice.nothing) {
    const Send nothing = rows_of_rank(options_, step, kSectionLast);
    for (const uint32_t column : active_columns_) {
      const uint32_t leader = columns_.leader(columns_.host(), column);
      if (leader != columns_.rank()) outbox_.add(leader, nothing);
    }
    end(columns_.rank(), step);
    if (leads_ && sum(step).complete()) user_.on_host_sum(step);
    return;
  }
  StepBuffer& buffer = step_buffer(step);
  buffer.first = slice.rows;
  buffer.more = slice.more;
  buffer.distinct = slice.distinct;
  // A job of the pool would read it while the next pull changes it.
  const bool found = slice.coalesced != nullptr && slice.more.count == 0 && compute_.at_once() &&
                     slice.coalesced->has(slice.rows);
  buffer.found = found ? slice.coalesced : nullptr;
  buffer.pending = pending;
  buffer.coalescing = true;
  ++*pending;  // of the compute job, or all of them
  buffer.job.context = &buffer;
  if (slice.arriving != nullptr) return start_arriving(buffer, *slice.arriving);
  buffer.job.cost_bytes = (slice.rows.count + slice.more.count + slice.distinct.count) * row_bytes_;
  buffer.in_place = buffer.held = slice.may_stay && slice.more.count == 0 && compute_.at_once() &&
                                  coalescer_.may_stay(slice.rows.count) &&
                                  notes_.reads_slice(slice.rows, active_columns_);
  buffer.job.run = [](ComputeJob& job) {
    StepBuffer& coalescing = *static_cast<StepBuffer*>(job.context);
    coalescing.host_rows->coalesce(coalescing);
  };
  buffer.job.done = [](ComputeJob& job) {
    StepBuffer& coalesced = *static_cast<StepBuffer*>(job.context);
    coalesced.host_rows->give_rows(coalesced);
  };
  if (!compute_.at_once()) return compute_.submit(buffer.job);
  try {
    coalesce(buffer);
  } catch (...) {
    // The job ends with it; nothing waits for what does not come.
    buffer.coalescing = false;
    --*pending;
    throw;
  }
  if (!buffer.held) return give_rows(buffer);
  buffer.coalescing = false;
  --*pending;
}

void HostRows::GroupByColumn::find(const uint32_t* row_keys, uint32_t count,
                                   uint32_t* columns) const {
  if (rows.owners_ == Owners::kHashed) {
    return rows.partition_.look_up_owners(
        row_keys, count,
        [column_of = rows.columns_.columns_of_owners()](uint32_t owner) {
          return column_of[owner];
        },
        columns);
  }
  for (uint32_t i = 0; i < count; ++i) columns[i] = rows.column_of_row_key(row_keys[i]);
}

// A job, or what is not left to one.
void HostRows::coalesce(StepBuffer& buffer) {
  const GroupByColumn column_of = {*this};
  std::byte* const block = buffer.block.data();
  if (buffer.distinct.row_keys != nullptr) {
    coalescer_.take(buffer.distinct, column_of, block);
  } else if (buffer.in_place) {
    coalescer_.coalesce_in_place(partition_, buffer.first, buffer.found, column_of, block);
  } else if (buffer.found != nullptr) {
    coalescer_.coalesce_found(*buffer.found, buffer.first, column_of, block);
  } else {
    coalescer_.coalesce(partition_, buffer.first, buffer.more, column_of, block);
  }
}

bool HostRows::settle(uint64_t step, bool stay) {
  StepBuffer& buffer = step_buffer(step);
  if (!buffer.held) return false;
  buffer.held = false;
  // Who had it mapped may be gone since: nobody is told of what he cannot read.
  buffer.in_place = stay && notes_.reads_slice(buffer.first, active_columns_);
  buffer.coalescing = true;
  ++*buffer.pending;
  if (buffer.in_place) {
    give_rows(buffer);
    return true;
  }
  buffer.found = nullptr;  // it may be that of another pull by now
  compute_.submit(buffer.job);
  return false;
}

void HostRows::give_rows(StepBuffer& buffer) {
  if (!is_alone_ || !options_.rows_stay) {
    for (const uint32_t column : active_columns_) {
      if (columns_.leader(columns_.host(), column) != columns_.rank()) send_rows(buffer, column);
    }
    buffer.coalescing = false;
    --*buffer.pending;
    if (leads_) give_to_own_sum(buffer);
    return;
  }
  // Its rows are its host's, each of them once, and stay in its block.
  const uint32_t count = coalescer_.item_count();
  PARALLAX_CHECK(buffer.sum.spend(0, count));
  buffer.given_rows = count;
  std::array<const std::byte*, kRowsTogether> rows;
  for (uint32_t first = 0; first < count; first += kRowsTogether) {
    const uint32_t together = std::min(count - first, kRowsTogether);
    for (uint32_t i = 0; i < together; ++i) {
      rows[i] = buffer.block.data() + coalescer_.order()[first + i] * row_bytes_;
    }
    buffer.sum.join_distinct({coalescer_.row_keys() + first, together}, rows.data());
  }
  end_alone(buffer);
}

void HostRows::end_alone(StepBuffer& buffer) {
  buffer.coalescing = false;
  buffer.contributed = true;
  --*buffer.pending;
  buffer.came(0, Came::kAll);
  buffer.sum.end(0);
  user_.on_host_sum(buffer.step);
}

// Or says where they lie. What the outbox borrows stays as it is until it is packed; the rows of
// the block, until the step is over everywhere.
void HostRows::send_rows(StepBuffer& buffer, uint32_t column) {
  const uint32_t leader = columns_.leader(columns_.host(), column);
  const uint32_t first = coalescer_.group_first(column);
  StagedNote& note = buffer.notes[column];
  note = notes_.note_to(leader, coalescer_, column, buffer.step, buffer.first.values.rows,
                        buffer.rows_in_slice());
  Send send = rows_of_rank(options_, buffer.step, kSectionLast | kSectionContributed);
  if (note.block.buffer != 0) {
    send.header.encoding = Encoding::kBytes;
    send.bytes = reinterpret_cast<const std::byte*>(&note);
    send.count = sizeof note;
    send.whole = true;
  } else {
    PARALLAX_CHECK(!buffer.in_place);
    send.format = {.element_bytes = bytes_of_sum(options_.sum),
                   .source_bytes = bytes_of_sum(options_.sum)};
    send.rows = {.row_keys = coalescer_.row_keys() + first,
                 .values = buffer.block.data(),
                 .order = coalescer_.order() + first,
                 .row_elements = static_cast<uint32_t>(partition_.row_elements())};
    send.count = note.count;
  }
  send.pending = buffer.pending;
  ++*buffer.pending;
  outbox_.add(leader, send);
}

// Behind what others wait for.
void HostRows::give_to_own_sum(StepBuffer& buffer) {
  const uint32_t source = columns_.local();
  const StagedNote note =
      notes_.note_to(columns_.rank(), coalescer_, columns_.my_column(), buffer.step,
                     buffer.first.values.rows, buffer.rows_in_slice());
  PARALLAX_CHECK(buffer.sources[source].came == Came::kNothing && buffer.take_note(source, note));
  buffer.contributed = true;
  join_if_all_came(buffer);
  if (buffer.sum.complete()) user_.on_host_sum(buffer.step);
}

// ---- what the ranks of the host give

bool HostRows::on_section(uint32_t from, const Section& section) {
  if (!leads_ || columns_.host_of(from) != columns_.host()) return false;
  // It gives what it has without a message.
  if (from == columns_.rank()) return false;
  StepBuffer& buffer = step_buffer(section.header.step);
  if (buffer.sources[columns_.local_of(from)].came != Came::kNothing) return false;
  const bool note = section.header.encoding == Encoding::kBytes;
  if (!(note ? on_note(from, buffer, section) : on_rows(from, buffer, section))) return false;
  join_if_all_came(buffer);
  return true;
}

bool HostRows::on_note(uint32_t from, StepBuffer& buffer, const Section& section) {
  StagedNote note;
  if (section.payload.size() != sizeof note || section.header.count != sizeof note ||
      (section.header.flags & kSectionLast) == 0) {
    return false;
  }
  std::memcpy(&note, section.payload.data(), sizeof note);
  if (!notes_.fits(from, note) || !buffer.take_note(columns_.local_of(from), note)) return false;
  buffer.contributed |= (section.header.flags & kSectionContributed) != 0;
  return true;
}

bool HostRows::on_rows(uint32_t from, StepBuffer& buffer, const Section& section) {
  const SectionHeader& header = section.header;
  if (header.encoding != Encoding::kRows) return false;
  const auto mine = [this](uint32_t row_key) {
    return column_of_row_key(row_key) == columns_.my_column();
  };
  if (!row_keys_fit(partition_, section, mine)) return false;
  const uint32_t source = columns_.local_of(from);
  if (!buffer.sum.add(source, header.count, section.payload)) return false;
  buffer.given_rows += header.count;
  if ((header.flags & kSectionLast) == 0) return true;
  buffer.contributed |= (header.flags & kSectionContributed) != 0;
  buffer.came(source, Came::kAll);
  buffer.sum.end(source);
  return true;
}

void HostRows::end(uint32_t from, uint64_t step) {
  if (!leads_) return;
  StepBuffer& buffer = step_buffer(step);
  const uint32_t source = columns_.local_of(from);
  if (buffer.sources[source].came != Came::kNothing) return;
  buffer.came(source, Came::kAll);
  buffer.sum.end(source);
  join_if_all_came(buffer);
}

// ---- rows that are read where they lie

void HostRows::join_if_all_came(StepBuffer& buffer) {
  if (buffer.missing > 0 || buffer.sum.complete()) return;
  uint64_t rows = 0;
  for (const Source& source : buffer.sources) {
    if (source.came == Came::kNote) rows += source.note.count;
  }
  uint64_t left_bytes = kAtOnceBytes;
  // Much is left to turns as a whole: begun here, it would have lost the scratch by the next.
  if (rows * item_bytes_ > left_bytes || join(buffer, &left_bytes) == Turn::kMore) {
    outbox_.lending().wake(this, options_.priority);
  }
}

// The older of both steps first.
bool HostRows::read_lent() {
  uint64_t left_bytes = kTurnBytes;
  bool more = false;
  const bool swapped = step_buffers_[0].step > step_buffers_[1].step;
  for (const size_t i : {swapped ? 1 : 0, swapped ? 0 : 1}) {
    StepBuffer& buffer = step_buffers_[i];
    if (buffer.sum.complete()) continue;
    if (is_alone_ && buffer.joined < buffer.arrival.ready) {
      more |= join_ready(buffer, &left_bytes) == Turn::kMore;
    }
    if (buffer.missing > 0 || buffer.sum.complete()) continue;
    const Turn turn = join(buffer, &left_bytes);
    if (turn == Turn::kDone) user_.on_host_sum(buffer.step);
    more |= turn == Turn::kMore;
  }
  return more;
}

HostRows::Turn HostRows::join(StepBuffer& buffer, uint64_t* left_bytes) {
  // Rows of turns before this one lie where they lay, and are added to: all of them must be there
  // still. Nothing is unmapped within a turn.
  const bool stay = options_.rows_stay && options_.staging != nullptr;
  if (stay && !options_.staging->readable(buffer.step)) return Turn::kGone;
  for (; buffer.joining < buffer.sources.size(); ++buffer.joining, buffer.joined = 0) {
    if (buffer.sources[buffer.joining].came != Came::kNote) continue;
    const Turn turn = join_source(buffer, left_bytes);
    if (turn != Turn::kDone) return turn;
    buffer.sum.end(buffer.joining);
  }
  return Turn::kDone;
}

HostRows::Turn HostRows::join_source(StepBuffer& buffer, uint64_t* left_bytes) {
  const StagedNote& note = buffer.sources[buffer.joining].note;
  if (note.count == 0) return Turn::kDone;
  const uint32_t rank = columns_.locals()[buffer.joining];
  const bool own = rank == columns_.rank();
  Lending& lending = outbox_.lending();
  StagedRows there = {.block = buffer.block.data(), .slice = buffer.first.values.rows};
  // Its loss is about to be told.
  if (!own && !notes_.find(rank, note, buffer.step, &there)) return Turn::kGone;
  while (buffer.joined < note.count) {
    if (*left_bytes == 0) return Turn::kMore;
    const auto fit =
        static_cast<uint32_t>(std::min<uint64_t>(*left_bytes / item_bytes_, kRowsTogether));
    const uint32_t count = std::min(note.count - buffer.joined, std::max(fit, 1u));
    if (!join_items(buffer, there, count)) {
      lending.misfit(rank);
      return Turn::kGone;
    }
    buffer.joined += count;
    if (!own) lending.count_read(count * item_bytes_);
    *left_bytes -= std::min(*left_bytes, count * item_bytes_);
  }
  return Turn::kDone;
}

// A block of this rank's own is looked at, too: before Linux 5.1 others that have mapped it may
// write there.
bool HostRows::join_items(StepBuffer& buffer, const StagedRows& there, uint32_t count) {
  const auto belong = [this](const uint32_t* some, uint32_t of_them) {
    std::array<uint32_t, kRowsTogether> columns;
    GroupByColumn{*this}.find(some, of_them, columns.data());
    return std::all_of(columns.begin(), columns.begin() + of_them,
                       [mine = columns_.my_column()](uint32_t column) { return column == mine; });
  };
  std::array<uint32_t, kRowsTogether> row_keys;
  std::array<const std::byte*, kRowsTogether> rows;
  return notes_.read(buffer.sources[buffer.joining].note, there, buffer.joined, count, belong,
                     row_keys.data(), rows.data()) &&
         buffer.sum.join(std::span(row_keys).first(count), rows.data());
}

std::vector<uint32_t> HostRows::missing(uint64_t step) const {
  std::vector<uint32_t> missing;
  if (!leads_) return missing;
  for (const uint32_t local : columns_.locals()) {
    const Source& source = step_buffer(step).sources[columns_.local_of(local)];
    if (source.came == Came::kNothing) missing.push_back(local);
  }
  return missing;
}

}  // namespace parallax
