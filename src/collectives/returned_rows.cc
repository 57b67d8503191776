// SPDX-License-Identifier: Apache-2.0
// From who has a part of the sum to every rank. See returned_rows.h.
#include "collectives/returned_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/round_names.h"
#include "collectives/schedule.h"

namespace parallax {

namespace {

// A piece and how many of its rows came before, in SectionHeader::first.
constexpr uint32_t kPieceShift = 32;
uint32_t piece_of(const SectionHeader& header) {
  return static_cast<uint32_t>(header.first >> kPieceShift);
}
uint32_t rows_before(const SectionHeader& header) { return static_cast<uint32_t>(header.first); }

}  // namespace

ReturnedRows::ReturnedRows(const Columns& columns, const Partition& partition,
                           const HostRows& host_rows, Outbox& outbox,
                           const ExchangeOptions& options, ReturnTo to, bool by_census)
    : columns_(columns),
      partition_(partition),
      host_rows_(host_rows),
      outbox_(outbox),
      options_(options),
      to_(to),
      row_bytes_(size_t{bytes_of_sum(options.sum)} * partition.row_elements()) {
  if (to_ == ReturnTo::kOwnHost) pieces_due_ = host_rows.active_columns();
  for (uint32_t owner = 0; owner < columns.world(); ++owner) {
    if (to_ == ReturnTo::kEveryHost && host_rows.row_columns().active(owner))
      pieces_due_.push_back(owner);
  }
  if (by_census && to_ == ReturnTo::kEveryHost) found_censuses();
}

// Of each column: its leaders, with the owners of their hosts beside them. All ranks are told.
void ReturnedRows::found_censuses() {
  std::vector<uint32_t> others = columns_.locals();
  std::erase(others, columns_.rank());
  for (const uint32_t column : host_rows_.active_columns()) {
    censuses_.emplace_back(
        columns_, outbox_,
        CensusOptions{.variable = options_.variable,
                      .stage = kGatherStage,
                      .column = column,
                      .rounds = options_.rounds,
                      .marks = static_cast<uint32_t>(columns_.owners(column).size()),
                      .reporters = host_rows_.owners_beside_leader(column),
                      .listeners = others});
  }
}

void ReturnedRows::lay_out(Arena& arena) {
  if (to_ == ReturnTo::kNobody) return;
  const uint64_t rows_in_world = std::min(partition_.rows(), options_.rows_max * columns_.world());
  for (StepBuffer& buffer : step_buffers_) {
    buffer.values = arena.take<std::byte>(rows_in_world * row_bytes_);
    buffer.row_keys = arena.take<uint32_t>(rows_in_world);
    buffer.pieces.resize(piece_count());
  }
}

void ReturnedRows::open(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  for (Census& census : censuses_) census.open(step);
  buffer.answers_left = static_cast<uint32_t>(censuses_.size());
  buffer.contributed = false;
  buffer.row_count = 0;
  // Of an owner of nothing, or of a column without owners, nothing comes.
  std::fill(buffer.pieces.begin(), buffer.pieces.end(), Piece{.whole = true});
  buffer.pieces_left = static_cast<uint32_t>(pieces_due_.size());
  for (const uint32_t piece : pieces_due_) buffer.pieces[piece].whole = false;
}

// ---- who sends what

// Pieces are numbered by owner, or by column where every host sums for itself.
uint32_t ReturnedRows::piece_count() const {
  return to_ == ReturnTo::kOwnHost ? columns_.count() : columns_.world();
}

bool ReturnedRows::are_of_piece(uint32_t piece, const Section& section) const {
  return to_ == ReturnTo::kOwnHost
             ? row_keys_fit(partition_, section, host_rows_.row_columns(), piece)
             : row_keys_fit(partition_, section, RowOwners{partition_}, piece);
}

// Who sends a piece to this rank, by sections of this kind; kNoRank: nobody.
uint32_t ReturnedRows::piece_sender(uint32_t piece, SectionKind kind) const {
  if (to_ == ReturnTo::kOwnHost) {
    const bool comes = kind == SectionKind::kLocalBroadcast;
    return comes ? columns_.leader(columns_.host(), piece) : kNoRank;
  }
  const uint32_t leader = columns_.leader(columns_.host(), columns_.column_of(piece));
  const bool leads = leader == columns_.rank();
  if (kind == SectionKind::kHostGather) return leads ? piece : kNoRank;
  return leads ? kNoRank : leader;
}

Send ReturnedRows::new_send(SectionKind kind, uint64_t step, uint8_t flags) const {
  Send send;
  send.header = {.kind = kind,
                 .encoding = Encoding::kRows,
                 .flags = flags,
                 .tag = options_.variable,
                 .step = step};
  name_round(options_.rounds, &send.header);
  send.priority = options_.priority;
  send.format = {.element_bytes = bytes_of_sum(options_.sum),
                 .source_bytes = bytes_of_sum(options_.sum)};
  send.rows.row_elements = static_cast<uint32_t>(partition_.row_elements());
  return send;
}

// ---- leg 3: to the leaders of every host (or, where every host sums, leg 4 at once)

void ReturnedRows::send(uint64_t step, const RowAccumulator& sum, bool contributed) {
  if (to_ == ReturnTo::kNobody) return;
  const bool own_host = to_ == ReturnTo::kOwnHost;
  const uint8_t flags = kSectionLast | (contributed ? kSectionContributed : 0);
  Send send =
      new_send(own_host ? SectionKind::kLocalBroadcast : SectionKind::kHostGather, step, flags);
  const uint32_t piece = own_host ? columns_.column_of(columns_.rank()) : columns_.rank();
  send.header.first = uint64_t{piece} << kPieceShift;
  send.rows.row_keys = sum.row_keys();
  send.rows.values = sum.values();
  send.count = sum.row_count();
  if (own_host) {
    send_to_locals(send);
    return take_own(step, send);
  }
  const bool has_rows = sum.row_count() > 0;
  if (has_rows || censuses_.empty()) send_to_hosts(step, send);
  join(step, has_rows ? columns_.place_in_column(columns_.rank()) : Census::kNoMark, contributed);
}

void ReturnedRows::send_to_hosts(uint64_t step, Send send) {
  const uint32_t column = columns_.column_of(columns_.rank());
  for (uint32_t i = 0; i < columns_.host_count(); ++i) {
    // From the next host on, so that not all of them send to the same one first.
    const uint32_t host = (columns_.host() + 1 + i) % columns_.host_count();
    // Row keys are in no order here.
    const uint32_t leader = columns_.leader(host, column);
    if (leader == columns_.rank()) {
      take_own(step, send);
      continue;
    }
    const bool other = options_.codings != nullptr && host != columns_.host();
    send.coding.numbers =
        other && options_.codings->pushed.numbers && has_number_code(dtype_of(options_.sum));
    outbox_.add(leader, send);
  }
}

// What this rank sums itself takes no message.
void ReturnedRows::take_own(uint64_t step, const Send& send) {
  StepBuffer& buffer = step_buffer(step);
  // More rows came than ranks may give.
  if (send.count > buffer.row_keys.size() - buffer.row_count) {
    return outbox_.lending().misfit(columns_.rank());
  }
  SectionHeader header = send.header;
  header.step = step;  // not what a round is called
  header.count = static_cast<uint32_t>(send.count);
  take_piece(buffer, header, reinterpret_cast<const std::byte*>(send.rows.row_keys),
             send.rows.values);
}

bool ReturnedRows::on_section(uint32_t from, const Section& section) {
  switch (section.header.kind) {
    case SectionKind::kHostGather:
    case SectionKind::kLocalBroadcast:
      return on_piece(from, section);
    case SectionKind::kCensusUp:
    case SectionKind::kCensusDown:
      return on_census(from, section);
    default:
      return false;
  }
}

// ---- which pieces do not come

void ReturnedRows::join(uint64_t step, uint32_t mark, bool contributed) {
  for (Census& census : censuses_) {
    if (census.column() != columns_.column_of(columns_.rank())) continue;
    census.join(step, mark, contributed);
    if (census.answered(step)) take_answer(step, census);
  }
}

bool ReturnedRows::on_census(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  for (Census& census : censuses_) {
    if (census.column() != header.first) continue;
    const bool taken = header.kind == SectionKind::kCensusUp ? census.on_report(from, section)
                                                             : census.on_answer(from, section);
    if (taken && census.answered(header.step)) take_answer(header.step, census);
    return taken;
  }
  return false;
}

// Of each census once in a step.
void ReturnedRows::take_answer(uint64_t step, const Census& census) {
  StepBuffer& buffer = step_buffer(step);
  buffer.contributed |= census.contributed(step);
  --buffer.answers_left;
  const std::vector<uint32_t>& owners = columns_.owners(census.column());
  for (uint32_t i = 0; i < owners.size(); ++i) {
    if (census.marked(step, i)) continue;
    Piece& piece = buffer.pieces[owners[i]];
    if (!piece.whole) --buffer.pieces_left;
    piece.whole = true;
  }
}

// ---- leg 4: to every rank of the host

bool ReturnedRows::on_piece(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  StepBuffer& buffer = step_buffer(header.step);
  const uint32_t piece = piece_of(header);
  if (header.encoding != Encoding::kRows || piece >= buffer.pieces.size()) return false;
  Piece& state = buffer.pieces[piece];
  if (from != piece_sender(piece, header.kind) || state.whole) return false;
  const uint32_t count = header.count;
  if (count == 0 && !censuses_.empty()) return false;
  const bool fits = count <= buffer.row_keys.size() - buffer.row_count &&
                    section.payload.size() == count * (sizeof(uint32_t) + row_bytes_);
  if (rows_before(header) != state.rows || !fits || !are_of_piece(piece, section)) return false;
  take_piece(buffer, header, section.payload.data(),
             section.payload.data() + sizeof(uint32_t) * count);
  return true;
}

// Rows of a piece that fit, and on to the other ranks of this host.
void ReturnedRows::take_piece(StepBuffer& buffer, const SectionHeader& header,
                              const std::byte* row_keys, const std::byte* values) {
  Piece& piece = buffer.pieces[piece_of(header)];
  const uint32_t first_row = buffer.row_count;
  if (header.count > 0) {
    std::memcpy(&buffer.row_keys[first_row], row_keys, sizeof(uint32_t) * header.count);
    std::memcpy(&buffer.values[first_row * row_bytes_], values, row_bytes_ * header.count);
    buffer.row_count += header.count;
    piece.rows += header.count;
  }
  pass_on(buffer, header, first_row);
  if ((header.flags & kSectionLast) == 0) return;
  piece.whole = true;
  --buffer.pieces_left;
  buffer.contributed |= (header.flags & kSectionContributed) != 0;
}

// What just came of a piece, from this leader to the other ranks of its host.
void ReturnedRows::pass_on(const StepBuffer& buffer, const SectionHeader& header,
                           uint32_t first_row) {
  if (header.kind != SectionKind::kHostGather) return;
  Send send = new_send(SectionKind::kLocalBroadcast, header.step, header.flags);
  send.header.first = header.first;
  send.count = header.count;
  if (header.count > 0) {
    send.rows.row_keys = &buffer.row_keys[first_row];
    send.rows.values = &buffer.values[first_row * row_bytes_];
  }
  send_to_locals(send);
}

void ReturnedRows::send_to_locals(const Send& send) {
  for (const uint32_t local : columns_.locals()) {
    if (local != columns_.rank()) outbox_.add(local, send);
  }
}

// ---- who is late

MissingRanks ReturnedRows::missing(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  MissingRanks late;
  std::vector<bool> unanswered(columns_.count());
  for (const Census& census : censuses_) {
    unanswered[census.column()] = !census.answered(step);
    const std::vector<uint32_t> unheard = census.missing(step);
    late.to_tell.insert(late.to_tell.end(), unheard.begin(), unheard.end());
  }
  for (uint32_t piece = 0; piece < buffer.pieces.size(); ++piece) {
    const uint32_t column = to_ == ReturnTo::kOwnHost ? piece : columns_.column_of(piece);
    // Before the answer it is not known which pieces there are.
    if (buffer.pieces[piece].whole || unanswered[column]) continue;
    const uint32_t sender = piece_sender(piece, SectionKind::kLocalBroadcast);
    late.to_return.push_back(sender == kNoRank ? piece : sender);
  }
  return late;
}

}  // namespace parallax
