// SPDX-License-Identifier: Apache-2.0
// ShmTransport: see the header for owners, threads, sleep and death.
#include "transport/shm/shm_transport.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "base/clock.h"

namespace parallax {

namespace {

constexpr int kMessagesPerPeerMax = 16;   // in one poll, then the next peer has its turn
constexpr int kAskClockEveryPolls = 256;  // whether to look at descriptors, while busy
constexpr int kIdlePollsWeight = 16;      // an idle poll brings that nearer by this
// Between two looks at descriptors, a system call each, by who polls without blocking: what they
// tell of, a death or news of a buffer, is not waited for by looking.
constexpr int64_t kLookEveryNs = kNanosecondsPerMillisecond;
constexpr uint32_t kBellTag = UINT32_MAX;      // in epoll's data; else an index of peers_,
constexpr uint32_t kConnectionTag = 1u << 31;  // for its connection with this bit
constexpr int kEventsMax = 16;

}  // namespace

std::string shm_machine_id() {
  std::string boot_id;
  // The boot tells machines apart, the network namespace who can reach the abstract socket.
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  std::array<char, 64> net{};
  const ssize_t bytes = ::readlink("/proc/self/ns/net", net.data(), net.size());
  return boot_id + "/" + std::string(net.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
}

Status ShmTransport::create(const ShmOptions& options, std::unique_ptr<ShmTransport>* transport) {
  if (!std::has_single_bit(options.ring_bytes) || options.ring_bytes < kRingBytesMin ||
      options.ring_bytes > kRingBytesMax) {
    return invalid("ring_bytes must be a power of two from " + std::to_string(kRingBytesMin) +
                   " to " + std::to_string(kRingBytesMax));
  }
  Parts parts;
  parts.epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  parts.bell.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = kBellTag;
  if (!parts.epoll.valid() || !parts.bell.valid() ||
      ::epoll_ctl(parts.epoll.get(), EPOLL_CTL_ADD, parts.bell.get(), &event) != 0) {
    return limit(std::string("no descriptors for the shm transport: ") + std::strerror(errno) +
                 "; raise ulimit -n");
  }
  std::string address;
  PARALLAX_RETURN_IF_ERROR(listen_abstract(&parts.listener, &address));
  if (options.boards) PARALLAX_RETURN_IF_ERROR(SealedMemory::make(kBoardBytes, &parts.board));
  transport->reset(new ShmTransport(options, std::move(parts), std::move(address)));
  return {};
}

ShmTransport::ShmTransport(const ShmOptions& options, Parts parts, std::string address)
    : options_(options),
      owner_pid_(::getpid()),
      address_(std::move(address)),
      epoll_(std::move(parts.epoll)),
      bell_(std::move(parts.bell)),
      listener_(std::move(parts.listener)),
      board_(std::move(parts.board)),
      memory_(epoll_.get()) {}

ShmTransport::~ShmTransport() {
  if (::getpid() != owner_pid_) {  // a forked child's copy: the rank lives on in the parent
    memory_.leave();
    return;
  }
  for (const auto& peer : peers_) {
    memory_.retract(peer->link.rank);
    // What was sent lies in the rings, which live on in the peers' mappings.
    peer->link.out.header()->closed.store(1, std::memory_order_seq_cst);
    ring_bell(*peer);
  }
}

Status ShmTransport::connect_all(std::span<const Endpoint> peers, uint64_t job,
                                 int64_t deadline_ns) {
  PARALLAX_CHECK(listener_.valid());
  std::vector<ShmLink> links;
  Attacher attacher({.rank = options_.rank,
                     .job = job,
                     .ring_bytes = options_.ring_bytes,
                     .use_pidfd = options_.use_pidfd,
                     .clock = options_.clock,
                     .listener = &listener_,
                     .bell = &bell_,
                     .board = options_.boards ? board_.fd() : -1});
  PARALLAX_RETURN_IF_ERROR(attacher.run(peers, deadline_ns, &links));
  for (ShmLink& link : links) PARALLAX_RETURN_IF_ERROR(adopt(std::move(link)));
  listener_.reset();  // nobody else is expected
  return {};
}

Status ShmTransport::adopt(ShmLink link) {
  const auto index = static_cast<uint32_t>(peers_.size());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = index;
  if ((link.watch.valid() &&
       ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link.watch.get(), &event) != 0) ||
      !memory_.add(link.rank, std::move(link.connection), index | kConnectionTag)) {
    return limit("rank " + std::to_string(link.rank) +
                 " cannot be watched: " + std::strerror(errno));
  }
  memory_.set_marks(link.rank, &link.out.header()->retracted, &link.in.header()->retracted);
  auto peer = std::make_unique<Peer>();
  peer->out = RingProducer(link.out.header(), link.out.data(), link.out.data_bytes());
  peer->in = RingConsumer(link.in.header(), link.in.data(), link.in.data_bytes());
  peer->link = std::move(link);
  if (by_rank_.size() <= peer->link.rank) by_rank_.resize(peer->link.rank + 1);
  by_rank_[peer->link.rank] = peer.get();
  peers_.push_back(std::move(peer));
  return {};
}

void ShmTransport::ring_bell(const Peer& peer) {
  const uint64_t one = 1;
  // Non-blocking. It fails only when the count is full, and then the bell is readable anyway.
  [[maybe_unused]] const ssize_t written = ::write(peer.link.bell.get(), &one, sizeof one);
}

bool ShmTransport::writable(uint32_t to) const {
  const Peer* peer = find(to);
  if (peer == nullptr || peer->gone || peer->dead || peer->cookie_count == kSendsInFlightMax) {
    return false;
  }
  if (peer->out.has_room()) return true;
  // From now on poll() looks for room, and arm() asks the peer to ring the bell for it.
  peer->blocked = true;
  return false;
}

Status ShmTransport::send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) {
  PARALLAX_CHECK(writable(to));
  PARALLAX_CHECK(segments.size() <= kSegmentsMax);
  size_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.bytes;
  PARALLAX_CHECK(bytes <= kShmMessageBytesMax);
  Peer* peer = find(to);
  if (peer->out.write(segments, bytes)) ring_bell(*peer);
  // Copied into the ring, so complete; told by the next poll, never from within this call.
  peer->cookies[peer->cookie_count++] = cookie;
  ++completions_pending_;
  return {};
}

