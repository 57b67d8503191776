// SPDX-License-Identifier: Apache-2.0
// Packing of sends into messages. See outbox.h.
#include "message/outbox.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "message/place_offer.h"
#include "message/section_payload.h"

namespace parallax {

Outbox::Outbox(uint32_t self, Transport& transport, Receiver& loopback, OutboxObserver& observer)
    : self_(self),
      transport_(transport),
      writes_(transport.remote_writes()),
      lending_(transport),
      loopback_(loopback),
      observer_(observer) {}

Status Outbox::start(uint32_t epoch) {
  epoch_ = epoch;
  const size_t buffer_bytes = transport_.message_bytes_max();
  PARALLAX_CHECK(buffer_bytes >= kMessageBytesMin);
  PARALLAX_RETURN_IF_ERROR(
      arena_.reserve((kBufferCount + 1) * Arena::bytes_for<std::byte>(buffer_bytes)));
  coder_.reserve(arena_.take<std::byte>(buffer_bytes));
  for (uint32_t i = 0; i < kBufferCount; ++i) {
    buffers_.emplace_back().bytes = arena_.take<std::byte>(buffer_bytes);
    free_buffers_.push_back(kBufferCount - 1 - i);
  }
  reserve_sends(kSendsReserved);
  for (uint32_t i = 0; i < kBlobsReserved; ++i) {
    blobs_.emplace_back().reserve(kControlBytesMax);
    free_blobs_.push_back(i);
  }
  // What start() makes is no growth.
  growth_count_ = 0;
  return {};
}

void Outbox::reserve_sends(size_t count) {
  while (sends_.size() < count) {
    sends_.emplace_back();
    sends_.back().next = free_sends_;
    free_sends_ = &sends_.back();
  }
}

Send* Outbox::new_send() {
  if (free_sends_ == nullptr) {
    ++growth_count_;
    reserve_sends(2 * sends_.size());
  }
  Send* send = free_sends_;
  free_sends_ = send->next;
  ++queued_sends_;
  return send;
}

void Outbox::release(Send* send) {
  news_ |= send->blob == UINT32_MAX;
  if (send->pending != nullptr) {
    PARALLAX_CHECK(*send->pending > 0);
    --*send->pending;
  }
  // A later step may have its own there by now.
  if (send->handle != nullptr && *send->handle == send) *send->handle = nullptr;
  if (send->blob != UINT32_MAX) free_blobs_.push_back(send->blob);
  send->next = free_sends_;
  free_sends_ = send;
  --queued_sends_;
}

Outbox::Peer& Outbox::peer(uint32_t rank) {
  const auto found = peers_.find(rank);
  if (found != peers_.end()) return *found->second;
  // Made before the map has an entry for it: no memory then leaves no null behind.
  auto made = std::make_unique<Peer>();
  made->rank = rank;
  std::unique_ptr<Peer>& slot = peers_[rank] = std::move(made);
  // Every peer fits both lists, so that append() allocates nothing.
  ready_.reserve(peers_.size());
  ready_next_.reserve(peers_.size());
  return *slot;
}

void Outbox::note_ready(Peer& peer) {
  if (peer.ready) return;
  peer.ready = true;
  ready_.push_back(&peer);
}

void Outbox::add(uint32_t to, const Send& send) {
  Peer& to_peer = peer(to);
  Send* queued = new_send();
  *queued = send;
  if (queued->handle != nullptr) *queued->handle = queued;
  // Released and not ignored: whoever watches *pending would wait for it.
  if (to_peer.dropped || data_dropped_) {
    release(queued);
  } else {
    to_peer.data.add(queued);
    note_ready(to_peer);
  }
}

// One that has begun goes on there.
void Outbox::hasten(uint32_t to, const uint32_t* pending) { peer(to).data.hasten(pending); }

void Outbox::send_bytes(uint32_t to, const SectionHeader& header,
                        std::span<const std::byte> payload) {
  PARALLAX_CHECK(payload.size() <= kControlBytesMax);
  Peer& to_peer = peer(to);
  if (to_peer.dropped) return;
  Send* send = new_send();
  *send = Send{};
  send->header = header;
  send->header.encoding = Encoding::kBytes;
  send->count = payload.size();
  if (!payload.empty()) {
    if (free_blobs_.empty()) {
      ++growth_count_;
      free_blobs_.push_back(static_cast<uint32_t>(blobs_.size()));
      blobs_.emplace_back().reserve(kControlBytesMax);
    }
    send->blob = free_blobs_.back();
    free_blobs_.pop_back();
    // Copied: the payload is the caller's only during the call, and packing may come late.
    blobs_[send->blob].assign(payload.begin(), payload.end());
    send->bytes = blobs_[send->blob].data();
  }
  to_peer.control.push(send);
  note_ready(to_peer);
}

bool Outbox::has_queued(uint32_t rank) const {
  const auto found = peers_.find(rank);
  return found != peers_.end() && found->second->has_any();
}

std::vector<uint32_t> Outbox::peers_with_data() const {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, each] : peers_) {
    if (!each->data.empty()) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Outbox::drop_data(Peer& peer) {
  while (!peer.data.empty()) release(peer.data.pop());
}

void Outbox::drop(uint32_t rank) {
  Peer& dropped = peer(rank);
  // For good: what is added later is released at once.
  dropped.dropped = true;
  while (!dropped.control.empty()) release(dropped.control.pop());
  drop_data(dropped);
  lending_.take_back(rank);
}

void Outbox::drop_data() {
  data_dropped_ = true;
  for (auto& [rank, each] : peers_) drop_data(*each);
  lending_.take_back_all();
}

void Outbox::drop_all() {
  drop_data();
  for (auto& [rank, each] : peers_) {
    while (!each->control.empty()) release(each->control.pop());
  }
}

bool Outbox::on_sent(uint64_t cookie) {
  const auto index = static_cast<uint32_t>(cookie);
  const bool awaited = buffers_[index].borrowed != nullptr || buffers_[index].lent;
  free_buffer(index);
  return awaited || queued_sends_ > 0;
}

void Outbox::free_buffer(uint32_t index) {
  uint32_t*& borrowed = buffers_[index].borrowed;
  if (borrowed != nullptr) {
    PARALLAX_CHECK(*borrowed > 0);
    --*std::exchange(borrowed, nullptr);
  }
  if (std::exchange(buffers_[index].lent, false)) --lent_buffers_;
  free_buffers_.push_back(index);
}

bool Outbox::pump(bool loopback) {
  if (ready_.empty()) return false;
  bool moved = false;
  try {
    while (pump_once(loopback)) moved = true;
  } catch (...) {
    // A failed check in what a loopback message led to. The notice of it must still reach every
    // peer, but this turn has taken them out of the list.
    collect_ready();
    throw;
  }
  // In the midst of a call: the next pass is to hear of it.
  if (!loopback) news_ |= moved;
  return moved;
}

// One message for each peer that is due one, so that none waits for another's backlog.
bool Outbox::pump_once(bool loopback) {
  bool moved = false;
  std::swap(ready_, ready_next_);
  ready_.clear();
  // By index: a loopback message may add a peer, which makes room in both lists.
  for (size_t i = 0; i < ready_next_.size(); ++i) {
    Peer* each = ready_next_[i];
    each->ready = false;
    if ((loopback || each->rank != self_) && pump_peer(*each)) moved = true;
    if (!each->ready && each->has_any()) {
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
    each->ready = each->has_any();
    if (each->ready) ready_.push_back(each.get());
  }
}

// One message for one peer.
bool Outbox::pump_peer(Peer& to) {
  if (!to.has_any()) return false;
  // The last buffers are for control and for this rank itself: peers that take nothing must not
  // keep us from telling the others anything.
  const bool data_only = to.control.empty() && to.rank != self_;
  if (free_buffers_.size() <= (data_only ? kBuffersKept : 0)) return false;
  if ((to.rank != self_ && !transport_.writable(to.rank))) return false;
  const uint32_t index = free_buffers_.back();
  free_buffers_.pop_back();
  SendBuffer& buffer = buffers_[index];
  buffer.used = buffer.message_bytes = buffer.plain_bytes = sizeof(MessageHeader);
  buffer.run_first = buffer.section_count = buffer.segment_count = 0;
  buffer.piece = {};
  fill(to, buffer);
  // An empty buffer takes at least one section of any send.
  PARALLAX_CHECK(buffer.section_count > 0);
  const MessageHeader header{kWireMagic, epoch_, ++to.sequence, buffer.section_count};
  std::memcpy(buffer.bytes.data(), &header, sizeof header);
  close_run(buffer);
  observer_.on_message_packed(to.rank, buffer.message_bytes + buffer.piece.bytes);
  if (to.rank == self_) {
    free_buffers_.push_back(index);  // nothing packs while it is being read
    news_ = true;
    loopback_.on_message(self_, buffer.bytes.first(buffer.used));
    return true;
  }
  const std::span<const Segment> segments(buffer.segments.data(), buffer.segment_count);
  const Status sent = buffer.piece.bytes == 0
                          ? transport_.send(to.rank, segments, index)
                          : writes_->send(to.rank, segments, buffer.piece, index);
  if (!sent.ok()) {
    free_buffer(index);  // lost: the transport reports it at its next poll
    news_ = true;
    drop(to.rank);
  } else if (!transport_.copies_sends(to.rank)) {
    buffer.lent = true;
    ++lent_buffers_;
  }
  return true;
}

// Packs sends until the buffer is full: control first, data only behind all of it.
void Outbox::fill(Peer& to, SendBuffer& buffer) {
  // True: all of the send is packed.
  const auto pack_next = [&](Send& send) {
    // A piece ends its message: the peer sees both at once.
    if (buffer.piece.bytes > 0) return false;
    if (send.written) return pack_written(to.rank, send, buffer);
    if (send.lent.buffer != 0) return pack_lent(to.rank, send, buffer);
    if (places(to.rank, send)) return pack_piece(send, to.rank, buffer);
    while (true) {
      const uint64_t before = send.packed;
      if (pack(to.rank, send, buffer)) return true;
      // What coding has spared is room for more of the same.
      const size_t room = buffer.bytes.size() - buffer.message_bytes;
      const bool more = send.coding.any() && send.packed > before;
      if (!more || room < buffer.bytes.size() / 8) return false;
    }
  };
  while (!to.control.empty()) {
    if (!pack_next(*to.control.front())) return;
    release(to.control.pop());
  }
  while (!to.data.empty()) {
    if (!pack_next(*to.data.front())) return;
    release(to.data.pop());
  }
}

// Writes one section of the send; true if that was its last.
bool Outbox::pack(uint32_t to, Send& send, SendBuffer& buffer) {
  const size_t room = buffer.bytes.size() - buffer.message_bytes;
  if (room < sizeof(SectionHeader) || buffer.has_much()) return false;
  const uint64_t left = send.count - send.packed;
  const uint64_t fit = std::min(left, items_that_fit(send, room - sizeof(SectionHeader)));
  const bool whole = send.whole || send.blob != UINT32_MAX;  // control is never cut
  // A send without items is a section too: its flags are what it has to say.
  if (left > 0 && (fit == 0 || (whole && fit < left))) {
    PARALLAX_CHECK(buffer.section_count > 0);  // else it would never fit
    return false;
  }
  SectionHeader header = send.header;
  header.first += send.packed;
  header.count = static_cast<uint32_t>(fit);
  const bool finished = fit == left;
  // Last and contributed are said by the last section alone, a pull's dtype by every one.
  if (!finished) header.flags &= kSectionKeptFlags;
  if (header.encoding == Encoding::kListedRows && fit > 0) {
    header.first = send.rows.row_keys[send.packed];
  }
  header.payload_bytes =
      static_cast<uint32_t>(bytes_before_numbers(send, fit) + fit * bytes_of_item(send));
  std::byte* out = buffer.bytes.data() + buffer.used;
  buffer.used += sizeof header;
  if (sends_in_place(to, send, header.payload_bytes, buffer)) {
    close_run(buffer);
    const std::byte* from = send.dense + send.packed * send.format.source_bytes;
    buffer.segments[buffer.segment_count++] = {from, header.payload_bytes};
  } else {
    write_payload(send, fit, out + sizeof header);
    const size_t plain_bytes = header.payload_bytes;
    buffer.plain_bytes += plain_bytes;
    if (send.coding.any() && fit > 0 &&
        coder_.code(plain_section(send, header, out + sizeof header), send.coding, &header,
                    out + sizeof header)) {
      observer_.on_section_coded(to, header, plain_bytes - header.payload_bytes);
    }
    buffer.used += header.payload_bytes;
  }
  std::memcpy(out, &header, sizeof header);
  buffer.message_bytes += sizeof header + header.payload_bytes;
  send.packed += fit;
  ++buffer.section_count;
  observer_.on_section_packed(to, header, sizeof header + header.payload_bytes);
  return finished;
}

// The release of a send follows its packing, so the transport must have read it by then; as
// messages leave before anything else runs, it has where it copies.
bool Outbox::sends_in_place(uint32_t to, const Send& send, size_t payload_bytes,
                            const SendBuffer& buffer) const {
  // The run before it, the payload, and what may follow.
  constexpr uint32_t kSegmentsTaken = 3;
  return send.header.encoding == Encoding::kDense && send.format.convert == nullptr &&
         payload_bytes >= kInPlaceBytesMin && to != self_ &&
         buffer.segment_count + kSegmentsTaken <= kSegmentsMax && transport_.copies_sends(to);
}

// What was packed since the last segment becomes one.
void Outbox::close_run(SendBuffer& buffer) {
  if (buffer.used == buffer.run_first) return;
  buffer.segments[buffer.segment_count++] = {buffer.bytes.data() + buffer.run_first,
                                             buffer.used - buffer.run_first};
  buffer.run_first = buffer.used;
}

}  // namespace parallax
