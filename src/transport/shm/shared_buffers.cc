// SPDX-License-Identifier: Apache-2.0
// Announcing, mapping, answering. See shared_buffers.h.
#include "transport/shm/shared_buffers.h"

#include <sys/epoll.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <new>
#include <span>
#include <utility>

#include "base/sealed_memory.h"
#include "transport/shm/socket.h"

namespace parallax {

namespace {

constexpr int kPacketsAtOnce = 32;  // each may be a mapping: then the messages have their turn

using Kind = BufferPacket::Kind;

// Writes what is there, whoever else writes there too.
void rewrite(unsigned char* byte) {
  std::atomic_ref<unsigned char> there(*byte);
  unsigned char value = there.load(std::memory_order_relaxed);
  while (!there.compare_exchange_weak(value, value, std::memory_order_relaxed)) {
  }
}

// The same pages, of which a write makes a copy: moved there first and copied then, so that no byte
// is lost that the program writes meanwhile, beside what was lent. Not mapped there at once: where
// the kernel has no memory for that, it may find so with the old mapping gone.
bool move_private(const SharedMemory& memory, uint64_t offset, uint64_t bytes) {
  void* const there = const_cast<std::byte*>(memory.base) + offset;
  // Where a program has locked all that it maps (mlockall), what is writable as it is mapped is
  // copied at once.
  void* const pages =
      ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, memory.fd, static_cast<off_t>(offset));
  if (pages == MAP_FAILED) return false;
  ::munlock(pages, bytes);
  if (::mprotect(pages, bytes, PROT_READ | PROT_WRITE) != 0 ||
      ::mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, there) == MAP_FAILED) {
    ::munmap(pages, bytes);
    return false;
  }
  const uint64_t page_bytes = bytes_of_page();
  for (uint64_t at = 0; at < bytes; at += page_bytes) {
    rewrite(static_cast<unsigned char*>(there) + at);
  }
  return true;
}

BufferPacket packet_of(Kind kind, uint64_t buffer, uint64_t bytes = 0) {
  return {.magic = kBufferMagic, .kind = kind, .buffer = buffer, .bytes = bytes};
}

}  // namespace

// ---- who is there

bool SharedBuffers::add(uint32_t rank, UniqueFd connection, uint32_t tag) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u32 = tag;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.get(), &event) != 0) return false;
  auto peer = std::make_unique<Peer>(limits_);
  peer->connection = std::move(connection);
  peer->tag = tag;
  if (peers_.size() <= rank) peers_.resize(rank + 1);
  peers_[rank] = std::move(peer);
  return true;
}

void SharedBuffers::drop(uint32_t rank) {
  Peer* peer = peer_of(rank);
  if (peer == nullptr) return;
  retract(rank);
  close(rank, peer);
}

void SharedBuffers::close(uint32_t rank, Peer* peer) {
  if (peer->connection.valid()) {
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, peer->connection.get(), nullptr);
    peer->connection.reset();
  }
  peer->waiting.clear();
  peer->buffers.clear();
  for (auto& [first, own] : own_) own.mapped_by.erase(rank);
}

// The epoll is the parent's too: its list of connections is left alone.
void SharedBuffers::leave() {
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->buffers.leave();
  }
}

// ---- what is said

void SharedBuffers::await_room(Peer* peer, bool wanted) {
  if (peer->awaits_room == wanted) return;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (wanted ? EPOLLOUT : 0u);
  event.data.u32 = peer->tag;
  if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, peer->connection.get(), &event) != 0) return;
  peer->awaits_room = wanted;
}

void SharedBuffers::tell(Peer* peer, const BufferPacket& packet) {
  if (!peer->connection.valid()) return;
  peer->waiting.push_back(packet);  // may throw, and then nothing was said
  flush(peer);
}

void SharedBuffers::flush(Peer* peer) {
  while (!peer->waiting.empty()) {
    const BufferPacket& packet = peer->waiting.front();
    std::array<int, 1> fds{-1};
    std::span<const int> along;
    if (packet.kind == Kind::kShare) {
      fds[0] = own_of(packet.buffer)->memory.fd;  // there: unshare() takes back what waits
      along = fds;
    }
    const SocketNews sent =
        send_packet(peer->connection, std::as_bytes(std::span(&packet, 1)), along);
    if (sent == SocketNews::kAgain) return await_room(peer, true);
    // Else it is gone; or it is hung up, which its end tells; or too many descriptors are under
    // way: then this one is not shared with it.
    peer->waiting.pop_front();
  }
  await_room(peer, false);
}