bool ShmTransport::poll(Receiver& receiver) {
  ++polls_;
  if (armed_) {
    stay_awake();
    look_at_descriptors();  // what woke us may be one
  } else if (polls_until_look_ <= 0) {
    look_if_due();
  }
  bool moved = deliver_completions(receiver);
  for (const auto& peer : peers_) {
    if (peer->gone) continue;
    // Tells the peer that this rank still runs: see peer_activity().
    peer->link.out.header()->producer_polls.store(polls_, std::memory_order_relaxed);
    moved |= deliver_messages(peer.get(), receiver);
    moved |= unblock(peer.get());
  }
  polls_until_look_ -= moved ? 1 : kIdlePollsWeight;
  return moved;
}

bool ShmTransport::deliver_completions(Receiver& receiver) {
  if (completions_pending_ == 0) return false;
  std::array<uint64_t, kSendsInFlightMax> cookies;
  for (const auto& peer : peers_) {
    // Taken out first: a callback that sends adds new ones, which wait for the next poll.
    const uint32_t count = std::exchange(peer->cookie_count, 0);
    if (count == 0) continue;
    cookies = peer->cookies;
    completions_pending_ -= count;
    for (uint32_t i = 0; i < count; ++i) receiver.on_sent(cookies[i]);
  }
  return true;
}

bool ShmTransport::deliver_messages(Peer* peer, Receiver& receiver) {
  // Looked at before the ring: what was sent before the end must come out before the loss.
  const bool closed = peer->link.in.header()->closed.load(std::memory_order_acquire) != 0;
  const bool dead = peer->dead;
  bool moved = false;
  if (peer->garbled) {
    lose(peer, Loss::kDead, "what it said of its buffers is garbled", receiver);
    return true;
  }
  for (int i = 0; i < kMessagesPerPeerMax; ++i) {
    std::span<const std::byte> message;
    const RingConsumer::Next next = peer->in.next(&message);
    if (next == RingConsumer::Next::kCorrupt) {
      lose(peer, Loss::kDead, peer->in.corruption(), receiver);
      return true;
    }
    if (next == RingConsumer::Next::kEmpty) {
      if (peer->out.corrupt()) {
        lose(peer, Loss::kDead, "the position it wrote into our ring is out of range", receiver);
      } else if (closed) {
        lose(peer, Loss::kBroken, "it closed its transport", receiver);
      } else if (dead) {
        lose(peer, Loss::kDead,
             peer->link.pid > 0 ? "process " + std::to_string(peer->link.pid) + " exited"
                                : "its process exited",
             receiver);
      }
      return moved || peer->gone;
    }
    moved = true;
    receiver.on_message(peer->link.rank, message);
    if (peer->gone) return true;  // forgotten from inside the callback
    // Only after the callback: it sums the message where it lies.
    if (peer->in.release()) ring_bell(*peer);
  }
  return moved;
}

bool ShmTransport::unblock(Peer* peer) {
  if (!peer->blocked || peer->gone || !peer->out.has_room()) return false;
  peer->blocked = false;
  return true;
}

void ShmTransport::lose(Peer* peer, Loss loss, const std::string& why, Receiver& receiver) {
  drop(peer);
  receiver.on_lost(peer->link.rank, loss, why);
}

// The rings' mappings stay until the end: a message of this peer may be in a callback's hands.
void ShmTransport::drop(Peer* peer) {
  peer->gone = true;
  peer->blocked = false;
  stop_watching(peer);
  memory_.drop(peer->link.rank);
}

