// SPDX-License-Identifier: Apache-2.0
// What the owner calls: sending, polling, and the life of endpoints. See ucx_transport.h; what UCX
// calls is in ucx_callbacks.cc.
#include "transport/ucx/ucx_transport.h"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "transport/module/wiring_receiver.h"
#include "transport/ucx/ucx_wire.h"

namespace parallax {
namespace {

constexpr size_t kMessageBytesCeiling = 1 << 20;

constexpr int kProgressRoundsMax = 32;  // per poll: a bounded batch, then the owner's other work
constexpr int64_t kFlushNsMax = 250'000'000;
constexpr int64_t kCloseNsMax = 250'000'000;
// A rail that does not reach its peer's may take UCX half a minute to say so: open goes on without.
constexpr int64_t kRailsWireNsMax = 2'000'000'000;
constexpr int kWireWaitMs = 20;  // then the clock is looked at

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Status lost(const UcxPeer& peer, const UcxLinks& links) {
  return peer_lost("rank " + std::to_string(peer.rank) + ": " + links.why_lost(peer));
}

// UCX answers some sends once it has copied them, before the kernel took them. A last message must
// not be lost to the forced close, yet a stopped peer must not hold us.
void flush_endpoints(UcxWorkers& workers) {
  ucp_request_param_t param = {};
  ucs_status_ptr_t request = ucp_worker_flush_nbx(workers.first().get(), &param);
  if (!UCS_PTR_IS_PTR(request)) return;
  const int64_t deadline_ns = now_ns() + kFlushNsMax;
  while (ucp_request_check_status(request) == UCS_INPROGRESS && now_ns() < deadline_ns) {
    workers.progress();
  }
  ucp_request_free(request);
}

}  // namespace

Status UcxTransport::create(const NetworkOptions& options,
                            std::unique_ptr<NetworkTransport>* transport) {
  if (options.rank >= options.world) return invalid("rank must be below world");
  if (options.message_bytes_max != 0 && (options.message_bytes_max < kMessageBytesMin ||
                                         options.message_bytes_max > kMessageBytesCeiling)) {
    return invalid("message_bytes_max must be " + std::to_string(kMessageBytesMin) + ".." +
                   std::to_string(kMessageBytesCeiling));
  }
  uint64_t key = 0;
  if (getrandom(&key, sizeof key, 0) != sizeof key) {
    return io_error("the kernel gave no random bytes");
  }
  std::unique_ptr<UcxWorkers> workers;
  PARALLAX_RETURN_IF_ERROR(UcxWorkers::create(options, &workers));
  std::unique_ptr<UcxTransport> made(new UcxTransport(options, std::move(workers), key));
  UcxWorker& first = made->workers_->first();
  PARALLAX_RETURN_IF_ERROR(first.on_active_message(kUcxDataId, on_data, made.get()));
  PARALLAX_RETURN_IF_ERROR(first.on_active_message(kUcxCreditId, on_credit, made.get()));
  PARALLAX_RETURN_IF_ERROR(first.on_active_message(kUcxGoodbyeId, on_goodbye, made.get()));
  PARALLAX_RETURN_IF_ERROR(made->links_.listen());
  *transport = std::move(made);
  return {};
}

UcxTransport::UcxTransport(const NetworkOptions& options, std::unique_ptr<UcxWorkers> workers,
                           uint64_t key)
    : rank_(options.rank),
      key_(key),
      message_bytes_max_(options.message_bytes_max == 0 ? kUcxMessageBytesDefault
                                                        : options.message_bytes_max),
      workers_(std::move(workers)),
      links_(*this, *workers_, rank_),
      peers_(options.world) {
  if (workers_->first().writes_by_device()) {
    writes_ = std::make_unique<UcxWrites>(*this, *workers_, options.registered_bytes_max);
  }
}

UcxTransport::~UcxTransport() {
  for (const auto& peer : peers_) {
    if (peer != nullptr) say_goodbye(*peer);
  }
  flush_endpoints(*workers_);
  int64_t deadline_ns = now_ns() + kCloseNsMax;
  while (links_.any_in_wire_up() && now_ns() < deadline_ns) workers_->progress();
  const bool left = links_.any_in_wire_up();
  for (const auto& peer : peers_) {
    if (peer != nullptr) links_.close(*peer);
  }
  deadline_ns = now_ns() + kCloseNsMax;
  while (links_.closing_count() > 0 && now_ns() < deadline_ns) workers_->progress();
  if (writes_ != nullptr) writes_->destroy_keys();
  if (!left) {
    // What is still under way to a peer that is gone completes there, and wants its slots.
    workers_->end();
    return;
  }
  // Destroying a worker would close what links_ left alone.
  writes_.reset();
  UcxWorkers::abandon(std::move(workers_));
}

std::string UcxTransport::address() const {
  std::string address = workers_->address();
  address.append(reinterpret_cast<const char*>(&key_), sizeof key_);
  return address;
}

Status UcxTransport::connect(uint32_t rank, const std::string& address) {
  if (rank >= peers_.size() || rank == rank_ || peers_[rank] != nullptr) {
    return invalid("rank " + std::to_string(rank) + " cannot be connected, or is already");
  }
  if (address.size() <= sizeof key_) {
    return invalid("the UCX address of rank " + std::to_string(rank) + " is too short");
  }
  const size_t address_bytes = address.size() - sizeof key_;
  auto peer = std::make_unique<UcxPeer>();
  peer->transport = this;
  peer->rank = rank;
  peer->header.from = rank_;
  std::memcpy(&peer->header.key, address.data() + address_bytes, sizeof peer->header.key);
  PARALLAX_RETURN_IF_ERROR(links_.make(*peer, address.substr(0, address_bytes)));
  peer->credit.header = peer->header;
  peers_[rank] = std::move(peer);
  return {};
}

// Of two ranks the lower one opens the first endpoint, so that requests to connect never cross.
Status UcxTransport::wire(std::span<const uint32_t> ranks, int64_t deadline_ns, uint32_t* missing) {
  for (const uint32_t rank : ranks) {
    if (rank >= peers_.size() || peers_[rank] == nullptr) {
      return invalid("rank " + std::to_string(rank) + " is to be wired, but not connected");
    }
    if (rank_ < rank && peers_[rank]->phase == UcxPeer::Phase::kKnown) {
      open_endpoint(*peers_[rank]);
    }
  }
  WiringReceiver receiver;
  int64_t rails_end_ns = 0;
  for (;;) {
    const bool moved = poll(receiver);
    *missing = receiver.lost_rank;
    if (!receiver.why.empty()) return peer_lost(receiver.why);
    const auto late = std::find_if(ranks.begin(), ranks.end(), [this](uint32_t rank) {
      return !peers_[rank]->first().wired();
    });
    const int64_t now = now_ns();
    if (late == ranks.end()) {
      if (rails_end_ns == 0)
        rails_end_ns = now + std::min(kRailsWireNsMax, (deadline_ns - now) / 2);
      if (links_.rails_settled(ranks) || now >= rails_end_ns) return {};
    } else if (*missing = *late; now >= deadline_ns) {
      return timed_out("UCX did not connect by the deadline: stopped, or still busy elsewhere");
    }
    if (moved || !arm()) continue;
    pollfd readable = {wait_fd(), POLLIN, 0};
    ::poll(&readable, 1, kWireWaitMs);
  }
}

bool UcxTransport::writable(uint32_t to) const {
  if (to >= peers_.size() || peers_[to] == nullptr) return false;
  const UcxPeer& peer = *peers_[to];
  return (peer.phase == UcxPeer::Phase::kKnown || peer.phase == UcxPeer::Phase::kConnected) &&
         peer.sent - peer.acknowledged < kSendsInFlightMax && peer.uncompleted < kSendsInFlightMax;
}

NetworkWay UcxTransport::way_to(uint32_t rank) {
  const bool known = rank < peers_.size() && peers_[rank] != nullptr;
  return known ? links_.way_to(*peers_[rank]) : NetworkWay();
}

NetworkStats UcxTransport::stats() const {
  NetworkStats stats = stats_;
  links_.count_into(&stats);
  return stats;
}

RemoteWrites* UcxTransport::remote_writes() { return writes_.get(); }

// Cost: no allocation of ours. Up to 8 KB UCX copies; above, the kernel reads the segments.
Status UcxTransport::send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) {
  return send_behind(to, segments, nullptr, cookie);
}

