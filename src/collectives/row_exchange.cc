// SPDX-License-Identifier: Apache-2.0
// From the rows of a host to the sum over hosts, and back. See row_exchange.h.
#include "collectives/row_exchange.h"

#include <algorithm>
#include <utility>

#include "base/prefetch.h"
#include "collectives/round_names.h"

namespace parallax {

namespace {

// Of one host, only what an owner keeps, and sums for nobody else, may stay where it was given. Of
// several, what a rank that is alone on its host gives may, which is packed for others from there.
ExchangeOptions options_of_host(const Columns& columns, ExchangeOptions options,
                                const RowAlgorithm& algorithm) {
  const bool alone = columns.locals().size() == 1;
  options.rows_stay = columns.host_count() > 1
                          ? alone
                          : options.rows_stay && algorithm.down == ReturnTo::kNobody &&
                                (alone || options.staging != nullptr);
  return options;
}

// Where hosts are many, unless they are more than a census has marks for.
bool holds_census(const Columns& columns, const ExchangeOptions& options,
                  const RowAlgorithm& algorithm) {
  if (columns.host_count() <= std::max(1u, options.marker_hosts_max)) return false;
  if (algorithm.up == ReduceTo::kEveryHost) return columns.host_count() <= Census::kMarksMax;
  if (algorithm.down == ReturnTo::kNobody) return true;
  for (uint32_t column = 0; column < columns.count(); ++column) {
    if (columns.owners(column).size() > Census::kMarksMax) return false;
  }
  return true;
}

// What every result of an exchange has in common.
ReducedGradient new_result(const ExchangeOptions& options, const Partition& partition) {
  ReducedGradient result;
  result.rows = result.by_rows = true;
  result.counted = options.counted;
  result.sum = options.sum;
  result.row_elements = partition.row_elements();
  return result;
}

}  // namespace

RowExchange::RowExchange(const Columns& columns, const Partition& partition, Outbox& outbox,
                         Compute& compute, const ExchangeOptions& options,
                         const RowAlgorithm& algorithm)
    : columns_(columns),
      partition_(partition),
      outbox_(outbox),
      options_(options),
      algorithm_(algorithm),
      row_bytes_(size_t{bytes_of_sum(options.sum)} * partition.row_elements()),
      one_host_(columns.host_count() == 1),
      host_rows_(columns, partition, outbox, compute, options_of_host(columns, options, algorithm),
                 HostRows::Owners::kHashed, *this),
      by_census_(holds_census(columns, options, algorithm)),
      hands_on_(options.unsent != nullptr && !one_host_ && !by_census_ &&
                algorithm.up == ReduceTo::kOwner && algorithm.down == ReturnTo::kNobody),
      intake_(columns, partition, host_rows_, options, algorithm.up),
      returned_(columns, partition, host_rows_, outbox, options, algorithm.down, by_census_) {
  reduces_ = algorithm_.up == ReduceTo::kOwner ? host_rows_.row_columns().active(columns.rank())
                                               : host_rows_.leads();
  if (by_census_ && (host_rows_.leads() || reduces_)) found_census();
  if (!reduces_ || one_host_) return;
  // The same of an order of its own goes with the others', and what is rounded on its way is of
  // every host.
  takes_own_ = options.rows_stay && !options.ordered && algorithm.up == ReduceTo::kOwner &&
               algorithm.down == ReturnTo::kNobody && !intake_.widens() && host_rows_.leads();
  for (uint32_t host = 0; host < columns.host_count(); ++host) {
    sources_.push_back(columns.leader(host, columns.column_of(columns.rank())));
  }
  table_by_table_ = takes_own_ && sources_.size() == 2;
}

// To owners, of arrivals: the leaders of a column count, and its other owners are told. To every
// host, of who sends.
void RowExchange::found_census() {
  const uint32_t column = columns_.column_of(columns_.rank());
  CensusOptions options = {.variable = options_.variable,
                           .stage = kReduceStage,
                           .column = column,
                           .rounds = options_.rounds};
  if (algorithm_.up == ReduceTo::kOwner) {
    options.listeners = host_rows_.owners_beside_leader(column);
  } else {
    options.marks = columns_.host_count();
  }
  census_.emplace(columns_, outbox_, std::move(options));
}

// ---- memory

Status RowExchange::reserve_scratch() {
  if (options_.scratch == nullptr) return {};
  const uint64_t of_host = host_rows_.sum_rows_max();
  const uint64_t of_hosts = table_by_table_ ? step_buffers_[0].total.rows_max() : 0;
  return options_.scratch->reserve(std::max({options_.rows_max, of_host, of_hosts}));
}

void RowExchange::lay_out(Arena& arena) {
  host_rows_.lay_out(arena);
  for (StepBuffer& buffer : step_buffers_) {
    if (one_host_) continue;
    if (host_rows_.leads()) {
      const uint64_t locals = columns_.locals().size();
      const uint64_t rows_max = std::min(host_rows_.column_rows(), options_.rows_max * locals);
      buffer.items = arena.take<uint32_t>(rows_max);
      buffer.row_keys = arena.take<uint32_t>(rows_max);
      const size_t owners = columns_.owners(columns_.my_column()).size();
      buffer.offsets = arena.take<uint32_t>(owners + 1);
      if (by_census_) buffer.unarrived = arena.take<uint8_t>(owners);
    }
    if (!reduces_) continue;
    const uint64_t rows_max = std::min(intake_.rows_summed(), options_.rows_max * columns_.world());
    buffer.total.lay_out(arena, {.sources = static_cast<uint32_t>(sources_.size()),
                                 .rows_max = rows_max,
                                 .rows_max_of = intake_.rows_max_of_hosts(),
                                 .row_elements = static_cast<uint32_t>(partition_.row_elements()),
                                 .ordered = options_.ordered,
                                 .rows_stay = takes_own_,
                                 .scratch = table_by_table_ ? options_.scratch : nullptr,
                                 .sum = options_.sum});
  }
  if (reduces_ && !one_host_) intake_.lay_out(arena);
  returned_.lay_out(arena);
}

void RowExchange::open(uint64_t step) {
  host_rows_.open(step);
  StepBuffer& buffer = step_buffer(step);
  buffer.step = step;
  if (reduces_ && !one_host_) buffer.total.clear();
  buffer.forwarded = buffer.returned = buffer.contributed = false;
  buffer.rows_forwarded = 0;
  if (census_) census_->open(step);
  returned_.open(step);
}

// ---- leg 1: inside the host

void RowExchange::prefetch(uint64_t step) const {
  prefetch_bytes(this, reinterpret_cast<const std::byte*>(&host_rows_) -
                           reinterpret_cast<const std::byte*>(this));
  host_rows_.prefetch(step);
  prefetch_object(&reduces_);
  prefetch_object(&step_buffer(step));
}

// To be written, of which neighbours have read what was there two steps ago.
void RowExchange::prefetch_given(uint64_t step) const {
  prefetch_first_rows_to_write(host_rows_.block(step), row_bytes_);
}

void RowExchange::contribute(uint64_t step, const Contribution& slice, uint32_t* pending) {
  host_rows_.contribute(step, slice, pending);
}

void RowExchange::end(uint32_t from, uint64_t step) {
  host_rows_.end(from, step);
  forward_if_complete(step_buffer(step));
}

bool RowExchange::on_section(uint32_t from, const Section& section) {
  switch (section.header.kind) {
    case SectionKind::kLocalReduce:
      if (!host_rows_.on_section(from, section)) return false;
      forward_if_complete(step_buffer(section.header.step));
      return true;
    case SectionKind::kHostReduce:
      return on_host_reduce(from, section);
    case SectionKind::kArrived:
      return on_arrived(from, section);
    case SectionKind::kCensusUp:
    case SectionKind::kCensusDown:
      if (section.header.part == kReduceStage) return on_census(from, section);
      return section.header.part == kGatherStage && returned_.on_section(from, section);
    case SectionKind::kHostGather:
    case SectionKind::kLocalBroadcast:
      return returned_.on_section(from, section);
    default:
      return false;
  }
}

// ---- leg 2: at the reducers

bool RowExchange::on_host_reduce(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (sources_.empty() || from != sources_[columns_.host_of(from)]) return false;
  if (takes_own_ && from == columns_.rank()) return false;
  StepBuffer& buffer = step_buffer(header.step);
  const uint32_t source = columns_.host_of(from);
  if ((by_census_ && header.count == 0) || !intake_.add(source, section, &buffer.total)) {
    return false;
  }
  if ((header.flags & kSectionLast) == 0) return true;
  buffer.contributed |= (header.flags & kSectionContributed) != 0;
  buffer.total.end(source);
  if (by_census_ && algorithm_.up == ReduceTo::kOwner) {
    SectionHeader arrived = {.kind = SectionKind::kArrived, .tag = options_.variable};
    arrived.step = buffer.step;
    name_round(options_.rounds, &arrived);
    outbox_.send_bytes(from, arrived, {});
  }
  return_if_complete(buffer);
  return true;
}

// ---- censuses: what does not come

bool RowExchange::on_arrived(uint32_t from, const Section& section) {
  StepBuffer& buffer = step_buffer(section.header.step);
  const bool bare = section.header.encoding == Encoding::kBytes && section.header.count == 0 &&
                    section.payload.empty();
  if (buffer.unarrived.empty() || columns_.column_of(from) != columns_.my_column() || !bare) {
    return false;
  }
  uint8_t& unarrived = buffer.unarrived[columns_.place_in_column(from)];
  if (unarrived == 0) return false;
  unarrived = 0;
  if (--buffer.unarrived_count == 0) join(buffer, Census::kNoMark);
  return true;
}

bool RowExchange::on_census(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!census_ || header.first != census_->column()) return false;
  const bool up = header.kind == SectionKind::kCensusUp;
  if (!(up ? census_->on_report(from, section) : census_->on_answer(from, section))) return false;
  if (census_->answered(header.step)) take_answer(step_buffer(header.step));
  return true;
}

