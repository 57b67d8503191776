// SPDX-License-Identifier: Apache-2.0
// UcxTransport: messages between hosts as UCP active messages, eager only. One worker for all
// messages, one id for data and one for credits, and a worker for each further rail. Owned by one
// caller at a time, as transport.h says; UCX keeps a thread of its own for accepting connections,
// which runs none of our code.
//
// Design notes
// - A message is sent from the caller's segments and delivered out of UCX's receive buffer, from
//   within poll(): UCX calls back only while ucp_worker_progress runs. What a Receiver throws there
//   is kept until UCX has returned, because its C frames must not be unwound.
// - UCX has no back-pressure: unsent messages would queue without a bound. So at most
//   kSendsInFlightMax messages to a peer are not acknowledged; the receiver acknowledges every
//   kCreditBatch messages by a tiny message, one in flight per peer.
// - Pieces are placed by ucx_writes.h. A message waits for the piece before it, and those behind
//   that message wait with it, in order; they leave when what is noted is acted upon.
// - A peer has a link for each rail that both have (ucx_links.h). Messages take the first alone, so
// their order is its own; pieces take any (ucx_writes.h).
// - What UCX tells in callbacks (an endpoint failed, a rank without an endpoint wrote to us) is
//   noted in a list and acted upon after progress. Only a Receiver that sends to a new peer from
//   within on_message opens an endpoint there.
// - The first message in either direction opens an endpoint on both sides, so that both see a
//   death. UCX reports a killed process, not a stopped one, nor a silent network: leases do that.
// - A rank that goes says so to each peer, after its last message: over verbs a peer that has
// nothing
//   to send would hear of it from UCX after half a minute.
// - A failed or forgotten endpoint is closed by force; UCX then completes what was in flight, and
//   only then does on_sent say so.
// - UCX 1.13 ends the process by an assertion, here or at the other end, when an endpoint is closed
//   while the two still exchange how to reach each other (wire-up). So each side greets the other
//   when it opens an endpoint, and one that is not wired yet is left to UCX, whatever becomes of
//   its peer: it is closed once it is wired or broken. One that is neither when the transport goes
//   stays with its worker until the process ends. Sends on it complete late, or never.
#ifndef PARALLAX_TRANSPORT_UCX_UCX_TRANSPORT_H_
#define PARALLAX_TRANSPORT_UCX_UCX_TRANSPORT_H_

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "transport/inproc/fifo.h"
#include "transport/module/network_transport.h"
#include "transport/ucx/ucx_links.h"
#include "transport/ucx/ucx_peer.h"
#include "transport/ucx/ucx_workers.h"
#include "transport/ucx/ucx_writes.h"

namespace parallax {

class UcxTransport final : public NetworkTransport {
 public:
  static Status create(const NetworkOptions& options, std::unique_ptr<NetworkTransport>* transport);
  // Says goodbye, hands what was sent to the kernel, for at most kFlushNsMax, then closes by force
  // what is wired within kCloseNsMax.
  ~UcxTransport() override;

  std::string_view name() const override { return "ucx"; }
  size_t message_bytes_max() const override { return message_bytes_max_; }
  RemoteWrites* remote_writes() override;
  bool writable(uint32_t to) const override;
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override;
  bool poll(Receiver& receiver) override;
  int wait_fd() const override { return workers_->wait_fd(); }
  bool arm() override;
  void forget(uint32_t rank) override;

  std::string address() const override;
  Status connect(uint32_t rank, const std::string& address) override;
  Status wire(std::span<const uint32_t> ranks, int64_t deadline_ns, uint32_t* missing) override;
  std::string description() const override { return workers_->description(); }
  NetworkWay way_to(uint32_t rank) override;
  NetworkStats stats() const override;

  // For its UcxWrites and UcxLinks.
  const std::vector<std::unique_ptr<UcxPeer>>& peers() const { return peers_; }
  // send(), behind a piece where there is one.
  Status send_behind(uint32_t to, std::span<const Segment> segments, const PlacedPiece* piece,
                     uint64_t cookie);
  UcxWrites* writes() { return writes_.get(); }
  UcxLinks& links() { return links_; }
  UcxPeer* peer_of(const UcxHeader& header);
  void fail(UcxPeer& peer, ucs_status_t status);
  void attend_later(UcxPeer& peer);
  void give_up_pieces();

 private:
  struct Completion {
    UcxPeer* peer = nullptr;
    uint64_t cookie = 0;
  };

  UcxTransport(const NetworkOptions& options, std::unique_ptr<UcxWorkers> workers, uint64_t key);

  // Called by UCX.
  static ucs_status_t on_data(void* self, const void* header, size_t header_bytes, void* data,
                              size_t bytes, const ucp_am_recv_param_t* param) noexcept;
  static ucs_status_t on_credit(void* self, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param) noexcept;
  static ucs_status_t on_goodbye(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param) noexcept;
  static void on_send_done(void* request, ucs_status_t status, void* slot) noexcept;
  static void on_credit_done(void* request, ucs_status_t status, void* peer) noexcept;
  static void on_goodbye_done(void* request, ucs_status_t status, void* self) noexcept;

  UcxPeer* sender_of(const UcxHeader& header);
  void deliver(UcxPeer& peer, std::span<const std::byte> message) noexcept;
  void complete(UcxSlot& slot);
  [[nodiscard]] bool post(UcxSlot& slot);
  void release_held(UcxPeer& peer);

  void open_endpoint(UcxPeer& peer);
  bool attend(Receiver& receiver);
  void send_credit(UcxPeer& peer);
  void say_goodbye(UcxPeer& peer);
  bool deliver_completions(Receiver& receiver);

  const uint32_t rank_;
  const uint64_t key_;
  const size_t message_bytes_max_;
  std::unique_ptr<UcxWorkers> workers_;
  UcxLinks links_;
  std::vector<std::unique_ptr<UcxPeer>> peers_;  // by rank; null where connect() was not called
  UcxPeer* attention_ = nullptr;
  Fifo<Completion> completions_;
  size_t peers_opened_ = 0;            // ever: completions_ has room for their slots
  bool armed_ = false;                 // and nothing was found since
  Receiver* receiver_ = nullptr;       // during poll()
  std::exception_ptr receiver_error_;  // thrown by it under UCX
  NetworkStats stats_;
  std::unique_ptr<UcxWrites> writes_;  // null: not over verbs
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_UCX_TRANSPORT_H_