Status UcxTransport::send_behind(uint32_t to, std::span<const Segment> segments,
                                 const PlacedPiece* piece, uint64_t cookie) {
  PARALLAX_CHECK(writable(to));
  PARALLAX_CHECK(segments.size() <= kSegmentsMax);
  UcxPeer& peer = *peers_[to];
  if (peer.phase == UcxPeer::Phase::kKnown) open_endpoint(peer);
  if (peer.phase == UcxPeer::Phase::kFailed) return lost(peer, links_);

  const int index = std::countr_zero(peer.free_slots);
  UcxSlot& slot = (*peer.slots)[static_cast<size_t>(index)];
  slot.pieces = slot.bytes = 0;
  for (const Segment& segment : segments) {
    if (segment.bytes == 0) continue;
    slot.iov[slot.pieces++] = {const_cast<void*>(segment.data), segment.bytes};
    slot.bytes += segment.bytes;
  }
  PARALLAX_CHECK(slot.bytes <= message_bytes_max_);
  slot.cookie = cookie;

  peer.free_slots &= ~(1u << index);
  ++peer.sent;
  ++peer.uncompleted;
  if (writes_ != nullptr) writes_->begin_message(slot.bytes);
  if (piece == nullptr && peer.held.count == 0) {
    if (post(slot)) return {};
    if (writes_ != nullptr) writes_->end_message(slot.bytes);
    peer.free_slots |= 1u << index;
    --peer.uncompleted;
    return lost(peer, links_);
  }
  peer.held.slots[(peer.held.first + peer.held.count++) % kSendsInFlightMax] =
      static_cast<uint8_t>(index);
  attend_later(peer);
  if (piece == nullptr) return {};
  // What is under way of it already is waited for, so it completes as any other.
  const ucs_status_t started = writes_->start(peer, slot, *piece);
  if (started != UCS_OK) fail(peer, started);
  return {};
}