// ---- what is heard

SharedBuffers::News SharedBuffers::look(uint32_t rank) {
  Peer* peer = peer_of(rank);
  if (peer == nullptr || !peer->connection.valid()) return News::kHeard;
  flush(peer);
  const News news = hear(rank, peer);
  if (news != News::kHeard) close(rank, peer);
  return news;
}

SharedBuffers::News SharedBuffers::hear(uint32_t rank, Peer* peer) {
  for (int i = 0; i < kPacketsAtOnce; ++i) {
    BufferPacket packet;
    size_t bytes = 0;
    size_t fd_count = 0;
    std::array<UniqueFd, kFdsInPacketMax> fds;
    const SocketNews news = receive_packet(
        peer->connection, std::as_writable_bytes(std::span(&packet, 1)), &bytes, fds, &fd_count);
    if (news == SocketNews::kAgain) return News::kHeard;
    // kNoDescriptors: the packet came without what it carried, for which there was no room here.
    if (news != SocketNews::kOk && news != SocketNews::kNoDescriptors) return News::kHungUp;
    if (bytes == 0) return News::kHungUp;
    if (bytes != sizeof packet || packet.magic != kBufferMagic || packet.buffer == 0 ||
        fd_count > 1 || !take(rank, peer, packet, fds[0])) {
      return News::kGarbled;
    }
    if (peer->waiting.size() > kPacketsWaitingMax) return News::kGarbled;
  }
  return News::kHeard;
}

// False: no rank sends this.
bool SharedBuffers::take(uint32_t rank, Peer* peer, const BufferPacket& packet,
                         const UniqueFd& fd) {
  if (packet.kind != Kind::kShare && (fd.valid() || packet.bytes != 0)) return false;
  Own* own = nullptr;
  switch (packet.kind) {
    case Kind::kShare:
      if (packet.buffer <= peer->last_number) return false;
      peer->last_number = packet.buffer;
      answer_share(peer, packet, fd);
      return true;
    case Kind::kUnshare:
      peer->buffers.unmap(packet.buffer);  // what was refused is not there
      return true;
    case Kind::kMapped:
    case Kind::kRefused:
      if (packet.buffer > numbers_given_) return false;
      own = own_of(packet.buffer);  // none: freed meanwhile
      if (packet.kind == Kind::kRefused) {
        ++refused_us_;
      } else if (own != nullptr) {
        own->mapped_by.insert(rank);
      }
      return true;
  }
  return false;
}

void SharedBuffers::answer_share(Peer* peer, const BufferPacket& packet, const UniqueFd& fd) {
  const bool mapped = fd.valid() && mapped_count() < kMappingsMax &&
                      peer->buffers.map(packet.buffer, fd, packet.bytes).ok();
  if (!mapped) ++refused_;
  tell(peer, packet_of(mapped ? Kind::kMapped : Kind::kRefused, packet.buffer));
}

size_t SharedBuffers::mapped_count() const {
  size_t count = 0;
  for (const auto& peer : peers_) count += peer == nullptr ? 0 : peer->buffers.count();
  return count;
}

// ---- of this rank

bool SharedBuffers::share(const SharedMemory& memory) {
  if (own_.size() >= limits_.buffers) return false;
  const auto first = reinterpret_cast<uintptr_t>(memory.base);
  const uint64_t number = numbers_given_ + 1;
  first_of_[number] = first;
  own_.emplace(first, Own{.memory = memory, .number = number, .mapped_by = {}, .apart = {}});
  numbers_given_ = number;
  try {
    for (const auto& peer : peers_) {
      if (peer != nullptr) tell(peer.get(), packet_of(Kind::kShare, number, memory.bytes));
    }
  } catch (...) {
    unshare(memory.base);  // its memory goes
    throw;
  }
  return true;
}

void SharedBuffers::unshare(const void* base) {
  const auto found = own_.find(reinterpret_cast<uintptr_t>(base));
  if (found == own_.end()) return;
  const uint64_t number = found->second.number;
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    const auto unsaid =
        std::find_if(peer->waiting.begin(), peer->waiting.end(), [&](const BufferPacket& packet) {
          return packet.kind == Kind::kShare && packet.buffer == number;
        });
    if (unsaid == peer->waiting.end()) {
      tell(peer.get(), packet_of(Kind::kUnshare, number));
    } else {
      peer->waiting.erase(unsaid);
    }
  }
  first_of_.erase(number);
  own_.erase(found);
}

