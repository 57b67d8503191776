// SPDX-License-Identifier: Apache-2.0
// From a rank's slice to the sum of its host. See host_rows.h.
#include "collectives/host_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/prefetch.h"
#include "collectives/round_names.h"

namespace parallax {

namespace {

// In front of the number of a row among those that are sent.
constexpr uint32_t kColumnShift = 32;

Send rows_of_column(const ExchangeOptions& options, uint64_t step, uint64_t column, uint8_t flags) {
  Send send;
  send.header = {.kind = SectionKind::kLocalReduce,
                 .encoding = Encoding::kRows,
                 .flags = flags,
                 .tag = options.variable,
                 .step = step,
                 .first = column << kColumnShift};
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
      user_(user),
      row_bytes_(size_t{bytes_of_sum(options.sum)} * partition.row_elements()),
      row_columns_(columns, partition, owners),
      notes_(columns, partition, outbox.lending(), options_, row_bytes_),
      variable_{.columns = columns,
                .partition = partition,
                .row_columns = row_columns_,
                .options = options_,
                .notes = notes_,
                .lending = outbox.lending(),
                .row_bytes = row_bytes_,
                .item_bytes = RowCoalescer::block_bytes(1, row_bytes_)},
      domains_(options.ordered ? nullptr : options.domains) {
  for (uint32_t column = 0; column < columns.count(); ++column) {
    const std::vector<uint32_t>& owners_of_column = columns.owners(column);
    if (std::any_of(owners_of_column.begin(), owners_of_column.end(),
                    [this](uint32_t owner) { return row_columns_.active(owner); })) {
      active_columns_.push_back(column);
      readers_.push_back(taker(column));
      leads_ |= columns.is_leader() && column == columns.my_column();
    }
  }
  std::sort(readers_.begin(), readers_.end());
  readers_.erase(std::unique(readers_.begin(), readers_.end()), readers_.end());
  std::erase(readers_, columns.rank());
  is_alone_ = leads_ && columns.locals().size() == 1 && columns.host_count() > 1;
}

HostRows::~HostRows() { outbox_.lending().forget(this); }

std::vector<uint32_t> HostRows::owners_beside_leader(uint32_t column) const {
  std::vector<uint32_t> owners;
  for (const uint32_t local : columns_.locals()) {
    const bool leader = local == columns_.leader(columns_.host(), column);
    if (!leader && columns_.column_of(local) == column && row_columns_.active(local))
      owners.push_back(local);
  }
  return owners;
}

uint64_t HostRows::given_rows(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  uint64_t rows = buffer.own.given_rows();
  for (const ColumnSum& sum : buffer.of_domain) rows += sum.given_rows();
  return rows;
}

uint64_t HostRows::sum_rows_max() const {
  const StepBuffer& buffer = step_buffers_[0];
  uint64_t rows = leads_ ? buffer.own.rows().rows_max() : 0;
  for (const ColumnSum& sum : buffer.of_domain) rows = std::max(rows, sum.rows().rows_max());
  return rows;
}

bool HostRows::summed(uint64_t step) const {
  const auto& sums = step_buffer(step).of_domain;
  return std::all_of(sums.begin(), sums.end(), [](const ColumnSum& sum) { return sum.complete(); });
}

MissingRanks HostRows::missing(uint64_t step) const {
  MissingRanks missing;
  const StepBuffer& buffer = step_buffer(step);
  if (leads_) buffer.own.add_missing(&missing);
  for (const ColumnSum& sum : buffer.of_domain) sum.add_missing(&missing);
  sort_and_unite(missing.to_give);
  if (!missing.to_give.empty()) missing.to_return.clear();
  return missing;
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
    if (leads_) {
      buffer.own.lay_out(arena, variable_,
                         {.column = columns_.my_column(),
                          .givers = domains_ == nullptr ? nullptr : &domains_->to_leader(),
                          .rows_stay = options_.rows_stay});
    }
    if (domains_ == nullptr) continue;
    buffer.of_domain.clear();
    for (const uint32_t column : active_columns_) {
      const std::vector<uint32_t>& summed = domains_->summed();
      if (!std::binary_search(summed.begin(), summed.end(), column)) continue;
      buffer.of_domain.emplace_back().lay_out(arena, variable_,
                                              {.column = column, .givers = &domains_->in_domain()});
    }
  }
}

void HostRows::open(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  buffer.step = step;
  buffer.in_place = buffer.held = buffer.in_parts = false;
  buffer.arrival = {};
  each_sum(buffer, [step](ColumnSum& sum) { sum.open(step); });
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
    for (const uint32_t column : active_columns_) {
      const uint32_t to = taker(column);
      if (to == columns_.rank()) continue;
      outbox_.add(to, rows_of_column(options_, step, column, kSectionLast));
    }
    end(columns_.rank(), step);
    if (leads_ && sum(step).complete()) user_.on_host_sum(step);
    return;
  }
  StepBuffer& buffer = step_buffer(step);
  buffer.pending = pending;
  buffer.first = slice.rows;
  buffer.more = slice.more;
  buffer.parts = slice.parts;
  buffer.which_parts = slice.which_parts;
  buffer.distinct = slice.distinct;
  if (slice.which_parts != Contribution::Parts::kAll) {
    // They are read at once, so that nothing is borrowed.
    PARALLAX_CHECK(compute_.at_once());
    buffer.found = nullptr;
    coalesce(buffer);
    if (slice.which_parts == Contribution::Parts::kSome) return;
    ++*pending;
    return give_rows(buffer);
  }
  // A job of the pool would read it while the next pull changes it.
  const bool found = slice.coalesced != nullptr && slice.more.count == 0 && compute_.at_once() &&
                     slice.coalesced->has(buffer.all());
  buffer.found = found ? slice.coalesced : nullptr;
  buffer.coalescing = true;
  ++*pending;  // of the compute job, or all of them
  buffer.job.context = &buffer;
  if (slice.arriving != nullptr) return start_arriving(buffer, *slice.arriving);
  buffer.job.cost_bytes = buffer.row_count() * row_bytes_;
  buffer.in_place = buffer.held = slice.may_stay && slice.more.count == 0 && compute_.at_once() &&
                                  coalescer_.may_stay(slice.rows.count) &&
                                  notes_.reads_slice(slice.rows, readers_);
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

// A job, or what is not left to one.
void HostRows::coalesce(StepBuffer& buffer) {
  std::byte* const block = buffer.block.data();
  if (buffer.distinct.row_keys != nullptr) {
    coalescer_.take(buffer.distinct, row_columns_, block);
  } else if (buffer.in_place) {
    coalescer_.coalesce_in_place(partition_, buffer.first, buffer.found, row_columns_, block);
  } else if (buffer.found != nullptr) {
    coalescer_.coalesce_found(*buffer.found, buffer.all(), row_columns_, block);
  } else if (buffer.in_parts || !buffer.parts.empty()) {
    if (!std::exchange(buffer.in_parts, true)) coalescer_.begin_parts(block);
    coalescer_.add_parts(partition_, buffer.parts);
    if (buffer.which_parts != Contribution::Parts::kSome) coalescer_.end_parts(row_columns_);
  } else {
    coalescer_.coalesce(partition_, buffer.first, buffer.more, row_columns_, block);
  }
}

bool HostRows::settle(uint64_t step, bool stay) {
  StepBuffer& buffer = step_buffer(step);
  if (!buffer.held) return false;
  buffer.held = false;
  // Who had it mapped may be gone since: nobody is told of what he cannot read.
  buffer.in_place = stay && notes_.reads_slice(buffer.first, readers_);
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
      const uint32_t to = taker(column);
      if (to != columns_.rank()) send_rows(buffer, column, to);
    }
    buffer.coalescing = false;
    --*buffer.pending;
    // Behind what others wait for; and what goes to others before what is this rank's.
    for (ColumnSum& sum : buffer.of_domain) give_to(sum, buffer);
    if (leads_) give_to(buffer.own, buffer);
    if (leads_ && buffer.own.complete()) user_.on_host_sum(buffer.step);
    return;
  }
  // Its rows are its host's, each of them once, and stay in its block.
  const uint32_t count = coalescer_.item_count();
  buffer.own.promise(count);
  std::array<const std::byte*, kRowsTogether> rows;
  for (uint32_t first = 0; first < count; first += kRowsTogether) {
    const uint32_t together = std::min(count - first, kRowsTogether);
    for (uint32_t i = 0; i < together; ++i) {
      rows[i] = buffer.block.data() + coalescer_.order()[first + i] * row_bytes_;
    }
    buffer.own.rows().join_distinct({coalescer_.row_keys() + first, together}, rows.data());
  }
  end_alone(buffer);
}

