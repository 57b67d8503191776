// SPDX-License-Identifier: Apache-2.0
// InprocTransport: messages between ranks that are threads, or objects, of one process. A send
// copies into the receiver's mailbox and completes at the sender's next poll; a credit is back when
// the receiver has consumed the message. Owned by the rank's engine; owns its mailbox's life in the
// hub: destroying it is the loss of this rank at every peer that has not forgotten it, after the
// messages sent before. Threads as in transport.h; nothing blocks.
#ifndef PARALLAX_TRANSPORT_INPROC_INPROC_TRANSPORT_H_
#define PARALLAX_TRANSPORT_INPROC_INPROC_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/inproc/fifo.h"
#include "transport/inproc/hub.h"
#include "transport/transport.h"

namespace parallax {

class InprocTransport final : public Transport, private Boards {
 public:
  // Once per rank and hub. LIMIT: no descriptor left.
  static Status create(std::shared_ptr<InprocHub> hub, uint32_t rank,
                       std::unique_ptr<InprocTransport>* transport);
  ~InprocTransport() override;

  std::string_view name() const override { return "inproc"; }
  size_t message_bytes_max() const override { return kInprocMessageBytesMax; }
  bool writable(uint32_t to) const override;
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override;
  bool copies_sends(uint32_t) const override { return true; }  // into the mailbox
  bool poll(Receiver& receiver) override;
  int wait_fd() const override { return mailbox_.bell(); }
  bool arm() override;
  void forget(uint32_t rank) override;
  Boards* boards() override { return hub_->board(rank_) == nullptr ? nullptr : this; }

  // Allocations by sends so far: stands still in steady state.
  uint64_t growth_count() const { return growth_count_; }

 private:
  struct Peer {
    SenderQueue* queue = nullptr;  // to the peer; null until the first send
    uint32_t uncompleted = 0;      // sends whose on_sent is still to come
    bool gone = false;             // lost and reported, or forgotten
    mutable bool blocked = false;  // writable() was false for want of room
  };
  struct Completion {
    uint32_t to = 0;
    uint64_t cookie = 0;
  };

  InprocTransport(std::shared_ptr<InprocHub> hub, uint32_t rank);
  BoardHead& head(uint32_t rank) const { return *reinterpret_cast<BoardHead*>(hub_->board(rank)); }
  std::byte* own() override { return hub_->board(rank_) + kBoardHeadBytes; }
  const std::byte* of(uint32_t rank) const override {
    return rank < peers_.size() ? hub_->board(rank) + kBoardHeadBytes : nullptr;
  }
  void post() override;
  uint64_t posts() const override;
  void heed(bool) override {}  // every post wakes
  bool deliver_completions(Receiver& receiver);
  void deliver(const Mailbox::Item& item, Receiver& receiver);
  bool unblock();

  std::shared_ptr<InprocHub> hub_;  // shared: see hub.h
  const uint32_t rank_;
  Mailbox& mailbox_;
  std::vector<Peer> peers_;
  size_t connected_count_ = 0;
  Fifo<Completion> completions_;
  uint64_t posts_seen_ = 0;                // before a look at boards that followed
  mutable std::vector<uint32_t> blocked_;  // peers with `blocked`; reserved for all
  uint64_t growth_count_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_INPROC_INPROC_TRANSPORT_H_
