// SPDX-License-Identifier: Apache-2.0
// From the rows of a host to the sum over hosts, and back. See row_exchange.h.
#include "collectives/row_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace parallax {

namespace {

// A piece and how many of its rows came before, in SectionHeader::first.
constexpr uint32_t kPieceShift = 32;
uint32_t piece_of(const SectionHeader& header) {
  return static_cast<uint32_t>(header.first >> kPieceShift);
}
uint32_t rows_before(const SectionHeader& header) { return static_cast<uint32_t>(header.first); }

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
      host_rows_(columns, partition, outbox, compute, options, HostRows::Owners::kHashed) {
  reduces_ =
      algorithm_.up == ReduceTo::kOwner ? host_rows_.active(columns.rank()) : host_rows_.leads();
  if (algorithm_.down == ReturnTo::kOwnHost) pieces_due_ = host_rows_.active_columns();
  for (uint32_t owner = 0; owner < columns.world(); ++owner) {
    if (algorithm_.down == ReturnTo::kEveryHost && host_rows_.active(owner)) {
      pieces_due_.push_back(owner);
    }
  }
  if (!reduces_) return;
  for (uint32_t host = 0; host < columns.host_count(); ++host) {
    sources_.push_back(columns.leader(host, columns.column_of(columns.rank())));
  }
}

// ---- memory

size_t RowExchange::needed_bytes() {
  Arena measure;
  lay_out(measure);
  return measure.used_bytes();
}

Status RowExchange::reserve() {
  PARALLAX_RETURN_IF_ERROR(arena_.reserve(needed_bytes()));
  lay_out(arena_);
  return {};
}

void RowExchange::lay_out(Arena& arena) {
  host_rows_.lay_out(arena);
  const uint64_t rows_in_world = std::min(partition_.rows(), options_.rows_max * columns_.world());
  for (StepBuffer& buffer : step_buffers_) {
    if (host_rows_.leads()) {
      const uint64_t locals = columns_.locals().size();
      const uint64_t rows_max = std::min(host_rows_.column_rows(), options_.rows_max * locals);
      buffer.items = arena.take<uint32_t>(rows_max);
      buffer.row_keys = arena.take<uint32_t>(rows_max);
      buffer.offsets = arena.take<uint32_t>(columns_.owners(columns_.my_column()).size() + 1);
    }
    if (reduces_) lay_out_total(arena, buffer);
    if (algorithm_.down == ReturnTo::kNobody) continue;
    buffer.values = arena.take<std::byte>(rows_in_world * row_bytes_);
    buffer.value_row_keys = arena.take<uint32_t>(rows_in_world);
    buffer.pieces.resize(piece_count());
  }
}

void RowExchange::lay_out_total(Arena& arena, StepBuffer& buffer) {
  const uint64_t rows = algorithm_.up == ReduceTo::kOwner ? partition_.rows_owned(columns_.rank())
                                                          : host_rows_.column_rows();
  std::vector<uint64_t> rows_max_of;  // by the ranks of each host, which may differ
  for (const uint32_t source : sources_) {
    const size_t ranks = columns_.map().ranks_of[columns_.host_of(source)].size();
    rows_max_of.push_back(std::min(rows, options_.rows_max * ranks));
  }
  buffer.total.lay_out(arena, {.sources = static_cast<uint32_t>(sources_.size()),
                               .rows_max = std::min(rows, options_.rows_max * columns_.world()),
                               .rows_max_of = std::move(rows_max_of),
                               .row_elements = static_cast<uint32_t>(partition_.row_elements()),
                               .ordered = options_.ordered,
                               .sum = options_.sum});
}

void RowExchange::open(uint64_t step) {
  host_rows_.open(step);
  StepBuffer& buffer = step_buffer(step);
  buffer.step = step;
  if (reduces_) buffer.total.clear();
  buffer.forwarded = buffer.returned = buffer.contributed = false;
  buffer.row_count = 0;
  // Of an owner of nothing, or of a column without owners, nothing comes.
  std::fill(buffer.pieces.begin(), buffer.pieces.end(), Piece{.whole = true});
  buffer.pieces_left = static_cast<uint32_t>(pieces_due_.size());
  for (const uint32_t piece : pieces_due_) buffer.pieces[piece].whole = false;
}

Send RowExchange::new_send(SectionKind kind, const StepBuffer& buffer, bool last) const {
  Send send;
  send.header = {
      .kind = kind, .encoding = Encoding::kRows, .tag = options_.variable, .step = buffer.step};
  if (last) send.header.flags = kSectionLast;
  if (last && buffer.contributed) send.header.flags |= kSectionContributed;
  send.format = {.element_bytes = bytes_of_sum(options_.sum),
                 .source_bytes = bytes_of_sum(options_.sum)};
  send.rows.row_elements = static_cast<uint32_t>(partition_.row_elements());
  return send;
}

// ---- leg 1: inside the host

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
    case SectionKind::kHostGather:
    case SectionKind::kLocalBroadcast:
      return on_piece(from, section);
    default:
      return false;
  }
}