// What this host has is on its way to all hosts, or has arrived at the owners.
void RowExchange::join(StepBuffer& buffer, uint32_t mark) {
  census_->join(buffer.step, mark, host_rows_.contributed(buffer.step));
  if (census_->answered(buffer.step)) take_answer(buffer);
}

// Once in a step. Of those whose rows have arrived, or who send none, nothing more comes.
void RowExchange::take_answer(StepBuffer& buffer) {
  buffer.contributed |= census_->contributed(buffer.step);
  if (!reduces_) {
    returned_.send_nothing(buffer.step, buffer.contributed);
    return;
  }
  const bool arrived = algorithm_.up == ReduceTo::kOwner;
  for (uint32_t source = 0; source < sources_.size(); ++source) {
    if (takes_own_ && source == columns_.host()) continue;  // it ends as it is taken
    if (arrived || !census_->marked(buffer.step, source)) buffer.total.end(source);
  }
  return_if_complete(buffer);
}

// ---- the sum on its way back

void RowExchange::return_if_complete(StepBuffer& buffer) {
  if (!total(buffer).complete() || buffer.returned) return;
  buffer.returned = true;
  returned_.send(buffer.step, total(buffer), buffer.contributed);
  // This rank's own piece may be the last, and comes in no section.
  if (returned_.delivered(buffer.step)) tell_runner();
}

