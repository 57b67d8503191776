// SPDX-License-Identifier: Apache-2.0
// Sending, receiving, and the end of connections. See tcp_transport.h.
#include "transport/tcp/tcp_transport.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "transport/tcp/tcp_tags.h"

namespace parallax {

namespace {

// Their sockets are asked at every poll. A recv that finds nothing costs a fraction of what hearing
// of bytes by epoll does.
constexpr size_t kAskedPeersMax = 3;
// Then epoll is asked too, for those who connect.
constexpr uint32_t kEmptyPollsMax = 16;
constexpr int kEventsMax = 64;
constexpr uint32_t kEnds = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

// Asked anew: what epoll told may be of an attempt of this rank's that crossed the peer's, which
// was taken since.
bool has_ended(const TcpLink& link) {
  pollfd end = {link.socket.get(), POLLRDHUP, 0};
  return ::poll(&end, 1, 0) == 1;
}

std::string why_ended(int error) {
  if (error != 0) return std::string("its connection broke (") + std::strerror(error) + ")";
  return "its connection broke (closed without a goodbye: its process ended, or it was cut)";
}

// Ahead of its turn.
std::string why_one_ended(const TcpPeer& peer, const SocketAddress& own) {
  return "one of its connections broke (" + tcp_path(peer, own) +
         ": closed or cut), while another stands";
}

}  // namespace

bool TcpTransport::writable(uint32_t to) const {
  if (to >= peers_.size() || peers_[to] == nullptr) return false;
  const TcpPeer& peer = *peers_[to];
  return peer.phase <= TcpPeer::Phase::kConnected &&
         (peer.link == nullptr || peer.link->broken == 0) && peer.outgoing.has_room() &&
         peer.uncompleted < kSendsInFlightMax;
}

// By the kernel, or into a buffer, unless there is no connection yet.
bool TcpTransport::copies_sends(uint32_t to) const {
  return to < peers_.size() && peers_[to] != nullptr &&
         peers_[to]->phase == TcpPeer::Phase::kConnected;
}

// Cost: one system call, while the kernel has room; no allocation.
Status TcpTransport::send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) {
  PARALLAX_CHECK(writable(to));
  TcpPeer& peer = *peers_[to];
  reach(to);
  if (peer.phase == TcpPeer::Phase::kFailed) {
    return peer_lost("rank " + std::to_string(to) + ": " + peer.failure);
  }
  peer.outgoing.add_message(segments, cookie);
  ++peer.uncompleted;
  if (peer.phase == TcpPeer::Phase::kConnected) flush(peer);
  return {};
}

// A connection that takes nothing any more may still hold what the peer said before.
void TcpTransport::flush(TcpPeer& peer) {
  TcpLink& link = *peer.link;
  if (link.broken != 0) return;
  link.broken = peer.outgoing.flush(link.socket.get(), link.sealer, peer);
  if (link.broken != 0) {
    peer.outgoing.drop(peer);
    attend_later(peer);
  }
  const bool waits = peer.outgoing.blocked();
  if (waits == link.waits_for_room) return;
  link.waits_for_room = waits;
  waiting_count_ += waits ? 1 : -1;
  watch_tcp_link(epoll_, peer);
}

bool TcpTransport::poll(Receiver& receiver) {
  bool moved = false;
  if (TcpPeer* const rest = std::exchange(interrupted_, nullptr)) {
    take_frames(*rest, receiver);
    moved = true;
  }
  // Before sockets are asked: a frame that is here costs no system call.
  while (TcpPeer* const resumed = turns_.take_resumed()) {
    moved |= take_frames(*resumed, receiver);
    if (resumed->phase == TcpPeer::Phase::kFailed) attend_later(*resumed);
  }
  const bool few = connected_.size() <= kAskedPeersMax;
  for (size_t i = 0; few && i < connected_.size(); ++i) {
    TcpPeer& peer = *connected_[i];
    // For its credits, of one that is held.
    if (!peer.is_held() || peer.outgoing.lacks_credit()) moved |= receive(peer, receiver);
  }
  const bool others = dial_count_ > 0 || waiting_count_ > 0 || strangers_->count() > 0;
  if (!few || others || (!moved && (armed_ || ++empty_polls_ >= kEmptyPollsMax))) {
    moved |= look(receiver);
    empty_polls_ = 0;
    armed_ = false;
  }
  moved |= attend(receiver);
  keep_time();
  return moved;
}