// ---- leg 2: the host's sum to the reducers

void RowExchange::forward_if_complete(StepBuffer& buffer) {
  if (!host_rows_.leads() || buffer.forwarded) return;
  if (!host_rows_.sum(buffer.step).complete()) return;
  buffer.forwarded = true;
  buffer.contributed |= host_rows_.contributed(buffer.step);
  if (algorithm_.up == ReduceTo::kEveryHost) {
    forward_to_hosts(buffer);
  } else {
    forward_to_owners(buffer);
  }
}

void RowExchange::forward_to_hosts(StepBuffer& buffer) {
  const RowAccumulator& sum = host_rows_.sum(buffer.step);
  for (uint32_t i = 0; i < columns_.host_count(); ++i) {
    // From the next host on, so that not all of them send to the same one first.
    const uint32_t host = (columns_.host() + 1 + i) % columns_.host_count();
    Send send = new_send(SectionKind::kHostReduce, buffer, true);
    send.rows.row_keys = sum.row_keys();
    send.rows.values = sum.values();
    send.count = sum.row_count();
    outbox_.add(columns_.leader(host, columns_.my_column()), send);
  }
}

void RowExchange::forward_to_owners(StepBuffer& buffer) {
  const RowAccumulator& sum = host_rows_.sum(buffer.step);
  const std::vector<uint32_t>& owners = columns_.owners(columns_.my_column());
  const uint32_t* row_keys = sum.row_keys();
  const uint32_t count = sum.row_count();
  group_items(
      count, static_cast<uint32_t>(owners.size()),
      [&](uint32_t i) { return columns_.place_in_column(partition_.owner_of(row_keys[i])); },
      buffer.offsets, buffer.items);
  for (uint32_t item = 0; item < count; ++item) {
    buffer.row_keys[item] = row_keys[buffer.items[item]];
  }
  // From this host's place on, so that not all hosts send to the same owner first.
  const auto start =
      static_cast<uint32_t>(uint64_t{columns_.host()} * owners.size() / columns_.host_count());
  for (uint32_t at = 0; at < owners.size(); ++at) {
    const uint32_t i = static_cast<uint32_t>((start + at) % owners.size());
    if (!host_rows_.active(owners[i])) continue;
    const uint32_t first = buffer.offsets[i];
    Send send = new_send(SectionKind::kHostReduce, buffer, true);
    send.rows.row_keys = &buffer.row_keys[first];
    send.rows.order = &buffer.items[first];
    send.rows.values = sum.values();
    send.count = buffer.offsets[i + 1] - first;
    outbox_.add(owners[i], send);
  }
}

