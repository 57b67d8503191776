// SPDX-License-Identifier: Apache-2.0
// Listening, connecting, and who is admitted. See tcp_transport.h.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/interface.h"
#include "base/log.h"
#include "base/tcp_socket.h"
#include "base/version.h"
#include "transport/tcp/tcp_closing.h"
#include "transport/tcp/tcp_congestion.h"
#include "transport/tcp/tcp_tags.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/tcp/tcp_wiring.h"

namespace parallax {

namespace {

// One frame; as UCX's, so that plans do not differ by transport.
constexpr size_t kTcpMessageBytesDefault = 60 << 10;
constexpr int64_t kTickNs = 20 * kNanosecondsPerMillisecond;
constexpr int64_t kPauseNsMin = 10 * kNanosecondsPerMillisecond;
constexpr int64_t kPauseNsMax = 320 * kNanosecondsPerMillisecond;
// What a lease is more than what the kernel waits for an acknowledgement: that a network has fallen
// silent is then told by a connection that breaks, a little before a lease is over.
constexpr int64_t kTimeoutsPerLease = 8;

int64_t tcp_now_ns() { return SteadyClock().now_ns(); }

Key random_key() {
  Key key;
  std::string bytes = random_bytes(kKeyBytes);
  std::copy(bytes.begin(), bytes.end(), key.bytes.begin());
  wipe(&bytes);
  return key;
}

Status add_to(const UniqueFd& epoll, int descriptor, uint64_t tag) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return limit(std::string("open: epoll: ") + std::strerror(errno));
}

// Why this rank cannot even try to connect; "": it is not for want of anything here.
std::string shortage_of(int failure) {
  switch (failure) {
    case EADDRNOTAVAIL:
    case EADDRINUSE:
      return "this machine has no port left for it: widen net.ipv4.ip_local_port_range";
    case EMFILE:
    case ENFILE:
      return "there is no descriptor left for it: raise ulimit -n";
    case ENOBUFS:
    case ENOMEM:
      return "this machine has no memory left for it";
    default:
      return "";
  }
}

// `salt` is this rank's, `connects` says whether it is the one that does.
TcpTrust trust_between(const TcpOptions& options, const Key& salt, const TcpPeer& peer,
                       bool connects) {
  TcpTrust trust;
  trust.identity = {.job = options.job,
                    .epoch = options.epoch,
                    .world = options.world,
                    .from = connects ? options.rank : peer.rank,
                    .to = connects ? peer.rank : options.rank,
                    .version = kVersion,
                    .suite = {.security = options.security,
                              .cipher = agreed_cipher(options.aes_hardware, peer.endpoint.aes),
                              .frames_per_key = options.frames_per_key}};
  trust.listener_salt = connects ? peer.endpoint.salt : salt;
  return trust;
}

}  // namespace

TcpTransport::TcpTransport(const TcpOptions& options)
    : options_(options),
      message_bytes_max_(options.message_bytes_max == 0 ? kTcpMessageBytesDefault
                                                        : options.message_bytes_max),
      salt_(random_key()),
      peers_(options.world) {}

Status choose_own_address(const TcpOptions& options, SocketAddress* address) {
  if (options.own_address.empty()) return choose_address(options.net_device, address);
  const Status found = find_address(options.own_address, options.net_device, address);
  return found.ok() ? found : found.prefixed("open: tcp_address ").about_field("tcp_address");
}

Status TcpTransport::create(const TcpOptions& options, std::unique_ptr<TcpTransport>* transport) {
  if (options.rank >= options.world) return invalid("rank must be below world");
  if (options.message_bytes_max != 0 && (options.message_bytes_max < kMessageBytesMin ||
                                         options.message_bytes_max > kTcpBodyBytesMax)) {
    return invalid("message_bytes_max must be " + std::to_string(kMessageBytesMin) + ".." +
                   std::to_string(kTcpBodyBytesMax));
  }
  std::unique_ptr<TcpTransport> made(new TcpTransport(options));
  PARALLAX_RETURN_IF_ERROR(made->open());
  *transport = std::move(made);
  return {};
}