// False: nothing but what others than ranks did.
bool TcpTransport::look(Receiver& receiver) {
  std::array<epoll_event, kEventsMax> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsMax, 0);
  ++counters_.looks;
  bool moved = false;
  int advances = 0;  // of strangers: epoll tells of the rest of them again
  for (int i = 0; i < count; ++i) {
    const uint64_t kind = events[i].data.u64 & kTcpTagKinds;
    const auto number = static_cast<uint32_t>(events[i].data.u64);
    if (kind == kTcpPeerTag) {
      moved |= on_event(*peers_[number], events[i].events, receiver);
    } else if (kind == kTcpListenerTag) {
      accept();
    } else if (kind == kTcpTimerTag) {
      on_tick();
    } else if (TcpStrangers::Member member; ++advances <= TcpStrangers::kAdvancesPerPass &&
                                            strangers_->advance(number, &member)) {
      admit(std::move(member));
      moved = true;
    }
  }
  return moved;
}

bool TcpTransport::on_event(TcpPeer& peer, uint32_t events, Receiver& receiver) {
  if (peer.link == nullptr) {
    if (peer.phase == TcpPeer::Phase::kConnecting) advance_dial(peer);
    return true;
  }
  bool moved = false;
  if ((events & EPOLLOUT) != 0 && peer.link->waits_for_room) {
    peer.outgoing.unblock();
    flush(peer);
    moved = true;
  }
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) moved |= receive(peer, receiver);
  if ((events & kEnds) != 0 && peer.is_held() && peer.link != nullptr && has_ended(*peer.link)) {
    peer.failure = why_one_ended(peer, strangers_->address());
    turns_.note_end(peer);
    moved = true;
  }
  return moved;
}

// Cost: one system call for all that the socket holds, up to the buffer's size.
bool TcpTransport::receive(TcpPeer& peer, Receiver& receiver) {
  if (peer.link == nullptr || peer.phase > TcpPeer::Phase::kConnected || peer.holds_message()) {
    return false;
  }
  TcpIncoming& incoming = peer.link->incoming;
  int error = 0;
  size_t rest_bytes = 0;
  const std::span<const std::byte> head = incoming.head(&rest_bytes);
  // Before the connection stands nothing is a message.
  const bool may_be_placed = !head.empty() && peer.phase == TcpPeer::Phase::kConnected;
  std::byte* const place = may_be_placed ? receiver.place(peer.rank, head, rest_bytes) : nullptr;
  switch (incoming.fill(peer.link->socket.get(), counters_, place, &error)) {
    case TcpIncoming::Fill::kNothing:
      return false;
    case TcpIncoming::Fill::kBytes:
      take_frames(peer, receiver);
      return true;
    case TcpIncoming::Fill::kEnded:
      if (error == 0) error = peer.link->broken;
      end_by(peer, Loss::kBroken,
             peer.is_held() ? why_one_ended(peer, strangers_->address()) : why_ended(error));
      return true;
  }
  return false;
}

