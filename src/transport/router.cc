// SPDX-License-Identifier: Apache-2.0
// Routing by rank. See router.h.
#include "transport/router.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"

namespace parallax {

// Stands between a part and the owner's receiver: lets through only what comes from the part that
// the rank is routed to.
class Router::Filter final : public Receiver {
 public:
  Filter(const Router& router, size_t part, Receiver& receiver)
      : router_(router), part_(part), receiver_(receiver) {}

  void on_message(uint32_t from, std::span<const std::byte> message) override {
    if (routed_here(from)) receiver_.on_message(from, message);
  }
  std::byte* place(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) override {
    return routed_here(from) ? receiver_.place(from, head, rest_bytes) : nullptr;
  }
  void on_placed(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) override {
    if (routed_here(from)) receiver_.on_placed(from, head, rest_bytes);
  }
  void on_sent(uint64_t cookie) override { receiver_.on_sent(cookie); }
  void on_lost(uint32_t rank, Loss loss, std::string_view why) override {
    if (routed_here(rank)) receiver_.on_lost(rank, loss, why);
  }

 private:
  bool routed_here(uint32_t rank) const {
    return rank < router_.part_of_.size() && router_.part_of_[rank] == part_;
  }

  const Router& router_;
  const size_t part_;
  Receiver& receiver_;
};

Status Router::create(uint32_t world, std::vector<Part> parts, std::unique_ptr<Router>* router) {
  if (parts.size() >= kNoPart) return invalid("a router has at most 254 parts");
  for (const Part& part : parts) {
    if (part.transport == nullptr) return invalid("a part of the router has no transport");
  }
  std::unique_ptr<Router> made(new Router(std::move(parts)));
  PARALLAX_RETURN_IF_ERROR(made->set_routes(world));
  PARALLAX_RETURN_IF_ERROR(made->open_wait_fd());
  *router = std::move(made);
  return {};
}

Router::Router(std::vector<Part> parts) : parts_(std::move(parts)) {
  message_bytes_max_ = parts_.empty() ? kMessageBytesMin : SIZE_MAX;
  for (const Part& part : parts_) {
    message_bytes_max_ = std::min(message_bytes_max_, part.transport->message_bytes_max());
  }
}

Router::~Router() {
  if (owns_wait_fd_) ::close(wait_fd_);
}

Status Router::set_routes(uint32_t world) {
  part_of_.assign(world, kNoPart);
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (const uint32_t rank : parts_[i].ranks) {
      if (rank >= world || part_of_[rank] != kNoPart) {
        return invalid("rank " + std::to_string(rank) + " has two routes, or is not in the world");
      }
      part_of_[rank] = static_cast<uint8_t>(i);
    }
  }
  return {};
}

Status Router::open_wait_fd() {
  for (const Part& part : parts_) {
    if (part.transport->wait_fd() < 0) return {};
  }
  if (parts_.size() <= 1) {
    if (!parts_.empty()) wait_fd_ = parts_[0].transport->wait_fd();
    return {};
  }
  wait_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (wait_fd_ < 0) return limit(std::string("epoll: ") + std::strerror(errno));
  owns_wait_fd_ = true;
  for (const Part& part : parts_) {
    epoll_event event = {};
    event.events = EPOLLIN;
    if (epoll_ctl(wait_fd_, EPOLL_CTL_ADD, part.transport->wait_fd(), &event) != 0) {
      return limit(std::string("epoll: ") + std::strerror(errno));
    }
  }
  return {};
}

const Transport* Router::route(uint32_t rank) const {
  if (rank >= part_of_.size() || part_of_[rank] == kNoPart) return nullptr;
  return parts_[part_of_[rank]].transport.get();
}

bool Router::writable(uint32_t to) const {
  const Transport* transport = route(to);
  return transport != nullptr && transport->writable(to);
}

Status Router::send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) {
  PARALLAX_CHECK(route(to) != nullptr);
  return parts_[part_of_[to]].transport->send(to, segments, cookie);
}

bool Router::copies_sends(uint32_t to) const {
  const Transport* part = route(to);
  return part != nullptr && part->copies_sends(to);
}

RemoteWrites* Router::remote_writes() {
  for (Part& part : parts_) {
    RemoteWrites* const writes = part.transport->remote_writes();
    if (writes != nullptr) return writes;
  }
  return nullptr;
}

bool Router::poll(Receiver& receiver) {
  bool moved = false;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const size_t part = (first_polled_ + i) % parts_.size();
    Filter filter(*this, part, receiver);
    moved |= parts_[part].transport->poll(filter);
  }
  if (!parts_.empty()) first_polled_ = (first_polled_ + 1) % parts_.size();
  return moved;
}

bool Router::arm() {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](Part& part) { return part.transport->arm(); });
}

PeerMemory* Router::peer_memory() {
  for (const Part& part : parts_) {
    if (PeerMemory* const memory = part.transport->peer_memory()) return memory;
  }
  return nullptr;
}

Boards* Router::boards() {
  for (const Part& part : parts_) {
    if (Boards* const boards = part.transport->boards()) return boards;
  }
  return nullptr;
}

void Router::forget(uint32_t rank) {
  if (route(rank) != nullptr) parts_[part_of_[rank]].transport->forget(rank);
}

}  // namespace parallax