void HostRows::end_alone(StepBuffer& buffer) {
  buffer.coalescing = false;
  --*buffer.pending;
  buffer.own.end_promised();
  user_.on_host_sum(buffer.step);
}

// Or says where they lie. What the outbox borrows stays as it is until it is packed; the rows of
// the block, until the step is over everywhere.
void HostRows::send_rows(StepBuffer& buffer, uint32_t column, uint32_t to) {
  const uint32_t first = coalescer_.group_first(column);
  StagedNote& note = buffer.notes[column];
  note = notes_.note_to(to, coalescer_, column, buffer.step, buffer.first.values.rows,
                        buffer.rows_in_slice());
  Send send = rows_of_column(options_, buffer.step, column, kSectionLast | kSectionContributed);
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
  outbox_.add(to, send);
}

void HostRows::give_to(ColumnSum& sum, const StepBuffer& buffer) {
  const StagedNote note = notes_.note_to(columns_.rank(), coalescer_, sum.column(), buffer.step,
                                         buffer.first.values.rows, buffer.rows_in_slice());
  sum.give(note, {.block = buffer.block.data(), .slice = buffer.first.values.rows});
  go_on(sum);
}

// ---- what the ranks of the host give

// Null: this rank does not sum it.
ColumnSum* HostRows::sum_of(StepBuffer& buffer, uint64_t column) {
  if (leads_ && column == columns_.my_column()) return &buffer.own;
  for (ColumnSum& sum : buffer.of_domain) {
    if (sum.column() == column) return &sum;
  }
  return nullptr;
}