// True: there was a frame, or the end.
bool TcpTransport::take_frames(TcpPeer& peer, Receiver& receiver) {
  bool moved = false;
  TcpFrame frame;
  while (peer.link != nullptr && peer.phase <= TcpPeer::Phase::kConnected &&
         !peer.holds_message()) {
    const bool stands = peer.phase == TcpPeer::Phase::kConnected;
    const TcpIncoming::Next next = peer.link->incoming.next(&frame);
    if (next == TcpIncoming::Next::kMore) break;
    moved = true;
    if (next == TcpIncoming::Next::kForged) {
      end_by(peer, Loss::kBroken,
             "a frame of its connection was altered, repeated or left out on the way");
      break;
    }
    const TcpFrameHeader& header = frame.header;
    const bool is_message = header.type == TcpFrameType::kMessage;
    if (next == TcpIncoming::Next::kGarbage || (header.type == TcpFrameType::kWelcome) == stands ||
        !peer.outgoing.regain(header.credit_bytes) ||
        (is_message && !peer.outgoing.owe(tcp_credits_of(header.body_bytes)))) {
      // Without tags anyone on the way may have written it.
      const bool tagged = options_.security != TcpSecurity::kHandshake;
      end_by(peer, tagged ? Loss::kDead : Loss::kBroken, "its connection carries what is no frame");
      break;
    }
    ++counters_.frames_received;
    if (is_message) {
      interrupted_ = &peer;  // should it throw
      if (frame.placed_bytes == 0) {
        receiver.on_message(peer.rank, frame.body);
      } else if (!frame.spoiled) {
        receiver.on_placed(peer.rank, frame.body, frame.placed_bytes);
      }
      interrupted_ = nullptr;
    } else if (header.type == TcpFrameType::kWelcome) {
      connected(peer);
    } else if (header.type == TcpFrameType::kGoodbye) {
      end_by(peer, Loss::kBroken, "it left, and closed its connection");
      break;
    }
  }
  if (peer.phase == TcpPeer::Phase::kConnected && peer.outgoing.owes_much()) flush(peer);
  return moved;
}

// Before the welcome that is an attempt that failed.
void TcpTransport::end_by(TcpPeer& peer, Loss loss, std::string why) {
  if (peer.phase == TcpPeer::Phase::kConnecting) {
    fail_attempt(peer, why, false);
  } else {
    fail(peer, loss, std::move(why));
  }
}

// The descriptor tells of all that comes, since epoll's events stay until they were looked at; but
// not of what is held.
bool TcpTransport::arm() {
  armed_ = completions_.empty() && attention_.empty() && !turns_.any_resumed() &&
           interrupted_ == nullptr;
  if (armed_) turns_.leave_out_held(connected_);
  return armed_;
}

void TcpTransport::forget(uint32_t rank) {
  if (rank >= peers_.size() || peers_[rank] == nullptr) return;
  TcpPeer& peer = *peers_[rank];
  if (peer.phase == TcpPeer::Phase::kConnecting) stop_dial(peer);
  peer.phase = TcpPeer::Phase::kGone;
  attend_later(peer);  // we may be inside a callback, with a frame in its buffer
}

void TcpTransport::fail(TcpPeer& peer, Loss loss, std::string why) {
  if (peer.phase > TcpPeer::Phase::kConnected) return;
  peer.phase = TcpPeer::Phase::kFailed;
  peer.loss = loss;
  peer.failure = std::move(why);
  if (peer.held) {
    turns_.note_end(peer);
  } else {
    attend_later(peer);
  }
}

void TcpTransport::attend_later(TcpPeer& peer) {
  if (peer.needs_attention) return;
  peer.needs_attention = true;
  attention_.push_back(&peer);  // has room for every peer
}

// What is to be told: sends that completed, and who is lost.
bool TcpTransport::attend(Receiver& receiver) {
  const size_t sent_count = completions_.size();  // on_sent may send, whose completions wait
  for (size_t i = 0; i < sent_count; ++i) {
    const TcpPeer::Completion completion = completions_.pop();
    --peers_[completion.rank]->uncompleted;
    receiver.on_sent(completion.cookie);
  }
  const size_t count = attention_.size();
  for (size_t i = 0; i < count; ++i) {
    TcpPeer& peer = *attention_[i];
    peer.needs_attention = false;
    const bool is_lost = peer.phase == TcpPeer::Phase::kFailed;
    if (!is_lost && peer.phase != TcpPeer::Phase::kGone) continue;
    peer.phase = TcpPeer::Phase::kGone;
    unlink(peer);
    peer.outgoing.drop(peer);
    if (is_lost) receiver.on_lost(peer.rank, peer.loss, peer.failure);
  }
  attention_.erase(attention_.begin(), attention_.begin() + static_cast<ptrdiff_t>(count));
  return sent_count + count > 0;
}

void TcpTransport::unlink(TcpPeer& peer) {
  if (peer.link == nullptr) return;
  if (peer.link->waits_for_room) --waiting_count_;
  peer.link.reset();
  std::erase(connected_, &peer);
}

}  // namespace parallax