// False: the peer is lost.
bool UcxTransport::post(UcxSlot& slot) {
  UcxPeer& peer = *slot.peer;
  ucp_request_param_t param = eager_param(on_send_done, &slot);
  const bool several = slot.pieces > 1;
  param.datatype = several ? ucp_dt_make_iov() : ucp_dt_make_contig(1);
  const void* buffer = several ? slot.iov.data() : slot.pieces == 1 ? slot.iov[0].buffer : nullptr;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(peer.first().endpoint, kUcxDataId, &peer.header, sizeof peer.header, buffer,
                      several ? slot.pieces : slot.bytes, &param);
  if (UCS_PTR_IS_ERR(request)) {
    fail(peer, UCS_PTR_STATUS(request));
    return false;
  }
  if (request == nullptr) complete(slot);
  return true;
}

// Messages leave whose pieces, and those before them, are at the peer; of a lost one they end.
void UcxTransport::release_held(UcxPeer& peer) {
  while (peer.held.count > 0) {
    UcxSlot& slot = (*peer.slots)[peer.held.at(0)];
    if (slot.waiting > 0) return;
    peer.held.first = (peer.held.first + 1) % kSendsInFlightMax;
    --peer.held.count;
    if (peer.phase != UcxPeer::Phase::kConnected || !post(slot)) complete(slot);
  }
}

// UCX reads of no piece when this returns, but for one whose endpoint is in wire-up: none begins
// there before it is wired.
void UcxTransport::give_up_pieces() {
  const auto under_way = [](const UcxPeer& peer) {
    for (uint32_t i = 0; i < peer.held.count; ++i) {
      if ((*peer.slots)[peer.held.at(i)].waiting > 0) return true;
    }
    return false;
  };
  for (const auto& peer : peers_) {
    if (peer == nullptr || !under_way(*peer)) continue;
    fail(*peer, UCS_ERR_CANCELED);
    const UcxPeer::Phase phase = peer->phase;
    links_.close(*peer);
    peer->phase = phase;  // a loss is reported by the next poll all the same
    attend_later(*peer);
    const int64_t deadline_ns = now_ns() + kCloseNsMax;
    while (under_way(*peer) && now_ns() < deadline_ns) workers_->progress();
  }
}

// Cost when idle: one epoll_wait by UCX per interface, no lock or allocation of ours.
bool UcxTransport::poll(Receiver& receiver) {
  bool moved = false;
  receiver_ = &receiver;
  for (int round = 0; round < kProgressRoundsMax; ++round) {
    if (workers_->progress() == 0) break;
    moved = true;
    if (receiver_error_ != nullptr) break;
  }
  receiver_ = nullptr;
  if (receiver_error_ != nullptr) std::rethrow_exception(std::exchange(receiver_error_, nullptr));
  moved |= deliver_completions(receiver);
  moved |= attend(receiver);
  if (moved) armed_ = false;
  return moved;
}

bool UcxTransport::deliver_completions(Receiver& receiver) {
  const size_t count = completions_.size();  // on_sent may send, whose completions wait
  for (size_t i = 0; i < count; ++i) {
    const Completion completion = completions_.pop();
    --completion.peer->uncompleted;
    receiver.on_sent(completion.cookie);
  }
  return count > 0;
}