bool HostRows::on_section(uint32_t from, const Section& section) {
  // What it gives itself goes without a message.
  if (columns_.host_of(from) != columns_.host() || from == columns_.rank()) return false;
  StepBuffer& buffer = step_buffer(section.header.step);
  ColumnSum* const sum = sum_of(buffer, section.header.first >> kColumnShift);
  if (sum == nullptr || !sum->on_section(from, section)) return false;
  go_on(*sum);
  return true;
}

void HostRows::end(uint32_t from, uint64_t step) {
  each_sum(step_buffer(step), [this, from](ColumnSum& sum) {
    if (!sum.awaits(from)) return;
    sum.end(from);
    go_on(sum);
  });
}

// Something has come to it, which may be the last.
void HostRows::go_on(ColumnSum& sum) {
  if (!sum.read_if_all_came()) outbox_.lending().wake(this, options_.priority);
  if (sum.complete() && sum.column() != columns_.my_column()) send_sum(sum);
}

// Of a domain, to the column's leader, in another.
void HostRows::send_sum(const ColumnSum& sum) {
  const RowAccumulator& rows = sum.rows();
  const uint8_t contributed = sum.contributed() ? kSectionContributed : 0;
  Send send = rows_of_column(options_, sum.step(), sum.column(),
                             static_cast<uint8_t>(kSectionLast | contributed));
  send.format = {.element_bytes = bytes_of_sum(options_.sum),
                 .source_bytes = bytes_of_sum(options_.sum)};
  send.rows = {.row_keys = rows.row_keys(),
               .values = rows.values(),
               .row_elements = static_cast<uint32_t>(partition_.row_elements())};
  send.count = rows.row_count();
  outbox_.add(columns_.leader(columns_.host(), sum.column()), send);
}

// ---- rows that are read where they lie

// The older of both steps first, and of each what goes to others.
bool HostRows::read_lent() {
  uint64_t left_bytes = kTurnBytes;
  bool more = false;
  const auto is_read = [&](ColumnSum& sum) {
    if (!sum.all_came() || sum.complete()) return false;
    const Turn turn = sum.read(&left_bytes);
    more |= turn == Turn::kMore;
    return turn == Turn::kDone;
  };
  const bool swapped = step_buffers_[0].step > step_buffers_[1].step;
  for (const size_t i : {swapped ? 1 : 0, swapped ? 0 : 1}) {
    StepBuffer& buffer = step_buffers_[i];
    if (is_alone_ && !buffer.own.complete() && buffer.arrival.joined < buffer.arrival.ready) {
      more |= join_ready(buffer, &left_bytes) == Turn::kMore;
    }
    for (ColumnSum& sum : buffer.of_domain) {
      if (is_read(sum)) send_sum(sum);
    }
    if (leads_ && is_read(buffer.own)) user_.on_host_sum(buffer.step);
  }
  return more;
}

}  // namespace parallax
