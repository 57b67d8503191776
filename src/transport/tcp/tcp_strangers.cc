// SPDX-License-Identifier: Apache-2.0
// Accepting, and what strangers may cost. See tcp_strangers.h.
#include "transport/tcp/tcp_strangers.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/tcp_socket.h"

namespace parallax {

Status TcpStrangers::listen(const SocketAddress& address, const TcpPorts& ports) {
  int reason = 0;
  // Ranks of one host share the range, so a port that is taken is passed over.
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    reason = tcp_listen_at(make_address(address_bytes(address), static_cast<uint16_t>(port)),
                           &listener_);
    if (reason != EADDRINUSE) break;
  }
  if (reason == 0) {
    tcp_defer_accept(listener_);
    return tcp_name(listener_, &address_);
  }
  const std::string failed = "open: transport tcp cannot listen at " + to_text(address);
  if (reason == EMFILE || reason == ENFILE) {
    return limit(failed + ": " + std::strerror(reason) + "; raise ulimit -n");
  }
  if (reason == EADDRINUSE && ports.first == 0) {
    return limit(failed +
                 ": no port is free; widen net.ipv4.ip_local_port_range, or end what "
                 "holds them (ss -tan)");
  }
  if (ports.first == 0) return io_error(failed + ": " + std::strerror(reason));
  return io_error(failed + ", ports " + std::to_string(ports.first) + " to " +
                  std::to_string(ports.last) + ": " + std::strerror(reason) +
                  "; give other ports in tcp_ports")
      .about_field("tcp_ports");
}

bool TcpStrangers::accept(int epoll, uint64_t tag_first, int64_t now_ns) {
  for (int i = 0; i < kAcceptsPerPass; ++i) {
    UniqueFd socket;
    SocketAddress from;
    const Accepted accepted = tcp_accept(listener_, &socket, &from);
    if (accepted == Accepted::kNone) return true;
    if (accepted != Accepted::kOne) {
      if (make_room()) continue;
      return false;
    }
    if (count_ == kStrangersMax) make_room();
    const auto free = std::find(strangers_.begin(), strangers_.end(), nullptr);
    const auto number = static_cast<uint32_t>(free - strangers_.begin());
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = tag_first + number;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, socket.get(), &event) != 0) continue;
    *free = std::make_unique<Stranger>();
    (*free)->socket = std::move(socket);
    (*free)->since_ns = now_ns;
    ++count_;
    // A rank that has spoken is known before the next may ask for its place. None is a member yet:
    // that takes an answer.
    Member nobody;
    (void)advance(number, &nobody);
  }
  return true;
}

// A child of the process has the socket too: what is shut down is no port there either, and epoll
// would go on telling of it.
void TcpStrangers::close(int epoll) {
  if (!listener_.valid()) return;
  (void)epoll_ctl(epoll, EPOLL_CTL_DEL, listener_.get(), nullptr);
  (void)::shutdown(listener_.get(), SHUT_RDWR);
  listener_.reset();
}

bool TcpStrangers::make_room() {
  struct Kind {
    uint32_t count = 0;
    uint32_t oldest = kStrangersMax;
  };
  std::array<Kind, 2> kinds;
  for (uint32_t each = 0; each < kStrangersMax; ++each) {
    const Stranger* const stranger = strangers_[each].get();
    if (stranger == nullptr) continue;
    const bool named = stranger->handshake != nullptr && stranger->handshake->knows_peer();
    Kind& kind = kinds[named ? 1 : 0];
    const bool older = kind.count == 0 || stranger->since_ns < strangers_[kind.oldest]->since_ns;
    if (older) kind.oldest = each;
    ++kind.count;
  }
  const Kind& larger = kinds[1].count > kinds[0].count ? kinds[1] : kinds[0];
  if (larger.count == 0) return false;
  turn_away(larger.oldest);
  return true;
}

void TcpStrangers::turn_away(uint32_t stranger) {
  strangers_[stranger].reset();
  --count_;
  ++turned_away_;
}

void TcpStrangers::expire(int64_t now_ns) {
  for (uint32_t each = 0; each < kStrangersMax && count_ > 0; ++each) {
    if (strangers_[each] != nullptr && now_ns - strangers_[each]->since_ns >= kStrangerNs) {
      turn_away(each);
    }
  }
}

// False: it is at its end, or sent more than anyone has to.
bool TcpStrangers::receive(Stranger& stranger) {
  const size_t before = stranger.in.size();
  const size_t room = kHandshakeBytesMax - stranger.bytes_taken;
  const bool open = room > 0 && tcp_receive(stranger.socket, room, &stranger.in);
  stranger.bytes_taken += stranger.in.size() - before;
  return open;
}

bool TcpStrangers::advance(uint32_t number, Member* member) {
  if (number >= kStrangersMax || strangers_[number] == nullptr) return false;
  Stranger& stranger = *strangers_[number];
  bool open = receive(stranger);
  auto phase = TcpHandshake::Phase::kTalking;
  if (TcpHandshake::has_record(stranger.in)) {
    if (stranger.handshake == nullptr) stranger.handshake = std::make_unique<TcpHandshake>(tls_);
    phase = stranger.handshake->advance(&stranger.in, &stranger.out);
  }
  // A few hundred bytes, which fit the buffer of a new socket, or it is not worth it.
  open = tcp_send(stranger.socket, &stranger.out) && stranger.out.empty() && open;
  // A rank waits to be welcomed before it goes on.
  if (phase == TcpHandshake::Phase::kDone && open && stranger.in.empty()) {
    *member = {std::move(stranger.socket), std::move(stranger.handshake)};
    strangers_[number].reset();
    --count_;
    return true;
  }
  if (phase != TcpHandshake::Phase::kTalking || !open) turn_away(number);
  return false;
}

}  // namespace parallax
