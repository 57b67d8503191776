// SPDX-License-Identifier: Apache-2.0
// Packing of streams into messages. See outbox.h.
#include "transport/outbox.h"

#include <algorithm>

#include "base/check.h"

namespace parallax {

Outbox::Outbox(uint32_t self, Transport& transport, Receiver& loopback, OutboxObserver& observer)
    : self_(self), transport_(transport), loopback_(loopback), observer_(observer) {}

Status Outbox::start(uint32_t epoch) {
  epoch_ = epoch;
  const size_t chunk_bytes = transport_.message_bytes_max();
  PARALLAX_CHECK(chunk_bytes >= kMessageBytesMin);
  PARALLAX_RETURN_IF_ERROR(arena_.reserve(kChunkCount * Arena::bytes_for<std::byte>(chunk_bytes)));
  for (uint32_t i = 0; i < kChunkCount; ++i) {
    chunks_.push_back({arena_.take<std::byte>(chunk_bytes)});
    free_chunks_.push_back(kChunkCount - 1 - i);
  }
  reserve_streams(kStreamsReserved);
  for (uint32_t i = 0; i < kBlobsReserved; ++i) {
    blobs_.emplace_back().reserve(kControlBytesMax);
    free_blobs_.push_back(i);
  }
  growth_count_ = 0;
  return {};
}

void Outbox::reserve_streams(size_t count) {
  while (streams_.size() < count) {
    streams_.emplace_back();
    streams_.back().next = free_streams_;
    free_streams_ = &streams_.back();
  }
}

Stream* Outbox::new_stream() {
  if (free_streams_ == nullptr) {
    ++growth_count_;
    reserve_streams(streams_.size() + kStreamsReserved);
  }
  Stream* stream = free_streams_;
  free_streams_ = stream->next;
  ++queued_streams_;
  return stream;
}

void Outbox::release(Stream* stream) {
  if (stream->pending != nullptr) {
    PARALLAX_CHECK(*stream->pending > 0);
    --*stream->pending;
  }
  if (stream->blob != UINT32_MAX) free_blobs_.push_back(stream->blob);
  stream->next = free_streams_;
  free_streams_ = stream;
  --queued_streams_;
}

Outbox::Peer& Outbox::peer(uint32_t rank) {
  const auto found = peers_.find(rank);
  if (found != peers_.end()) return *found->second;
  auto made = std::make_unique<Peer>();  // before its place: a failure leaves no hole
  made->rank = rank;
  std::unique_ptr<Peer>& slot = peers_[rank] = std::move(made);
  ready_.reserve(peers_.size());
  ready_next_.reserve(peers_.size());
  return *slot;
}

void Outbox::append(Peer& peer, Queue& queue, Stream* stream) {
  stream->next = nullptr;
  (queue.tail == nullptr ? queue.head : queue.tail->next) = stream;
  queue.tail = stream;
  if (!peer.ready) {
    peer.ready = true;
    ready_.push_back(&peer);
  }
}

void Outbox::add(uint32_t to, const Stream& stream) {
  Peer& to_peer = peer(to);
  Stream* queued = new_stream();
  *queued = stream;
  if (to_peer.dropped || data_dropped_) {
    release(queued);
  } else {
    append(to_peer, to_peer.data, queued);
  }
}

void Outbox::send_bytes(uint32_t to, const SectionHeader& header,
                        std::span<const std::byte> payload) {
  PARALLAX_CHECK(payload.size() <= kControlBytesMax);
  Peer& to_peer = peer(to);
  if (to_peer.dropped) return;
  Stream* stream = new_stream();
  *stream = Stream{};
  stream->header = header;
  stream->header.encoding = Encoding::kBytes;
  stream->count = payload.size();
  if (!payload.empty()) {
    if (free_blobs_.empty()) {
      ++growth_count_;
      free_blobs_.push_back(static_cast<uint32_t>(blobs_.size()));
      blobs_.emplace_back().reserve(kControlBytesMax);
    }
    stream->blob = free_blobs_.back();
    free_blobs_.pop_back();
    blobs_[stream->blob].assign(payload.begin(), payload.end());
    stream->bytes = blobs_[stream->blob].data();
  }
  append(to_peer, to_peer.control, stream);
}

bool Outbox::has_queued(uint32_t rank) const {
  const auto found = peers_.find(rank);
  return found != peers_.end() &&
         (found->second->control.head != nullptr || found->second->data.head != nullptr);
}

std::vector<uint32_t> Outbox::peers_with_data() const {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, each] : peers_) {
    if (each->data.head != nullptr) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Outbox::drop_queue(Queue& queue) {
  while (queue.head != nullptr) {
    Stream* stream = queue.head;
    queue.head = stream->next;
    release(stream);
  }
  queue.tail = nullptr;
}

void Outbox::drop(uint32_t rank) {
  Peer& dropped = peer(rank);
  dropped.dropped = true;
  drop_queue(dropped.control);
  drop_queue(dropped.data);
}

void Outbox::drop_data() {
  data_dropped_ = true;
  for (auto& [rank, each] : peers_) drop_queue(each->data);
}

void Outbox::on_sent(uint64_t token) { free_chunks_.push_back(static_cast<uint32_t>(token)); }

bool Outbox::pump() {
  bool moved = false;
  try {
    while (pump_once()) moved = true;
  } catch (...) {
    // A failed check in what a loopback message led to: the notice of it must still reach everyone.
    collect_ready();
    throw;
  }
  return moved;
}

// One message for each peer that is due one.
bool Outbox::pump_once() {
  bool moved = false;
  std::swap(ready_, ready_next_);
  ready_.clear();
  // By index: a loopback message may add a peer, which makes room in both lists.
  for (size_t i = 0; i < ready_next_.size(); ++i) {
    Peer* each = ready_next_[i];
    each->ready = false;
    if (pump_peer(*each)) moved = true;
    if (!each->ready && (each->control.head != nullptr || each->data.head != nullptr)) {
      each->ready = true;
      ready_.push_back(each);
    }
  }
  ready_next_.clear();
  return moved;
}

void Outbox::collect_ready() {
  ready_.clear();
  ready_next_.clear();
  for (auto& [rank, each] : peers_) {
    each->ready = each->control.head != nullptr || each->data.head != nullptr;
    if (each->ready) ready_.push_back(each.get());
  }
}

// One message for one peer.
bool Outbox::pump_peer(Peer& to) {
  if (to.control.head == nullptr && to.data.head == nullptr) return false;
  // The last chunks are for control and for this rank itself: slow peers must not silence us to the
  // others.
  const bool data_only = to.control.head == nullptr && to.rank != self_;
  if (free_chunks_.size() <= (data_only ? kChunksKept : 0)) return false;
  if ((to.rank != self_ && !transport_.writable(to.rank))) return false;
  const uint32_t index = free_chunks_.back();
  free_chunks_.pop_back();
  Chunk& chunk = chunks_[index];
  chunk.used = sizeof(MessageHeader);
  chunk.section_count = 0;
  if (fill(to, to.control, chunk)) fill(to, to.data, chunk);
  PARALLAX_CHECK(chunk.section_count > 0);
  const MessageHeader header{kWireMagic, epoch_, ++to.sequence, chunk.section_count};
  std::memcpy(chunk.bytes.data(), &header, sizeof header);
  observer_.on_message_packed(to.rank, chunk.used);
  if (to.rank == self_) {
    free_chunks_.push_back(index);  // nothing takes one before the message is read
    loopback_.on_message(self_, chunk.bytes.first(chunk.used));
    return true;
  }
  const Segment segment{chunk.bytes.data(), chunk.used};
  if (!transport_.send(to.rank, {&segment, 1}, index).ok()) {
    free_chunks_.push_back(index);  // lost: the transport reports it at its next poll
    drop(to.rank);
  }
  return true;
}

// Packs streams of a queue until the chunk is full; true if the queue is empty.
bool Outbox::fill(Peer& to, Queue& queue, Chunk& chunk) {
  while (queue.head != nullptr) {
    Stream* stream = queue.head;
    if (!pack(to.rank, *stream, chunk)) return false;
    queue.head = stream->next;
    if (queue.head == nullptr) queue.tail = nullptr;
    release(stream);
  }
  return true;
}

uint64_t Outbox::items_that_fit(const Stream& stream, size_t room) const {
  const size_t row_bytes = stream.row_bytes();
  switch (stream.header.encoding) {
    case Encoding::kBytes:
      return room;
    case Encoding::kDense: {
      const uint64_t fit = room / stream.format.element_bytes;
      const uint64_t left = stream.count - stream.packed;
      return fit >= left ? left : fit / kDenseGrain * kDenseGrain;
    }
    case Encoding::kRows:
      return room / (sizeof(uint32_t) + row_bytes);
    case Encoding::kIds:
      return room / sizeof(uint32_t);
    case Encoding::kValues:
      return room / row_bytes;
  }
  return 0;
}

// Writes one section of the stream; true if that was its last.
bool Outbox::pack(uint32_t to, Stream& stream, Chunk& chunk) {
  const size_t room = chunk.bytes.size() - chunk.used;
  if (room < sizeof(SectionHeader)) return false;
  const uint64_t left = stream.count - stream.packed;
  const uint64_t fit = std::min(left, items_that_fit(stream, room - sizeof(SectionHeader)));
  const bool whole = stream.blob != UINT32_MAX;  // control is never cut
  if (left > 0 && (fit == 0 || (whole && fit < left))) {
    PARALLAX_CHECK(chunk.section_count > 0);  // else it would never fit
    return false;
  }
  SectionHeader header = stream.header;
  header.first += stream.packed;
  header.count = static_cast<uint32_t>(fit);
  const bool finished = fit == left;
  if (!finished) header.flags &= kSectionKeptFlags;
  const size_t row_bytes = stream.row_bytes();
  switch (header.encoding) {
    case Encoding::kBytes:
      header.payload_bytes = header.count;
      break;
    case Encoding::kDense:
      header.payload_bytes = header.count * stream.format.element_bytes;
      break;
    case Encoding::kIds:
      header.payload_bytes = header.count * static_cast<uint32_t>(sizeof(uint32_t));
      break;
    case Encoding::kRows:
      header.payload_bytes = static_cast<uint32_t>(fit * (sizeof(uint32_t) + row_bytes));
      break;
    case Encoding::kValues:
      header.payload_bytes = static_cast<uint32_t>(fit * row_bytes);
      break;
  }
  std::byte* out = chunk.bytes.data() + chunk.used;
  std::memcpy(out, &header, sizeof header);
  write_payload(stream, fit, out + sizeof header);
  stream.packed += fit;
  chunk.used += sizeof header + header.payload_bytes;
  ++chunk.section_count;
  observer_.on_section_packed(to, header, sizeof header + header.payload_bytes);
  return finished;
}

void Outbox::write_payload(const Stream& stream, uint64_t count, std::byte* out) const {
  if (count == 0) return;
  if (stream.header.encoding == Encoding::kBytes) {
    std::memcpy(out, stream.bytes + stream.packed, count);
    return;
  }
  const WireFormat& format = stream.format;
  if (stream.header.encoding == Encoding::kDense) {
    convert_or_copy(format.convert, stream.dense + stream.packed * format.source_bytes, out, count,
                    format.element_bytes);
    return;
  }
  const RowSource& rows = stream.rows;
  const auto slot_of = [&](uint64_t item) {
    return rows.order == nullptr ? static_cast<uint32_t>(item) : rows.order[item];
  };
  if (rows.positions != nullptr) {
    std::memcpy(out, rows.positions + stream.packed, count * sizeof(uint32_t));
    out += count * sizeof(uint32_t);
  }
  if (rows.values == nullptr) return;
  const size_t row_bytes = stream.row_bytes();
  const size_t source_row_bytes = size_t{format.source_bytes} * rows.row_elements;
  for (uint64_t i = 0; i < count; ++i, out += row_bytes) {
    const size_t slot = slot_of(stream.packed + i);
    if (rows.merged != nullptr && (slot & kMergedSlot) != 0) {
      std::memcpy(out, rows.merged + (slot & ~size_t{kMergedSlot}) * row_bytes, row_bytes);
      continue;
    }
    convert_or_copy(format.convert, rows.values + slot * source_row_bytes, out, rows.row_elements,
                    format.element_bytes);
    if (rows.suffix != nullptr) {
      std::memcpy(out + row_bytes - format.element_bytes, rows.suffix, format.element_bytes);
    }
  }
}

}  // namespace parallax