Status TcpTransport::open() {
  SocketAddress address;
  PARALLAX_RETURN_IF_ERROR(choose_own_address(options_, &address));
  const auto find_trust = [this](uint32_t from, TcpTrust* trust) {
    if (from >= peers_.size() || peers_[from] == nullptr) return false;
    *trust = trust_between(options_, salt_, *peers_[from], false);
    return true;
  };
  PARALLAX_RETURN_IF_ERROR(TcpTls::create(options_.job_key, find_trust, &tls_));
  strangers_ = std::make_unique<TcpStrangers>(*tls_);
  PARALLAX_RETURN_IF_ERROR(strangers_->listen(address, options_.ports));
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!epoll_.valid() || !timer_.valid()) {
    return limit(std::string("open: no descriptor for transport tcp: ") + std::strerror(errno) +
                 "; raise ulimit -n");
  }
  PARALLAX_RETURN_IF_ERROR(add_to(epoll_, strangers_->listener(), kTcpListenerTag));
  PARALLAX_RETURN_IF_ERROR(add_to(epoll_, timer_.get(), kTcpTimerTag));
  connected_.reserve(options_.world);
  attention_.reserve(options_.world);
  return {};
}

std::string TcpTransport::address() const {
  return encode_tcp_endpoint({.listens = strangers_->address(),
                              .security = options_.security,
                              .aes = options_.aes_hardware,
                              .salt = salt_});
}

std::string tcp_place(const SocketAddress& address) {
  const std::string device = interface_of(address);
  return to_text(address) + (device.empty() ? "" : " on " + device);
}

std::string TcpTransport::description() const {
  return tcp_place(strangers_->address()) + ", security " + tcp_security_name(options_.security);
}

NetworkStats TcpTransport::stats() const {
  NetworkStats stats = stats_;
  stats.strangers_dropped += strangers_->turned_away();
  stats.credits_sent += counters_.credits_sent;
  return stats;
}

Status TcpTransport::connect(uint32_t rank, const std::string& address) {
  if (rank >= peers_.size() || rank == options_.rank || peers_[rank] != nullptr) {
    return invalid("rank " + std::to_string(rank) + " cannot be connected, or is already");
  }
  auto peer = std::make_unique<TcpPeer>(buffers_, counters_);
  const Status read = decode_tcp_endpoint(address, &peer->endpoint);
  if (!read.ok()) return read.prefixed("rank " + std::to_string(rank) + ": ");
  if (peer->endpoint.security != options_.security) {
    return Status(PARALLAX_MISMATCH,
                  "open: setting security: rank " + std::to_string(options_.rank) + " has " +
                      tcp_security_name(options_.security) + ", rank " + std::to_string(rank) +
                      " has " + tcp_security_name(peer->endpoint.security) +
                      "; give every rank the same")
        .about_field("security")
        .about_peer(rank);
  }
  const SocketAddress &own = strangers_->address(), &to = peer->endpoint.listens;
  if (own.storage.ss_family != to.storage.ss_family) {
    return Status(PARALLAX_MISMATCH,
                  "open: transport tcp: rank " + std::to_string(options_.rank) + " listens at " +
                      to_text(own) + ", rank " + std::to_string(rank) + " at " + to_text(to) +
                      ", one by IPv4, the other by IPv6; give every rank an address of the same "
                      "kind by tcp_address, or an interface that has one by net_device")
        .about_field("tcp_address")
        .about_peer(rank);
  }
  peer->rank = rank;
  peer->sent = &completions_;
  peers_[rank] = std::move(peer);
  completions_.reserve(++known_count_ * kSendsInFlightMax);
  return {};
}

void TcpTransport::reach(uint32_t rank) {
  TcpPeer& peer = *peers_[rank];
  if (peer.phase != TcpPeer::Phase::kKnown) return;
  peer.phase = TcpPeer::Phase::kConnecting;
  peer.dial = std::make_unique<TcpDial>();
  peer.dial->deadline_ns = tcp_now_ns() + options_.lease_ns;
  ++dial_count_;
  attempt(peer);
  keep_time();
}

void TcpTransport::attempt(TcpPeer& peer) {
  TcpDial& dial = *peer.dial;
  dial.handshake =
      std::make_unique<TcpHandshake>(*tls_, trust_between(options_, salt_, peer, true));
  dial.in.clear();
  dial.out.clear();
  const SocketAddress& to = peer.endpoint.listens;
  const SocketAddress& own = strangers_->address();
  const int failure = tcp_connect(to, &dial.socket, &own);
  const bool moved = failure == EADDRNOTAVAIL && interface_of(own).empty();
  const std::string shortage =
      moved ? "this machine has no longer the address " + to_text(own) : shortage_of(failure);
  dial.own_fault = !shortage.empty();
  if (dial.own_fault) return fail_attempt(peer, shortage, false);
  if (failure != 0) return fail_attempt(peer, std::strerror(failure), failure == ECONNREFUSED);
  dial.stage = TcpDial::Stage::kConnecting;
  if (!watch_tcp_peer(epoll_, EPOLL_CTL_ADD, dial.socket, peer.rank, EPOLLOUT)) {
    fail_attempt(peer, std::strerror(errno), false);
  }
}