void ShmTransport::stop_watching(Peer* peer) {
  if (!peer->link.watch.valid()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer->link.watch.get(), nullptr);
  peer->link.watch.reset();
}

void ShmTransport::look_if_due() {
  const int64_t now_ns = options_.clock->now_ns();
  polls_until_look_ = kAskClockEveryPolls;
  // Often enough for who goes to sleep, and seldom enough not to take the lines from who posts.
  posts_seen_ = posts();
  if (now_ns < next_look_ns_) return;
  next_look_ns_ = now_ns + kLookEveryNs;
  look_at_descriptors();
}

void ShmTransport::look_at_descriptors() {
  std::array<epoll_event, kEventsMax> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsMax, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u32 == kBellTag) {
      uint64_t rings = 0;
      [[maybe_unused]] const ssize_t got = ::read(bell_.get(), &rings, sizeof rings);
      continue;
    }
    Peer* peer = peers_[events[i].data.u32 & ~kConnectionTag].get();
    if ((events[i].data.u32 & kConnectionTag) != 0) {
      look_at_connection(peer);
      continue;
    }
    // Its process has ended. Reported once its ring is empty: see deliver_messages().
    peer->dead = true;
    stop_watching(peer);
  }
}

void ShmTransport::look_at_connection(Peer* peer) {
  switch (memory_.look(peer->link.rank)) {
    case SharedBuffers::News::kHeard:
      return;
    case SharedBuffers::News::kHungUp:
      // Else its pidfd tells, or `closed`.
      peer->dead |= peer->link.ends_with_it;
      return;
    case SharedBuffers::News::kGarbled:
      peer->garbled = true;
      return;
  }
}

void ShmTransport::stay_awake() {
  armed_ = false;
  for (const auto& peer : peers_) {
    if (!peer->gone) peer->in.stay_awake();
  }
}

bool ShmTransport::asleep_is_safe(Peer* peer) {
  // Each raises its flag and then looks, so that what comes after the look rings the bell.
  const bool message = !peer->in.sleep_until_message(heeds_posts_);
  const bool room = peer->blocked && !peer->out.sleep_until_room();
  return !message && !room && !peer->dead && !peer->out.corrupt() &&
         peer->link.in.header()->closed.load(std::memory_order_seq_cst) == 0;
}

bool ShmTransport::arm() {
  // No bell tells of them.
  if (completions_pending_ > 0) return false;
  armed_ = true;
  const bool safe = std::all_of(peers_.begin(), peers_.end(), [this](const auto& peer) {
    return peer->gone || asleep_is_safe(peer.get());
  });
  if (safe && (!heeds_posts_ || posts_seen())) return true;
  // There is something to do. A flag left up would cost a peer a bell for nothing.
  stay_awake();
  return false;
}

// ---- boards

const std::byte* ShmTransport::of(uint32_t rank) const {
  const Peer* const peer = find(rank);
  return peer == nullptr ? nullptr : peer->link.board.bytes();
}

void ShmTransport::post() {
  auto& posts = static_cast<BoardHead*>(board_.base())->posts;
  // One owner: no bus is locked, but for the order with the flags of those who sleep.
  posts.store(posts.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  for (const auto& peer : peers_) {
    if (!peer->gone && peer->out.take_sleep_until_post()) ring_bell(*peer);
  }
}

void ShmTransport::heed(bool posts) {
  const bool asleep = armed_ && !heeds_posts_;
  heeds_posts_ = posts;
  if (!posts || !asleep) return;
  for (const auto& peer : peers_) {
    if (!peer->gone) peer->in.heed_posts();
  }
  // With the flags up: who finds none has counted before this, and what he wrote is seen behind it.
  posts_seen_ = this->posts();
}

uint64_t ShmTransport::posts() const {
  uint64_t posts = 0;
  if (!options_.boards) return posts;
  for (const auto& peer : peers_) {
    posts += peer->link.board.head()->posts.load(std::memory_order_seq_cst);
  }
  return posts;
}

// Before a sleep, with the flags up. False: somebody has posted since the last look that is known
// to have followed, so another one is due.
bool ShmTransport::posts_seen() {
  const uint64_t seen = std::exchange(posts_seen_, posts());
  return seen == posts_seen_;
}

void ShmTransport::forget(uint32_t rank) {
  Peer* peer = find(rank);
  if (peer != nullptr) drop(peer);
}

ShmTransport::Activity ShmTransport::peer_activity(uint32_t rank) const {
  const Peer* peer = find(rank);
  if (peer == nullptr) return {};
  return {
      .polls = peer->link.in.header()->producer_polls.load(std::memory_order_relaxed),
      .sleeping = peer->link.out.header()->consumer_sleeps.load(std::memory_order_relaxed) != 0};
}

}  // namespace parallax