bool RowExchange::on_host_reduce(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!reduces_ || from != sources_[columns_.host_of(from)]) return false;
  const auto mine = [this](uint32_t row_key) {
    return algorithm_.up == ReduceTo::kOwner
               ? partition_.owner_of(row_key) == columns_.rank()
               : host_rows_.column_of_row_key(row_key) == columns_.my_column();
  };
  StepBuffer& buffer = step_buffer(header.step);
  const uint32_t source = columns_.host_of(from);
  if (header.encoding != Encoding::kRows || !host_rows_.check_row_keys(section, mine) ||
      !buffer.total.add(source, header.count, section.payload)) {
    return false;
  }
  if ((header.flags & kSectionLast) == 0) return true;
  buffer.contributed |= (header.flags & kSectionContributed) != 0;
  buffer.total.end(source);
  return_if_complete(buffer);
  return true;
}

// ---- leg 3: the sum back to the leaders of every host (or, where every host sums, leg 4 at once)

void RowExchange::return_if_complete(StepBuffer& buffer) {
  if (!buffer.total.complete() || buffer.returned) return;
  buffer.returned = true;
  if (algorithm_.down == ReturnTo::kNobody) return;
  const bool own_host = algorithm_.down == ReturnTo::kOwnHost;
  const uint32_t column = columns_.column_of(columns_.rank());
  Send send =
      new_send(own_host ? SectionKind::kLocalBroadcast : SectionKind::kHostGather, buffer, true);
  send.header.first = uint64_t{own_host ? column : columns_.rank()} << kPieceShift;
  send.rows.row_keys = buffer.total.row_keys();
  send.rows.values = buffer.total.values();
  send.count = buffer.total.row_count();
  if (own_host) {
    for (const uint32_t local : columns_.locals()) outbox_.add(local, send);
    return;
  }
  for (uint32_t i = 0; i < columns_.host_count(); ++i) {
    const uint32_t host = (columns_.host() + 1 + i) % columns_.host_count();
    outbox_.add(columns_.leader(host, column), send);
  }
}

// Pieces are numbered by owner, or by column where every host sums for itself.
uint32_t RowExchange::piece_count() const {
  return algorithm_.down == ReturnTo::kOwnHost ? columns_.count() : columns_.world();
}

bool RowExchange::in_piece(uint32_t piece, uint32_t row_key) const {
  return algorithm_.down == ReturnTo::kOwnHost ? host_rows_.column_of_row_key(row_key) == piece
                                               : partition_.owner_of(row_key) == piece;
}

// Who sends a piece to this rank, by sections of this kind; kNoRank: nobody.
uint32_t RowExchange::piece_sender(uint32_t piece, SectionKind kind) const {
  if (algorithm_.down == ReturnTo::kOwnHost) {
    const bool comes = kind == SectionKind::kLocalBroadcast;
    return comes ? columns_.leader(columns_.host(), piece) : kNoRank;
  }
  const uint32_t leader = columns_.leader(columns_.host(), columns_.column_of(piece));
  const bool leads = leader == columns_.rank();
  if (kind == SectionKind::kHostGather) return leads ? piece : kNoRank;
  return leads ? kNoRank : leader;
}

// ---- leg 4: to every rank of the host

bool RowExchange::on_piece(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  StepBuffer& buffer = step_buffer(header.step);
  const uint32_t piece = piece_of(header);
  if (header.encoding != Encoding::kRows || piece >= buffer.pieces.size()) return false;
  Piece& state = buffer.pieces[piece];
  if (from != piece_sender(piece, header.kind) || state.whole) return false;
  const uint32_t count = header.count;
  const bool fits = count <= buffer.value_row_keys.size() - buffer.row_count &&
                    section.payload.size() == count * (sizeof(uint32_t) + row_bytes_);
  const auto belongs = [this, piece](uint32_t row_key) { return in_piece(piece, row_key); };
  if (rows_before(header) != state.rows || !fits || !host_rows_.check_row_keys(section, belongs)) {
    return false;
  }
  const uint32_t first_row = buffer.row_count;
  if (count > 0) {
    const size_t ids_bytes = sizeof(uint32_t) * count;
    std::memcpy(&buffer.value_row_keys[first_row], section.payload.data(), ids_bytes);
    std::memcpy(&buffer.values[first_row * row_bytes_], section.payload.data() + ids_bytes,
                section.payload.size() - ids_bytes);
    buffer.row_count += count;
    state.rows += count;
  }
  pass_on(buffer, header, first_row);
  if ((header.flags & kSectionLast) != 0) {
    state.whole = true;
    --buffer.pieces_left;
    buffer.contributed |= (header.flags & kSectionContributed) != 0;
  }
  return true;
}