// A completion queue of verbs tells of what comes after it was armed, not of what came since the
// last look: so there is one more look in between, by poll().
bool UcxTransport::arm() {
  if (attention_ != nullptr || !completions_.empty()) return false;
  const bool looked = armed_;
  armed_ = workers_->arm();
  return armed_ && looked;
}

void UcxTransport::forget(uint32_t rank) {
  if (rank >= peers_.size() || peers_[rank] == nullptr) return;
  UcxPeer& peer = *peers_[rank];
  peer.phase = UcxPeer::Phase::kGone;
  attend_later(peer);  // we may be inside a callback of UCX
}

void UcxTransport::attend_later(UcxPeer& peer) {
  if (peer.needs_attention) return;
  peer.needs_attention = true;
  peer.next_attention = attention_;
  attention_ = &peer;
}

bool UcxTransport::attend(Receiver& receiver) {
  const bool moved = attention_ != nullptr;
  while (attention_ != nullptr) {
    UcxPeer& peer = *attention_;
    attention_ = peer.next_attention;
    peer.needs_attention = false;
    switch (peer.phase) {
      case UcxPeer::Phase::kKnown:
        open_endpoint(peer);  // it wrote to us first
        break;
      case UcxPeer::Phase::kConnected:
        release_held(peer);
        if (peer.phase == UcxPeer::Phase::kConnected) send_credit(peer);
        if (peer.phase == UcxPeer::Phase::kConnected) links_.attend(peer);
        break;
      case UcxPeer::Phase::kFailed:
        peer.phase = UcxPeer::Phase::kGone;
        links_.close(peer);
        release_held(peer);
        receiver.on_lost(peer.rank, Loss::kBroken, links_.why_lost(peer));
        break;
      case UcxPeer::Phase::kGone:
        links_.close(peer);
        release_held(peer);
        break;
    }
  }
  return moved;
}

void UcxTransport::open_endpoint(UcxPeer& peer) {
  if (peer.slots == nullptr) {
    peer.slots = std::make_unique<std::array<UcxSlot, kSendsInFlightMax>>();
    for (UcxSlot& slot : *peer.slots) slot.peer = &peer;
    completions_.reserve(++peers_opened_ * kSendsInFlightMax);
  }
  peer.phase = UcxPeer::Phase::kConnected;
  const ucs_status_t status = links_.open(peer.first());
  if (status != UCS_OK) {
    fail(peer, status);
    return;
  }
  send_credit(peer);
}

void UcxTransport::fail(UcxPeer& peer, ucs_status_t status) {
  peer.first().broken = true;
  if (peer.phase == UcxPeer::Phase::kGone && peer.first().endpoint != nullptr) attend_later(peer);
  if (peer.phase != UcxPeer::Phase::kConnected) return;
  peer.phase = UcxPeer::Phase::kFailed;
  peer.failure = status;
  attend_later(peer);
}

// Over verbs nothing else tells a peer at once that this rank is gone.
void UcxTransport::say_goodbye(UcxPeer& peer) {
  const UcxLink& link = peer.first();
  if (peer.phase != UcxPeer::Phase::kConnected || !link.wired() || link.broken) return;
  ucp_request_param_t param = eager_param(on_goodbye_done, nullptr);
  const ucs_status_ptr_t request = ucp_am_send_nbx(link.endpoint, kUcxGoodbyeId, &peer.header,
                                                   sizeof peer.header, nullptr, 0, &param);
  if (UCS_PTR_IS_ERR(request)) fail(peer, UCS_PTR_STATUS(request));
}

void UcxTransport::send_credit(UcxPeer& peer) {
  const bool due = peer.greeting || peer.delivered - peer.credit.delivered >= kUcxCreditBatch;
  if (peer.credit_in_flight || !due) return;
  const bool greets = std::exchange(peer.greeting, false);
  peer.credit.delivered = peer.delivered;
  const ucp_request_param_t param = eager_param(on_credit_done, &peer);
  const ucs_status_ptr_t request = ucp_am_send_nbx(
      peer.first().endpoint, kUcxCreditId, &peer.credit, sizeof peer.credit, nullptr, 0, &param);
  if (UCS_PTR_IS_ERR(request)) {
    fail(peer, UCS_PTR_STATUS(request));
    return;
  }
  peer.credit_in_flight = request != nullptr;
  if (request == nullptr) peer.first().said = true;
  if (!greets) ++stats_.credits_sent;
}

}  // namespace parallax