SharedBuffers::Own* SharedBuffers::own_of(uint64_t number) {
  const auto found = first_of_.find(number);
  return found == first_of_.end() ? nullptr : &own_.at(found->second);
}

BufferPlace SharedBuffers::place_of(const void* data, uint64_t bytes) const {
  const auto first = reinterpret_cast<uintptr_t>(data);
  auto at = own_.upper_bound(first);
  if (at == own_.begin()) return {};
  const auto& [base, own] = *--at;
  const uint64_t offset = first - base;
  if (!own.apart.empty() || offset > own.memory.bytes || bytes > own.memory.bytes - offset)
    return {};
  return {.buffer = own.number, .offset = offset};
}

uint64_t SharedBuffers::used_bytes(uint64_t buffer) const {
  const auto found = first_of_.find(buffer);
  if (found == first_of_.end()) return 0;
  const SharedMemory& memory = own_.at(found->second).memory;
  return memory.used_bytes == 0 ? memory.bytes : memory.used_bytes;
}

bool SharedBuffers::mapped_by(uint32_t rank, uint64_t buffer) const {
  const auto found = first_of_.find(buffer);
  return found != first_of_.end() && own_.at(found->second).mapped_by.count(rank) != 0;
}

const std::byte* SharedBuffers::find(uint32_t rank, const BufferPlace& place, uint64_t bytes) {
  const Peer* peer = peer_of(rank);
  return peer == nullptr ? nullptr : peer->buffers.find(place, bytes);
}

std::byte* SharedBuffers::find_writable(uint32_t rank, const BufferPlace& place, uint64_t bytes) {
  const Peer* peer = peer_of(rank);
  return peer == nullptr ? nullptr : peer->buffers.find_writable(place, bytes);
}

// ---- what is still meant

// ThreadSanitizer knows no fences, and GCC warns of them there. What these order lies in memory of
// other processes, of which it knows nothing either.
#if defined(__SANITIZE_THREAD__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

void SharedBuffers::set_marks(uint32_t rank, std::atomic<uint32_t>* own,
                              const std::atomic<uint32_t>* peers) {
  Peer* const peer = peer_of(rank);
  peer->own_mark = own;
  peer->peers_mark = peers;
}

// A sequence lock that is written once. The fence keeps what is written to the buffers afterwards
// behind the mark; the reader's keeps its look at the mark behind what it read.
void SharedBuffers::retract(uint32_t rank) {
  const Peer* const peer = peer_of(rank);
  if (peer == nullptr || peer->own_mark == nullptr) return;
  peer->own_mark->store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool SharedBuffers::was_meant(uint32_t rank) const {
  const Peer* const peer = peer_of(rank);
  if (peer == nullptr || peer->peers_mark == nullptr || !peer->connection.valid()) return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  return peer->peers_mark->load(std::memory_order_relaxed) == 0;
}

bool SharedBuffers::make_private(const ByteRange& pages) {
  const auto after = own_.upper_bound(pages.first);
  if (after == own_.begin()) return false;
  Own& own = std::prev(after)->second;
  const uint64_t page_bytes = bytes_of_page();
  const uint64_t offset = pages.first - reinterpret_cast<uintptr_t>(own.memory.base);
  if (offset % page_bytes != 0 || pages.bytes % page_bytes != 0 || offset > own.memory.bytes ||
      pages.bytes > own.memory.bytes - offset) {
    return false;
  }
  try {
    own.apart.resize(own.memory.bytes / page_bytes);
  } catch (const std::bad_alloc&) {
    return false;
  }
  // Those that are private already hold what the memfd does not.
  const uint64_t end = (offset + pages.bytes) / page_bytes;
  for (uint64_t at = offset / page_bytes; at < end;) {
    uint64_t until = at;
    while (until < end && !own.apart[until]) ++until;
    if (until > at && !move_private(own.memory, at * page_bytes, (until - at) * page_bytes)) {
      const bool any = std::find(own.apart.begin(), own.apart.end(), true) != own.apart.end();
      if (!any) own.apart.clear();
      return false;
    }
    for (; at < until; ++at) own.apart[at] = true;
    while (at < end && own.apart[at]) ++at;
  }
  return true;
}

PeerMemoryCounts SharedBuffers::counts() const {
  PeerMemoryCounts counts{.shared = own_.size(),
                          .mapped = mapped_count(),
                          .mapped_bytes = 0,
                          .refused = refused_,
                          .refused_us = refused_us_};
  for (const auto& peer : peers_) {
    if (peer != nullptr) counts.mapped_bytes += peer->buffers.bytes();
  }
  return counts;
}

}  // namespace parallax
