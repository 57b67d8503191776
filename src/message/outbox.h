// SPDX-License-Identifier: Apache-2.0
// Outbox: what this rank owes its peers, as sends that are packed into messages only once a peer
// has a credit and a buffer is free. So what is due to one peer travels in as few messages as it
// fits, memory is bounded whatever a slow peer does, and a send's values are read as late as
// possible. Elements are not copied here where the transport reads them before it returns. Sends to
// this rank itself take the same way and are delivered at once.
//
// A send borrows its source until it is packed; it then decrements *pending, which the state
// machine that owns the source watches. What is placed at the peer (Send::place) is borrowed until
// the transport no longer reads it. Sends to one peer are packed in the order of their adding,
// except that control (send_bytes) goes ahead of data, and of data what is more urgent, and then
// what is `ahead`, before the rest (send_queue.h). Of a large one a message is packed at a time, so
// that what comes later and is more urgent waits for no more than what the transport has already.
// Owned and called by the engine's owner alone.
#ifndef PARALLAX_MESSAGE_OUTBOX_H_
#define PARALLAX_MESSAGE_OUTBOX_H_

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/arena.h"
#include "base/number.h"
#include "message/lending.h"
#include "message/send_queue.h"
#include "message/wire.h"
#include "transport/transport.h"

namespace parallax {

// Sees what is packed, for the counters. Implemented by the engine.
class OutboxObserver {
 public:
  virtual void on_section_packed(uint32_t to, const SectionHeader& header, size_t bytes) = 0;
  // Of the next one: it would have taken so many bytes more.
  virtual void on_section_coded(uint32_t to, const SectionHeader& header, size_t spared_bytes) = 0;
  virtual void on_message_packed(uint32_t to, size_t bytes) = 0;

 protected:
  ~OutboxObserver() = default;
};

class Outbox {
 public:
  // `loopback` gets the messages to `self`. All must outlive the outbox.
  Outbox(uint32_t self, Transport& transport, Receiver& loopback, OutboxObserver& observer);

  // Reserves the buffers. LIMIT.
  Status start(uint32_t epoch);

  // Queues a send; a copy is kept, its sources are borrowed. Dropped at once (with its pending
  // count decremented) when the peer was dropped.
  void add(uint32_t to, const Send& send);

  // As many more elements, which follow those of a dense send that is queued still.
  static void extend(Send* queued, uint64_t count) { queued->count += count; }

  // Sends to that peer with that pending count, which are queued still, go ahead from now on, in
  // their order.
  void hasten(uint32_t to, const uint32_t* pending);

  // Queues a small control section, copied, ahead of data. payload <= kControlBytesMax.
  void send_bytes(uint32_t to, const SectionHeader& header, std::span<const std::byte> payload);

  // Packs and sends what credits allow. Returns true if anything moved. Without `loopback` nothing
  // is delivered to this rank itself, so that nothing here changes meanwhile but what has left.
  bool pump(bool loopback = true);
  // Since this was asked last, something has moved that somebody here may wait for: data was
  // packed, which frees what it borrowed, or something came to this rank from itself. Control to
  // others is nothing that anyone waits for.
  bool take_news() { return std::exchange(news_, false); }

  // A message has left, and its send buffer is free (cookie from Receiver::on_sent). True: that
  // may be what somebody waits for, as one who lent what it carried.
  bool on_sent(uint64_t cookie);

  // Forgets what is due to a lost peer.
  void drop(uint32_t peer);
  // Forgets all data sends, and later ones as they come (the job failed); control still goes out.
  void drop_data();
  // Forgets all there is: nobody of this group is told anything any more.
  void drop_all();

  // Where peers place what they send, and this rank what is theirs; null: there is no such way.
  RemoteWrites* remote_writes() const { return writes_; }
  // What peers read where it lies.
  Lending& lending() { return lending_; }
  const Lending& lending() const { return lending_; }
  // What ranks read of each other beside messages; null: there is no such way.
  Boards* boards() const { return transport_.boards(); }