// What just came of a piece, from this leader to the other ranks of its host.
void RowExchange::pass_on(StepBuffer& buffer, const SectionHeader& header, uint32_t first_row) {
  if (header.kind != SectionKind::kHostGather) return;
  Send send = new_send(SectionKind::kLocalBroadcast, buffer, false);
  send.header.flags = header.flags;
  send.header.first = header.first;
  send.count = header.count;
  if (header.count > 0) {
    send.rows.row_keys = &buffer.value_row_keys[first_row];
    send.rows.values = &buffer.values[first_row * row_bytes_];
  }
  for (const uint32_t local : columns_.locals()) {
    if (local != columns_.rank()) outbox_.add(local, send);
  }
}

// ---- results

ExchangeState RowExchange::state(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  return {.contributed = host_rows_.sendable(step),
          .reduced = !reduces_ || buffer.total.complete(),
          .delivered = buffer.pieces_left == 0};
}

MissingRanks RowExchange::missing(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  std::vector<uint32_t> late = host_rows_.missing(step);
  for (uint32_t source = 0; source < sources_.size(); ++source) {
    if (!buffer.total.ended(source)) late.push_back(sources_[source]);
  }
  std::vector<uint32_t> back;
  // The way back waits for the way there: who is late with that is not to blame for this.
  for (uint32_t piece = 0; late.empty() && piece < buffer.pieces.size(); ++piece) {
    if (buffer.pieces[piece].whole) continue;
    const uint32_t sender = piece_sender(piece, SectionKind::kLocalBroadcast);
    back.push_back(sender == kNoRank ? piece : sender);
  }
  for (std::vector<uint32_t>* ranks : {&late, &back}) {
    std::sort(ranks->begin(), ranks->end());
    ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
  }
  return {.to_give = std::move(late), .to_return = std::move(back)};
}

// What every result of this exchange has in common.
ReducedGradient RowExchange::of_rows(const StepBuffer& buffer) const {
  ReducedGradient result;
  result.contributed = buffer.contributed;
  result.rows = result.by_rows = true;
  result.counted = options_.counted;
  result.sum = options_.sum;
  result.row_elements = partition_.row_elements();
  return result;
}

ReducedGradient RowExchange::owned(uint64_t step) const {
  if (!reduces_) return {};
  const StepBuffer& buffer = step_buffer(step);
  ReducedGradient part = of_rows(buffer);
  // Where every host sums for itself, one speaks for all.
  part.counts_once = algorithm_.up == ReduceTo::kOwner || columns_.host() == 0;
  part.has_values = buffer.total.contributed();
  part.row_count = buffer.total.row_count();
  part.row_keys = buffer.total.row_keys();
  part.values = buffer.total.values();
  return part;
}

ReducedGradient RowExchange::whole(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  ReducedGradient all = of_rows(buffer);
  all.has_values = buffer.row_count > 0;
  all.values = buffer.values.data();
  all.row_count = buffer.row_count;
  all.row_keys = buffer.value_row_keys.data();
  return all;
}

ExchangeCounts RowExchange::counts(uint64_t step) const {
  ExchangeCounts counts;
  if (host_rows_.leads()) counts.touched_rows = host_rows_.sum(step).row_count();
  counts.union_rows = union_rows(owned(step));
  return counts;
}

}  // namespace parallax
