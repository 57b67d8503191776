// SPDX-License-Identifier: Apache-2.0
// Asking, answering and counting. See cost_probe.h.
#include "engine/cost_probe.h"

#include <algorithm>
#include <cstring>

#include "aggregate/combine.h"

namespace parallax {

namespace {

constexpr size_t kInside = 0, kBetween = 3, kSums = 6, kCopy = 10, kRowSum = 11,
                 kRowSort = 12;  // rows of constants
constexpr SumType kSumTypes[] = {SumType::kF32, SumType::kF64, SumType::kI32, SumType::kI64};
constexpr uint32_t kPieces = 7;  // a sum of each type, a copy, rows added and put in order

uint64_t whole(int64_t ns) { return static_cast<uint64_t>(std::max<int64_t>(0, ns)); }

}  // namespace

void CostProbe::begin() {
  terms_ = {};
  terms_.wanted = true;
  find_links();
  link_ = 0;
  phase_ = links_.empty() ? Phase::kMemory : Phase::kRoundTrips;
  buffer_.assign(kBufferBytes, std::byte{0});
  other_buffer_.assign(kBufferBytes, std::byte{0});
  rows_.emplace();
}

void CostProbe::find_links() {
  const Columns& columns = parts_.columns;
  const std::vector<uint32_t>& locals = columns.locals();
  if (columns.local() % 2 == 0 && columns.local() + 1 < locals.size()) {
    links_.push_back({locals[columns.local() + 1], kInside});
  }
  if (columns.local() == 0 && columns.host() % 2 == 0 &&
      columns.host() + 1 < columns.host_count()) {
    links_.push_back({columns.leader(columns.host() + 1, 0), kBetween});
  }
}

void CostProbe::advance() {
  switch (phase_) {
    case Phase::kRoundTrips:
      if (!asked_) ask(true);
      return;
    case Phase::kBurst:
      // One in each round of a pass: as many messages.
      if (in_burst_ < kBurst) ask(++in_burst_ == kBurst);
      return;
    case Phase::kBytes:
      if (!asked_) ask_bytes();
      return;
    case Phase::kMemory:
      return measure_memory();
    case Phase::kIdle:
    case Phase::kFinished:
      return;
  }
}

// ---- links

void CostProbe::ask(bool wants_answer) {
  if (phase_ == Phase::kRoundTrips || in_burst_ == 1) asked_ns_ = now_ns();
  asked_ = wants_answer;
  SectionHeader header = {.kind = SectionKind::kProbe, .tag = ++number_};
  if (wants_answer) header.flags = kSectionLast;
  parts_.outbox.send_bytes(links_[link_].peer, header, {});
}

void CostProbe::ask_bytes() {
  asked_ns_ = now_ns();
  asked_ = true;
  ++number_;
  for (uint64_t sent = 0; sent < bytes_; sent += kBufferBytes) {
    Send send;
    send.header = {.kind = SectionKind::kProbe, .encoding = Encoding::kDense, .tag = number_};
    if (sent + kBufferBytes >= bytes_) send.header.flags = kSectionLast;
    send.dense = buffer_.data();
    send.count = kBufferBytes / send.format.element_bytes;
    parts_.outbox.add(links_[link_].peer, send);
  }
}

bool CostProbe::on_section(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (header.kind == SectionKind::kProbe) {
    if ((header.flags & kSectionLast) == 0) return true;
    parts_.outbox.send_bytes(from, {.kind = SectionKind::kProbeAnswer, .tag = header.tag}, {});
    return true;
  }
  if (!asked_ || from != waits_for() || header.tag != number_ || header.count != 0) return false;
  asked_ = false;
  answered();
  return true;
}

void CostProbe::answered() {
  const int64_t took_ns = now_ns() - asked_ns_;
  const size_t row = links_[link_].row;
  switch (phase_) {
    case Phase::kRoundTrips: {
      // The first waits for a peer that comes later.
      if (first_answer_ns_ == 0) {
        first_answer_ns_ = now_ns();
        return;
      }
      trips_ns_.push_back(took_ns);
      if (trips_ns_.size() < kRoundTrips && !out_of_time()) return;
      const auto quarter = trips_ns_.begin() + static_cast<ptrdiff_t>(trips_ns_.size() / 4);
      std::nth_element(trips_ns_.begin(), quarter, trips_ns_.end());
      trip_ns_ = *quarter;
      begin_tries(Phase::kBurst);
      return;
    }
    case Phase::kBurst: {
      in_burst_ = 0;
      if (try_again(took_ns)) return;
      const int64_t overhead_ns = std::max<int64_t>(0, least_ns_ - trip_ns_) / (kBurst - 1);
      // A round trip is four ends of messages.
      terms_.measured(row, whole(trip_ns_ / 2 - 2 * std::min(overhead_ns, trip_ns_ / 4)));
      terms_.measured(row + 1, whole(std::min(overhead_ns, trip_ns_ / 4)));
      begin_tries(Phase::kBytes);
      bytes_ = kBytesMin;
      return;
    }
    case Phase::kBytes: {
      const bool may_more = bytes_ < kBytesMax && !out_of_time();
      if (may_more && took_ns - trip_ns_ < kLongEnoughNs) {
        bytes_ *= 4;
        return begin_tries(Phase::kBytes);
      }
      if (try_again(took_ns)) return;
      const int64_t moving_ns = std::max<int64_t>(0, least_ns_ - trip_ns_);
      terms_.measured(row + 2, whole(moving_ns) * 1000 / bytes_);
      return next_link();
    }
    case Phase::kIdle:
    case Phase::kMemory:
    case Phase::kFinished:
      return;
  }
}

void CostProbe::begin_tries(Phase phase) {
  phase_ = phase;
  tries_ = 0;
  confirmed_ = false;
}

// False: the least of these is taken. Who has lost the processor to others loses it again and
// again: of bytes, by which rows are coded, it has to come nearly twice.
bool CostProbe::try_again(int64_t took_ns) {
  if (tries_ == 0 || took_ns < least_ns_ - least_ns_ / 8) {
    confirmed_ = false;
  } else if (took_ns <= least_ns_ + least_ns_ / 8) {
    confirmed_ = true;
  }
  least_ns_ = tries_ == 0 ? took_ns : std::min(least_ns_, took_ns);
  ++tries_;
  const bool may_confirm = phase_ == Phase::kBytes && !confirmed_ && tries_ < kTriesMax;
  return (tries_ < kTriesMin || may_confirm) && !out_of_time();
}

void CostProbe::next_link() {
  trips_ns_.clear();
  first_answer_ns_ = 0;
  phase_ = ++link_ < links_.size() ? Phase::kRoundTrips : Phase::kMemory;
}

// ---- memory

// A piece begins in one run and is over in the next: what it took is charged to it meanwhile.
void CostProbe::measure_memory() {
  if (measured_) return;
  if (piece_begun_) {
    if (!piece_done_) return;
    const int64_t took_ns = now_ns() - piece_ns_;
    const bool of_rows = kSums + piece_ > kCopy;
    const uint64_t what = of_rows ? RowProbe::kRows : kBufferBytes;
    terms_.measured(kSums + piece_, whole(took_ns) * 1000 / (kPasses * what));
    static_assert(kSums + kPieces - 1 == kRowSort && kRowSort < kConstantCount);
    piece_begun_ = false;
    ++piece_;
  }
  if (piece_ == kPieces) {
    phase_ = Phase::kFinished;
    buffer_ = other_buffer_ = {};
    rows_.reset();
    return;
  }
  measured_ = piece_begun_ = true;
  piece_done_ = false;
  job_ = {.run = [](ComputeJob& job) { static_cast<CostProbe*>(job.context)->run_piece(); },
          .done = [](ComputeJob& job) { static_cast<CostProbe*>(job.context)->piece_done_ = true; },
          .context = this,
          .cost_bytes = kPasses * piece_bytes()};
  piece_ns_ = now_ns();
  parts_.compute.submit(job_);
}

uint64_t CostProbe::piece_bytes() const {
  return kSums + piece_ > kCopy ? RowProbe::kBytes : kBufferBytes;
}

void CostProbe::run_piece() {
  for (uint64_t pass = 0; pass < kPasses; ++pass) {
    if (kSums + piece_ == kRowSum) {
      rows_->add();
      continue;
    }
    if (kSums + piece_ == kRowSort) {
      rows_->put_in_order();
      continue;
    }
    if (kSums + piece_ == kCopy) {
      std::memcpy(other_buffer_.data(), buffer_.data(), kBufferBytes);
      continue;
    }
    with_sum_type(kSumTypes[piece_], [&](auto tag) {
      using Sum = typename decltype(tag)::type;
      combine_into<Sum, Sum>(Combine::kSum, reinterpret_cast<Sum*>(other_buffer_.data()),
                             buffer_.data(), kBufferBytes / sizeof(Sum));
    });
  }
}

}  // namespace parallax