// ---- results

ExchangeState RowExchange::state(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  // An owner's sum has its host's, if it leads that.
  const bool forwarded = !host_rows_.leads() || buffer.forwarded;
  const bool complete = reduces_ ? total(buffer).complete() : forwarded;
  return {.contributed = host_rows_.sendable(step),
          .reduced = complete && host_rows_.summed(step) && (!census_ || census_->answered(step)),
          .delivered = returned_.delivered(step),
          .handed_on = hands_on_ && forwarded && host_rows_.summed(step)};
}

MissingRanks RowExchange::missing(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  MissingRanks missing = host_rows_.missing(step);
  add_late_hosts(buffer, &missing);
  if (!missing.to_give.empty()) missing.to_return.clear();
  if (missing.empty()) missing.to_tell = missing_to_tell(buffer);
  // The way back waits for the way there: who is late with that is not to blame for this.
  if (missing.empty()) missing = returned_.missing(step);
  sort_and_unite(missing.to_give);
  sort_and_unite(missing.to_return);
  sort_and_unite(missing.to_tell);
  return missing;
}

void RowExchange::add_late_hosts(const StepBuffer& buffer, MissingRanks* missing) const {
  // Before the answer it is not known which of the sources have anything to send.
  if (census_ && !census_->answered(buffer.step)) return;
  for (uint32_t source = 0; source < sources_.size(); ++source) {
    // Of its own host it may be known who is to sum them.
    const bool waits = sources_[source] == columns_.rank() && !missing->to_return.empty();
    if (!buffer.total.ended(source) && !waits) missing->to_give.push_back(sources_[source]);
  }
}

// Owners that do not say that rows have arrived, and who is awaited in the tree.
std::vector<uint32_t> RowExchange::missing_to_tell(const StepBuffer& buffer) const {
  std::vector<uint32_t> late;
  if (!census_ || census_->answered(buffer.step)) return late;
  for (uint32_t i = 0; i < buffer.unarrived.size(); ++i) {
    if (buffer.unarrived[i] != 0) late.push_back(columns_.owners(columns_.my_column())[i]);
  }
  const std::vector<uint32_t> unheard = census_->missing(buffer.step);
  late.insert(late.end(), unheard.begin(), unheard.end());
  return late;
}

ReducedGradient RowExchange::owned(uint64_t step) const {
  if (!reduces_) return {};
  const StepBuffer& buffer = step_buffer(step);
  ReducedGradient part = new_result(options_, partition_);
  part.contributed = buffer.contributed;
  // Where every host sums for itself, one speaks for all.
  part.counts_once = algorithm_.up == ReduceTo::kOwner || columns_.host() == 0;
  part.has_values = total(buffer).contributed();
  part.row_count = total(buffer).row_count();
  part.row_keys = total(buffer).row_keys();
  part.values = total(buffer).values();
  part.places = total(buffer).places();
  return part;
}

ReducedGradient RowExchange::whole(uint64_t step) const {
  ReducedGradient all = new_result(options_, partition_);
  all.contributed = step_buffer(step).contributed || returned_.contributed(step);
  all.row_count = returned_.row_count(step);
  all.has_values = all.row_count > 0;
  all.row_keys = returned_.row_keys(step);
  all.values = returned_.values(step);
  return all;
}

ExchangeCounts RowExchange::counts(uint64_t step) const {
  ExchangeCounts counts;
  if (host_rows_.leads()) counts.touched_rows = host_rows_.sum(step).row_count();
  counts.given_rows = host_rows_.given_rows(step);
  counts.union_rows = union_rows(owned(step));
  return counts;
}

}  // namespace parallax
