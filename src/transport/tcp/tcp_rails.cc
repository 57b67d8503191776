// SPDX-License-Identifier: Apache-2.0
// Messages by several connections, in one order. See tcp_rails.h.
#include "transport/tcp/tcp_rails.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "transport/tcp/tcp_closing.h"

namespace parallax {

namespace {

// A pass over the rails brings one message of each rank at least, while there are any.
constexpr int kPassesMax = 32;
constexpr int64_t kEndTickNs = 10 * kNanosecondsPerMillisecond;

}  // namespace

class TcpRails::Ordered final : public Receiver {
 public:
  Ordered(TcpRails& rails, Receiver& receiver) : rails_(rails), receiver_(receiver) {}

  void set_rail(uint32_t rail) { rail_ = rail; }
  uint64_t messages() const { return messages_; }

  void on_message(uint32_t from, std::span<const std::byte> message) override {
    next_turn(from);
    receiver_.on_message(from, message);
  }
  std::byte* place(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) override {
    return receiver_.place(from, head, rest_bytes);
  }
  void on_placed(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) override {
    next_turn(from);
    receiver_.on_placed(from, head, rest_bytes);
  }
  void on_sent(uint64_t cookie) override { receiver_.on_sent(cookie); }
  void on_lost(uint32_t rank, Loss loss, std::string_view why) override {
    if (std::exchange(rails_.peers_[rank].gone, true)) return;
    for (uint32_t rail = 0; rail < rails_.rails_.size(); ++rail) {
      if (rail != rail_) rails_.rails_[rail]->forget(rank);
    }
    receiver_.on_lost(rank, loss, why);
  }

 private:
  // Before the receiver, which may throw: a message is then behind us all the same.
  void next_turn(uint32_t from) {
    Peer& peer = rails_.peers_[from];
    PARALLAX_CHECK(peer.hears_by == rail_);
    peer.hears_by = rails_.after(rail_);
    rails_.rails_[rail_]->turns().hold(from);
    rails_.rails_[peer.hears_by]->turns().resume(from);
    if (peer.ended != nullptr) {
      peer.heard_ns = rails_.clock_.now_ns();
      peer.polls = 0;
    }
    ++messages_;
  }

  TcpRails& rails_;
  Receiver& receiver_;
  uint32_t rail_ = 0;
  uint64_t messages_ = 0;
};

Status TcpRails::create(const TcpOptions& common, const std::vector<std::string>& more_devices,
                        std::unique_ptr<TcpRails>* rails, const Clock* clock) {
  PARALLAX_CHECK(more_devices.size() < kRailsMax);
  std::unique_ptr<TcpRails> made(new TcpRails(common.world, clock));
  made->ending_.reserve(common.world);
  made->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (made->epoll_.valid()) {
    made->timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  }
  if (!made->timer_.valid()) {
    return limit(std::string("open: no descriptor for the rails of transport tcp: ") +
                 std::strerror(errno) + "; raise ulimit -n");
  }
  PARALLAX_RETURN_IF_ERROR(made->watch(made->timer_.get()));
  TcpOptions options = common;
  for (size_t rail = 0; rail <= more_devices.size(); ++rail) {
    if (rail > 0) options.net_device = more_devices[rail - 1];
    if (rail > 0) options.own_address.clear();
    made->rails_.emplace_back();
    PARALLAX_RETURN_IF_ERROR(TcpTransport::create(options, &made->rails_.back()));
    PARALLAX_RETURN_IF_ERROR(made->watch(made->rails_.back()->wait_fd()));
  }
  *rails = std::move(made);
  return {};
}

TcpRails::~TcpRails() {
  std::array<const TcpTurns::Peers*, kRailsMax> peers = {};
  size_t count = 0;
  for (const auto& rail : rails_) {
    if (rail != nullptr) peers[count++] = &rail->turns().peers();
  }
  close_tcp(std::span(peers).first(count));
}

Status TcpRails::watch(int descriptor) {
  epoll_event event = {};
  event.events = EPOLLIN;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return limit(std::string("open: epoll: ") + std::strerror(errno) + "; raise ulimit -n");
}

bool TcpRails::writable(uint32_t to) const {
  if (to >= peers_.size() || peers_[to].gone) return false;
  uint32_t uncompleted = 0;
  for (const auto& rail : rails_) uncompleted += rail->turns().uncompleted(to);
  return uncompleted < kSendsInFlightMax && rails_[peers_[to].sends_by]->writable(to);
}

Status TcpRails::send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) {
  Peer& peer = peers_[to];
  PARALLAX_RETURN_IF_ERROR(rails_[peer.sends_by]->send(to, segments, cookie));
  peer.sends_by = after(peer.sends_by);
  if (std::exchange(peer.reached, true)) return {};
  for (const auto& rail : rails_) rail->reach(to);
  return {};
}

// Of each: it is asked behind a send too, and then the next one's turn has come.
bool TcpRails::copies_sends(uint32_t to) const {
  for (const auto& rail : rails_) {
    if (!rail->copies_sends(to)) return false;
  }
  return true;
}

