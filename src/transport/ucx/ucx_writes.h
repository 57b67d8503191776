// SPDX-License-Identifier: Apache-2.0
// UcxWrites: a UcxTransport's RemoteWrites, where it runs over connections of RDMA devices (rc,
// dc): pieces are puts of UCX, which the device writes into the peer's memory.
//
// Design notes
// - A put copies what it reads into buffers that UCX registered when ranks met (ZCOPY_THRESH=inf):
//   UCX 1.13 registers the sender's memory anew for every put otherwise, whatever it is given.
// - The message of a piece leaves after a flush of its endpoint, since puts and messages need not
//   come in order; those behind it wait, so that messages stay in order.
// - Of several rails a piece takes the one with the least under way, messages of the first counted
// in; the message of a piece takes the first, when the piece is at the peer.
// - Over ud puts are messages that the peer's UCX copies, without a look at the key: what was
//   registered no longer protects. So pieces go over rc and dc alone, which UCX is asked for.
#ifndef PARALLAX_TRANSPORT_UCX_UCX_WRITES_H_
#define PARALLAX_TRANSPORT_UCX_UCX_WRITES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "transport/remote_writes.h"
#include "transport/ucx/rail_spread.h"
#include "transport/ucx/ucx_memory.h"
#include "transport/ucx/ucx_peer.h"
#include "transport/ucx/ucx_workers.h"

namespace parallax {

class UcxWrites final : public RemoteWrites {
 public:
  // Pieces overlap with each other, up to kSendsInFlightMax, so they need not be long; below this a
  // flush and a message for each weigh more.
  static constexpr size_t kPieceBytesMax = 256 * 1024;

  // The transport and its workers outlive this.
  UcxWrites(UcxTransport& transport, const UcxWorkers& workers, uint64_t memory_bytes_max);
  ~UcxWrites() { destroy_keys(); }
  UcxWrites(const UcxWrites&) = delete;
  UcxWrites& operator=(const UcxWrites&) = delete;

  size_t piece_bytes_max(uint32_t to) override;
  Status send(uint32_t to, std::span<const Segment> segments, const PlacedPiece& piece,
              uint64_t cookie) override;
  bool know(const ByteRange& area) override { return memory_.know(area); }
  void forget_area(const ByteRange& area) override { memory_.forget(area); }
  bool has_room(const ByteRange& part) const override { return memory_.has_room(part); }
  bool share(const ByteRange& part, SharedPart* shared) override {
    return memory_.share(part, shared);
  }
  void unshare(uint32_t area) override { memory_.unshare(area); }
  void withdraw() override;
  std::string json() const override;

  // The peers' keys, which go before the workers.
  void destroy_keys();
  // Starts the put and the flush behind it; the slot's `waiting` counts what is under way of them.
  ucs_status_t start(UcxPeer& peer, UcxSlot& slot, const PlacedPiece& piece);
  // What is under way over the first rail beside pieces.
  void begin_message(size_t bytes) { spread_.begin(0, bytes); }
  void end_message(size_t bytes) { spread_.end(0, bytes); }

 private:
  static void on_done(void* request, ucs_status_t status, void* slot) noexcept;
  ucs_status_t find_key(UcxLink& link, const PlacedPiece& piece, ucp_rkey_h* key);
  ucs_status_t put(UcxLink& link, UcxSlot& slot, const PlacedPiece& piece);
  void landed(UcxSlot& slot);

  UcxTransport& transport_;
  UcxMemory memory_;
  // A peer's key, and zeros: UCX reads a key without knowing its length.
  std::vector<std::byte> key_room_;
  struct RailCounts {
    std::string device;
    uint64_t pieces = 0;
    uint64_t piece_bytes = 0;
  };
  std::vector<RailCounts> rails_;
  RailSpread spread_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_UCX_WRITES_H_