void TcpTransport::advance_dial(TcpPeer& peer) {
  TcpDial& dial = *peer.dial;
  if (dial.stage == TcpDial::Stage::kConnecting) {
    const int failure = tcp_connected(dial.socket);
    if (failure == ENOTCONN) return;  // not yet
    // Its port was open when it told it, so its process has ended.
    if (failure != 0) return fail_attempt(peer, std::strerror(failure), failure == ECONNREFUSED);
    dial.stage = TcpDial::Stage::kTalking;
    (void)watch_tcp_peer(epoll_, EPOLL_CTL_MOD, dial.socket, peer.rank, kTcpHears);
    dial.handshake->start(&dial.out);
  }
  if (dial.stage != TcpDial::Stage::kTalking) return;
  bool open = tcp_receive(dial.socket, TcpStrangers::kHandshakeBytesMax, &dial.in);
  const TcpHandshake::Phase phase = dial.handshake->advance(&dial.in, &dial.out);
  open = tcp_send(dial.socket, &dial.out) && dial.out.empty() && open &&
         dial.in.size() <= TcpStrangers::kHandshakeBytesMax;
  if (phase == TcpHandshake::Phase::kFailed) {
    return fail_attempt(peer, dial.handshake->why(), false);
  }
  if (!open) return fail_attempt(peer, "it hung up before it proved itself", false);
  if (phase != TcpHandshake::Phase::kDone) return;
  dial.stage = TcpDial::Stage::kWaiting;
  link(peer, std::move(dial.socket), *dial.handshake);
  dial.handshake.reset();
}

// `trouble` is often the handshake's, which goes here.
void TcpTransport::fail_attempt(TcpPeer& peer, std::string trouble, bool final) {
  TcpDial& dial = *peer.dial;
  unlink(peer);
  dial.socket.reset();
  dial.handshake.reset();
  dial.trouble = std::move(trouble);
  const int64_t now_ns = tcp_now_ns();
  if (final || now_ns >= dial.deadline_ns) {
    const Loss loss = dial.own_fault ? Loss::kOwnLack : Loss::kBroken;
    std::string why = dial.trouble;
    if (!dial.own_fault) {
      why = "it could not be connected to " + tcp_path(peer, strangers_->address()) + " (" + why +
            ")";
    }
    stop_dial(peer);
    return fail(peer, loss, std::move(why));
  }
  dial.stage = TcpDial::Stage::kPaused;
  dial.pause_ns = std::clamp(2 * dial.pause_ns, kPauseNsMin, kPauseNsMax);
  dial.again_ns = now_ns + dial.pause_ns;
}

// The connection, if there is one, stays.
void TcpTransport::stop_dial(TcpPeer& peer) {
  peer.dial.reset();
  --dial_count_;
}