bool TcpRails::poll(Receiver& receiver) {
  Ordered ordered(*this, receiver);
  bool moved = false;
  uint64_t before = 0;
  for (int pass = 0; pass < kPassesMax; ++pass) {
    for (uint32_t rail = 0; rail < rails_.size(); ++rail) {
      ordered.set_rail(rail);
      moved |= rails_[rail]->poll(ordered);
    }
    // What came may be what others were held for.
    if (std::exchange(before, ordered.messages()) == ordered.messages()) break;
  }
  note_ends();
  if (!ending_.empty()) moved |= report_ends(ordered);
  return moved;
}

void TcpRails::note_ends() {
  for (const auto& rail : rails_) {
    while (const TcpPeer* const ended = rail->turns().take_ended()) {
      Peer& peer = peers_[ended->rank];
      if (peer.gone || peer.ended != nullptr) continue;
      peer.ended = ended;
      peer.heard_ns = clock_.now_ns();
      if (ending_.empty()) keep_time(true);
      ending_.push_back(ended->rank);  // has room for every rank
    }
  }
}

bool TcpRails::report_ends(Ordered& ordered) {
  uint64_t ticks = 0;
  (void)!::read(timer_.get(), &ticks, sizeof ticks);
  const int64_t now_ns = clock_.now_ns();
  bool moved = false;
  for (size_t i = 0; i < ending_.size();) {
    const uint32_t rank = ending_[i];
    Peer& peer = peers_[rank];
    const bool is_over = ++peer.polls > kEndPolls && now_ns - peer.heard_ns >= kEndNsMax;
    if (!peer.gone && !is_over) {
      ++i;
      continue;
    }
    ending_.erase(ending_.begin() + static_cast<ptrdiff_t>(i));
    if (ending_.empty()) keep_time(false);
    if (peer.gone) continue;
    moved = true;
    ordered.set_rail(static_cast<uint32_t>(rails_.size()));  // none: all of them are forgotten
    ordered.on_lost(rank, peer.ended->loss, peer.ended->failure);
  }
  return moved;
}

void TcpRails::keep_time(bool needed) {
  itimerspec time = {};
  time.it_value.tv_nsec = time.it_interval.tv_nsec = needed ? kEndTickNs : 0;
  (void)timerfd_settime(timer_.get(), 0, &time, nullptr);
}

bool TcpRails::arm() {
  for (const auto& rail : rails_) {
    if (!rail->arm()) return false;
  }
  return true;
}

void TcpRails::forget(uint32_t rank) {
  if (rank >= peers_.size()) return;
  peers_[rank].gone = true;
  for (const auto& rail : rails_) rail->forget(rank);
}

std::string TcpRails::address() const {
  std::vector<std::string> addresses;
  for (const auto& rail : rails_) addresses.push_back(rail->address());
  return encode_tcp_rails(addresses);
}

Status TcpRails::connect(uint32_t rank, const std::string& address) {
  std::vector<std::string> addresses;
  const Status read = decode_tcp_rails(address, &addresses);
  if (!read.ok()) return read.prefixed("rank " + std::to_string(rank) + ": ");
  if (addresses.size() != rails_.size()) {
    return Status(PARALLAX_MISMATCH,
                  "open: setting tcp_rails: this rank has " + std::to_string(rails_.size()) +
                      " rails, rank " + std::to_string(rank) + " has " +
                      std::to_string(addresses.size()) + "; give every rank as many")
        .about_field("tcp_rails")
        .about_peer(rank);
  }
  for (size_t rail = 0; rail < rails_.size(); ++rail) {
    const Status known = rails_[rail]->connect(rank, addresses[rail]);
    if (!known.ok()) return known.prefixed("rail " + std::to_string(rail) + ": ");
    if (rail > 0) rails_[rail]->turns().hold(rank);
  }
  return {};
}

Status TcpRails::wire(std::span<const uint32_t> ranks, int64_t deadline_ns, uint32_t* missing) {
  std::vector<TcpTransport*> rails;
  for (const auto& rail : rails_) rails.push_back(rail.get());
  return wire_tcp(*this, rails, ranks, deadline_ns, missing);
}

std::string TcpRails::description() const {
  std::string text = rails_[0]->description() + ", more rails:";
  for (size_t rail = 1; rail < rails_.size(); ++rail) {
    TcpEndpoint endpoint;
    PARALLAX_CHECK(decode_tcp_endpoint(rails_[rail]->address(), &endpoint).ok());
    text += (rail == 1 ? " " : ", ") + tcp_place(endpoint.listens);
  }
  return text;
}

NetworkStats TcpRails::stats() const {
  NetworkStats sum;
  for (const auto& rail : rails_) {
    const NetworkStats each = rail->stats();
    sum.strangers_dropped += each.strangers_dropped;
    sum.late_dropped += each.late_dropped;
    sum.credits_sent += each.credits_sent;
    sum.endpoints_opened += each.endpoints_opened;
  }
  return sum;
}

}  // namespace parallax
