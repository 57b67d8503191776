// SPDX-License-Identifier: Apache-2.0
// Loans, and the turns of who reads them. See lending.h.
#include "message/lending.h"

#include <algorithm>

#include "base/check.h"
#include "base/sealed_memory.h"

namespace parallax {

namespace {

constexpr uint32_t kPlaceBits = 32;  // of a loan's number; above them its use
constexpr uint32_t kLoansMin = 64;

}  // namespace

Lending::Lending(Transport& transport) : transport_(transport), page_bytes_(bytes_of_page()) {}

// ---- lending

WholePages Lending::whole_pages(const BufferPlace& place, uint64_t bytes,
                                const Beside& beside) const {
  const uint64_t borrowed = place.offset - std::min(place.offset, beside.before);
  const uint64_t from = (borrowed + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  const uint64_t borrowed_end = place.offset + bytes + beside.behind;
  uint64_t end = borrowed_end / page_bytes_ * page_bytes_;
  const PeerMemory* const memory = transport_.peer_memory();
  if (memory != nullptr && !memory->may_be_written()) return {};
  if (end != borrowed_end && memory != nullptr &&
      borrowed_end == memory->used_bytes(place.buffer)) {
    end = borrowed_end;
  }
  const uint64_t first = std::max(from, place.offset);
  const uint64_t last = std::min(end, place.offset + bytes);
  if (first >= last) return {};
  return {.first = first - place.offset, .end = last - place.offset};
}

ByteRange Lending::pages_of(const BufferPlace& place, const std::byte* data,
                            const WholePages& whole) const {
  const uint64_t from = (place.offset + whole.first) / page_bytes_ * page_bytes_;
  const uint64_t end = (place.offset + whole.end + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  return {reinterpret_cast<uintptr_t>(data) - place.offset + from, end - from};
}

bool Lending::share(const SharedMemory& memory) {
  PeerMemory* const peers = transport_.peer_memory();
  return peers != nullptr && peers->share(memory);
}

void Lending::unshare(const void* base) {
  PeerMemory* const peers = transport_.peer_memory();
  if (peers != nullptr) peers->unshare(base);
}

BufferPlace Lending::place_of(const void* data, uint64_t bytes) const {
  const PeerMemory* const memory = transport_.peer_memory();
  return memory == nullptr ? BufferPlace() : memory->place_of(data, bytes);
}

BufferPlace Lending::place_for(uint32_t to, const void* data, uint64_t bytes) const {
  const BufferPlace place = place_of(data, bytes);
  if (place.buffer == 0) return {};
  return transport_.peer_memory()->mapped_by(to, place.buffer) ? place : BufferPlace();
}

bool Lending::has_mapped(uint32_t rank, uint64_t buffer) const {
  const PeerMemory* const memory = transport_.peer_memory();
  return memory != nullptr && memory->mapped_by(rank, buffer);
}

uint64_t Lending::lend(uint32_t to, uint64_t bytes, uint32_t* pending, const ByteRange& pages,
                       uint32_t parts) {
  PARALLAX_CHECK(pending != nullptr);
  if (free_.empty()) {
    const auto count = static_cast<uint32_t>(loans_.size());
    loans_.resize(std::max(kLoansMin, 2 * count));
    free_.reserve(loans_.size());  // so that end() allocates nothing
    for (uint32_t place = count; place < loans_.size(); ++place) free_.push_back(place);
  }
  const uint32_t place = free_.back();
  free_.pop_back();
  Loan& loan = loans_[place];
  loan.to = to;
  loan.pages = pages;
  loan.parts = parts;
  loan.pending = pending;
  ++*pending;
  counts_.lent_bytes += bytes;
  return uint64_t{++loan.use} << kPlaceBits | place;
}

bool Lending::returned(uint32_t by, uint64_t loan, uint32_t parts) {
  const auto place = static_cast<uint32_t>(loan);
  if (place >= loans_.size()) return false;
  Loan& found = loans_[place];
  if (found.pending == nullptr || found.to != by || found.use != loan >> kPlaceBits ||
      found.parts < parts) {
    return false;
  }
  found.parts -= parts;
  if (found.parts == 0) end(place);
  return true;
}

void Lending::take_back(uint32_t from) {
  bool any = false;
  for (uint32_t place = 0; place < loans_.size(); ++place) {
    if (loans_[place].pending == nullptr || loans_[place].to != from) continue;
    // Before its memory may change. A transport that is gone has done so itself.
    PeerMemory* const memory = transport_.peer_memory();
    if (!any && memory != nullptr) memory->retract(from);
    any = true;
    const ByteRange& pages = loans_[place].pages;
    if (pages.bytes > 0 && memory != nullptr && !memory->make_private(pages)) continue;
    end(place);
  }
}

void Lending::take_back_all() {
  for (const Loan& each : loans_) {
    if (each.pending != nullptr) take_back(each.to);
  }
}

void Lending::end(uint32_t place) {
  uint32_t& pending = *loans_[place].pending;
  PARALLAX_CHECK(pending > 0);
  --pending;
  loans_[place].pending = nullptr;
  free_.push_back(place);
}

// ---- reading

const std::byte* Lending::find(uint32_t rank, const BufferPlace& place, uint64_t bytes) const {
  PeerMemory* const memory = transport_.peer_memory();
  return memory == nullptr ? nullptr : memory->find(rank, place, bytes);
}

std::byte* Lending::find_writable(uint32_t rank, const BufferPlace& place, uint64_t bytes) const {
  PeerMemory* const memory = transport_.peer_memory();
  return memory == nullptr ? nullptr : memory->find_writable(rank, place, bytes);
}

bool Lending::was_meant(uint32_t rank) const {
  const PeerMemory* const memory = transport_.peer_memory();
  return memory != nullptr && memory->was_meant(rank);
}

std::vector<Lending::Awake>::iterator Lending::find_awake(const LentReader* reader) {
  return std::find_if(awake_.begin(), awake_.end(),
                      [reader](const Awake& each) { return each.reader == reader; });
}

void Lending::wake(LentReader* reader, int32_t priority) {
  const auto found = find_awake(reader);
  if (found != awake_.end()) {
    if (found->priority >= priority) return;
    awake_.erase(found);
  }
  const auto behind = std::find_if(awake_.begin(), awake_.end(), [priority](const Awake& each) {
    return each.priority < priority;
  });
  awake_.insert(behind, {.reader = reader, .priority = priority});
}

void Lending::forget(const LentReader* reader) {
  const auto found = find_awake(reader);
  if (found != awake_.end()) awake_.erase(found);
}

// Who is woken meanwhile with the same priority has its turn too, and who is more urgent the next.
bool Lending::read() {
  if (awake_.empty()) return false;
  const int32_t priority = awake_[0].priority;
  for (size_t i = 0; i < awake_.size() && awake_[i].priority >= priority;) {
    LentReader* const reader = awake_[i].reader;
    const bool more = reader->read_lent();
    if (i >= awake_.size() || awake_[i].reader != reader) {
      const auto now = find_awake(reader);
      if (now == awake_.end()) continue;
      i = static_cast<size_t>(now - awake_.begin());
    }
    if (more) {
      ++i;
    } else {
      awake_.erase(awake_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return true;
}

}  // namespace parallax