void TcpTransport::link(TcpPeer& peer, UniqueFd socket, const TcpHandshake& handshake) {
  const int64_t lease_ms = options_.lease_ns / kNanosecondsPerMillisecond;
  const auto timeout_ms = static_cast<unsigned>(
      std::clamp<int64_t>(lease_ms - lease_ms / kTimeoutsPerLease, 1, INT32_MAX));
  (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
  set_tcp_congestion(socket, options_.congestion);
  const auto busy_poll_us = static_cast<int>(options_.busy_poll_us);
  if (busy_poll_us > 0 &&
      setsockopt(socket.get(), SOL_SOCKET, SO_BUSY_POLL, &busy_poll_us, sizeof busy_poll_us) != 0) {
    log_write_once(LogLevel::kWarn, LogSubsystem::kNet,
                   "tcp_busy_poll_us is " + std::to_string(busy_poll_us) +
                       ", which the kernel refuses (" + std::strerror(errno) +
                       "); run with CAP_NET_ADMIN, or raise net.core.busy_read");
  }
  peer.link = std::make_unique<TcpLink>(std::move(socket), handshake, message_bytes_max_);
}

void TcpTransport::connected(TcpPeer& peer) {
  if (peer.phase == TcpPeer::Phase::kConnecting) stop_dial(peer);
  peer.phase = TcpPeer::Phase::kConnected;
  connected_.push_back(&peer);
  ++stats_.endpoints_opened;
  flush(peer);
}

void TcpTransport::admit(TcpStrangers::Member member) {
  const TcpIdentity& identity = member.handshake->identity();
  TcpPeer& peer = *peers_[identity.from];
  const bool dials = peer.phase == TcpPeer::Phase::kConnecting;
  if (peer.phase != TcpPeer::Phase::kKnown && !(dials && peer.rank < options_.rank)) {
    // Of two attempts that cross, this rank's counts; and after a loss there is no way back.
    ++stats_.late_dropped;
    return;
  }
  if (dials) unlink(peer);
  (void)watch_tcp_peer(epoll_, EPOLL_CTL_MOD, member.socket, peer.rank, kTcpHears);
  link(peer, std::move(member.socket), *member.handshake);
  peer.outgoing.add_welcome();
  connected(peer);
}

void TcpTransport::accept() {
  accept_lacks_ = !strangers_->accept(epoll_.get(), kTcpStrangerTag, tcp_now_ns());
  if (!accept_lacks_) return;
  // No descriptor, and nobody to turn away: again at the next tick.
  epoll_event event = {};
  event.data.u64 = kTcpListenerTag;
  accept_paused_ = epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, strangers_->listener(), &event) == 0;
}

void TcpTransport::on_tick() {
  uint64_t ticks = 0;
  (void)!::read(timer_.get(), &ticks, sizeof ticks);
  const int64_t now_ns = tcp_now_ns();
  strangers_->expire(now_ns);
  if (std::exchange(accept_paused_, false)) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = kTcpListenerTag;
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, strangers_->listener(), &event);
  }
  for (const auto& peer : peers_) {
    if (dial_count_ == 0) return;
    if (peer == nullptr || peer->phase != TcpPeer::Phase::kConnecting) continue;
    TcpDial& dial = *peer->dial;
    if (now_ns >= dial.deadline_ns) {
      fail_attempt(*peer, dial.trouble.empty() ? "it does not answer" : dial.trouble, true);
    } else if (dial.stage == TcpDial::Stage::kPaused && now_ns >= dial.again_ns) {
      attempt(*peer);
    }
  }
}

// The clock ticks while somebody may have to be given up, or asked again.
void TcpTransport::keep_time() {
  const bool needed = dial_count_ > 0 || strangers_->count() > 0 || accept_paused_;
  if (needed == ticking_) return;
  itimerspec time = {};
  time.it_value.tv_nsec = time.it_interval.tv_nsec = needed ? kTickNs : 0;
  ticking_ = timerfd_settime(timer_.get(), 0, &time, nullptr) == 0 ? needed : ticking_;
}

// Of two ranks the lower one connects, so that attempts never cross here.
Status TcpTransport::wire_on(std::span<const uint32_t> ranks, TcpLate* late) {
  late->own_rank = options_.rank;
  late->listens = strangers_->address();
  late->accept_lacks = accept_lacks_;
  late->peers.clear();
  for (const uint32_t rank : ranks) {
    if (rank >= peers_.size() || peers_[rank] == nullptr) {
      return invalid("rank " + std::to_string(rank) + " is to be wired, but not connected");
    }
    if (options_.rank < rank) reach(rank);
    const TcpPeer* const peer = peers_[rank].get();
    if (peer->phase != TcpPeer::Phase::kConnected) late->peers.push_back(peer);
  }
  // Who is connected, lost or forgotten does not come again. A rank is connected here only once its
  // own attempt, had it made one, is over: none that lives is still on its way.
  if (late->peers.empty() && std::all_of(peers_.begin(), peers_.end(), [](const auto& peer) {
        return peer == nullptr || peer->phase >= TcpPeer::Phase::kConnected;
      })) {
    strangers_->close(epoll_.get());
    accept_paused_ = false;
  }
  return {};
}

Status TcpTransport::wire(std::span<const uint32_t> ranks, int64_t deadline_ns, uint32_t* missing) {
  TcpTransport* const alone = this;
  return wire_tcp(*this, {&alone, 1}, ranks, deadline_ns, missing);
}

TcpTransport::~TcpTransport() {
  const TcpTurns::Peers* const peers = &peers_;
  close_tcp({&peers, 1});
}

}  // namespace parallax