  bool idle() const { return queued_sends_ == 0 && free_buffers_.size() == kBufferCount; }
  // A later pump, or poll of the transport, has something to do here even if no message comes: what
  // a transport has copied has left.
  bool needs_pass() const { return queued_sends_ > 0 || lent_buffers_ > 0; }
  bool has_queued(uint32_t peer) const;
  // Those that data is queued for, ascending. None: no send borrows anything, and any memory that
  // one might read may be freed.
  std::vector<uint32_t> peers_with_data() const;
  uint64_t growth_count() const { return growth_count_; }
  // Makes room for this many sends at once, so that a step allocates nothing.
  void reserve_sends(size_t count);

  static constexpr size_t kControlBytesMax = 3584;
  // From so many bytes on elements go out from where they lie, where the transport copies sends:
  // below, a segment of its own costs as much as it spares.
  static constexpr size_t kInPlaceBytesMin = 1024;

 private:
  static constexpr size_t kBufferCount = 64;
  static constexpr size_t kBuffersKept = 8;
  static constexpr size_t kSendsReserved = 64;
  static constexpr size_t kBlobsReserved = 16;
  static constexpr size_t kPlainMessagesMax = 4;

  struct Peer {
    uint32_t rank = 0;
    SendList control;  // before all data
    SendQueue data;
    uint32_t sequence = 0;
    bool ready = false;  // in ready_
    bool dropped = false;
    bool has_any() const { return !control.empty() || !data.empty(); }
  };
  // A message while it is packed: headers and small payloads in `bytes`, and between them payloads
  // that are sent from where they lie.
  struct SendBuffer {
    std::span<std::byte> bytes;
    size_t used = 0;       // of bytes
    size_t run_first = 0;  // of those, the first that is in no segment yet
    size_t message_bytes = 0;
    size_t plain_bytes = 0;  // as many, were nothing coded
    uint32_t section_count = 0;
    uint32_t segment_count = 0;
    std::array<Segment, kSegmentsMax> segments = {};
    PlacedPiece piece = {};        // that goes before it; of no bytes: none
    uint32_t* borrowed = nullptr;  // the count of whose memory the piece is read, if any
    bool lent = false;             // the transport reads it until the send completes

    // The peer is to be busy with one message for no longer than with so many that are not coded.
    bool has_much() const { return plain_bytes > kPlainMessagesMax * bytes.size(); }
  };

  Peer& peer(uint32_t rank);
  Send* new_send();
  void release(Send* send);
  void note_ready(Peer& peer);
  void drop_data(Peer& peer);
  bool pump_once(bool loopback);
  void collect_ready();
  bool pump_peer(Peer& peer);
  void fill(Peer& peer, SendBuffer& buffer);
  bool pack(uint32_t to, Send& send, SendBuffer& buffer);
  bool sends_in_place(uint32_t to, const Send& send, size_t payload_bytes,
                      const SendBuffer& buffer) const;
  static void close_run(SendBuffer& buffer);
  bool pack_lent(uint32_t to, Send& send, SendBuffer& buffer);
  bool pack_written(uint32_t to, Send& send, SendBuffer& buffer);
  bool places(uint32_t to, const Send& send) const;
  bool pack_piece(Send& send, uint32_t to, SendBuffer& buffer);
  uint64_t items_of_piece(const Send& send, uint32_t to, const SendBuffer& buffer) const;
  void free_buffer(uint32_t index);

  const uint32_t self_;
  Transport& transport_;
  RemoteWrites* const writes_;
  Lending lending_;
  Receiver& loopback_;
  OutboxObserver& observer_;
  uint32_t epoch_ = 0;
  Arena arena_;
  std::vector<SendBuffer> buffers_;
  SectionCoder coder_;
  std::vector<uint32_t> free_buffers_;
  std::unordered_map<uint32_t, std::unique_ptr<Peer>> peers_;  // those it has talked to
  std::vector<Peer*> ready_, ready_next_;
  std::deque<Send> sends_;
  Send* free_sends_ = nullptr;
  std::deque<std::vector<std::byte>> blobs_;
  std::vector<uint32_t> free_blobs_;
  size_t queued_sends_ = 0;
  size_t lent_buffers_ = 0;
  bool data_dropped_ = false;
  bool news_ = false;
  uint64_t growth_count_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_OUTBOX_H_
