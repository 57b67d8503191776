// SPDX-License-Identifier: Apache-2.0
// From the parent, to the children: see the header.
#include "rendezvous/roster_relay.h"

#include <algorithm>

#include "base/log.h"
#include "rendezvous/roster_feed.h"
#include "rendezvous/roster_frames.h"
#include "rendezvous/tcp_listen.h"
#include "world/patterns.h"

namespace parallax {

namespace {

constexpr size_t kParentBytesPerPass = 4 * kSealedBodyBytesMax;

using Stage = ServerLink::Stage;

}  // namespace

RosterRelay::RosterRelay(const RendezvousOptions& options, const TcpEntry& entry)
    : options_(options),
      entry_(entry),
      children_(radix_children(options.world, options.rank)),
      parent_name_("rank " + std::to_string(radix_parent(options.rank))) {}

uint16_t RosterRelay::listen(const SocketAddress& address) {
  UniqueFd listener;
  SocketAddress at;
  if (!tcp_listen(address, &listener).ok() || !tcp_name(listener, &at).ok()) return 0;
  acceptor_.emplace(options_, entry_, to_text(at), std::move(listener));
  return port_of(at);
}

// Without a secret whoever listens would be believed: then only on this machine.
bool RosterRelay::on_parent(std::string_view body, const SocketAddress& rank_0) {
  ParentAddress parent;
  if (parent_told_ || !decode(body, &parent) || parent.rank == 0 ||
      parent.rank != radix_parent(options_.rank)) {
    return false;
  }
  parent_told_ = true;
  const SocketAddress at =
      make_address(parent.address.empty() ? address_bytes(rank_0) : parent.address, parent.port);
  parent_name_ += " at " + to_text(at);
  if (parent.port == 0 || (!entry_.secret && !is_loopback(at))) return true;
  parent_.emplace(options_, entry_, parent.rank);
  parent_->aim({at});
  return true;
}

// Once: there is no other parent after it.
void RosterRelay::distrust_parent() {
  if (!parent_) return;
  PARALLAX_LOG(kWarn, kInit,
               "what " + parent_name_ + " passed on to rank " + std::to_string(options_.rank) +
                   " while ranks met at " + entry_.where +
                   " is not what the ranks brought: it is not believed any more, and rank 0 is "
                   "asked instead");
  drop_parent();
}

void RosterRelay::pass_on(std::vector<std::string> bodies) {
  if (!acceptor_) return;
  bodies_ = std::move(bodies);
  passed_count_.clear();
}

void RosterRelay::advance(int64_t now_ns, const TakeBlobs& take) {
  if (parent_) hear(now_ns, take);
  if (!acceptor_) return;
  for (const auto& link : acceptor_->links()) receive(*link);
  for (int i = 0; i < kAcceptsPerPass && acceptor_->accept(now_ns) == Accepted::kOne; ++i) {
    receive(*acceptor_->links().back());
  }
  acceptor_->expire(now_ns);
  for (const auto& link : acceptor_->links()) send(*link);
  acceptor_->sweep();
}

// One try: rank 0 serves who fails.
void RosterRelay::hear(int64_t now_ns, const TakeBlobs& take) {
  if (!parent_->joined()) {
    const Status refused = parent_->advance(now_ns);
    if (!refused.ok() || !parent_->last_try().empty()) drop_parent();
    if (!parent_ || !parent_->joined()) return;
  }
  const bool open = parent_->stream().receive(kParentBytesPerPass);
  if (!take_frames(take)) {
    distrust_parent();
  } else if (!open) {
    drop_parent();
  }
}

// False: a parent sends no such frames.
bool RosterRelay::take_frames(const TakeBlobs& take) {
  FrameStream& stream = parent_->stream();
  Took took = Took::kFrame;
  while (took == Took::kFrame) {
    Frame frame;
    took = stream.take(&frame);
    if (took != Took::kFrame) break;
    if (frame.kind != FrameKind::kBlobs || !take(frame.body)) took = Took::kBroken;
  }
  stream.drop_taken();
  return took != Took::kBroken;
}

Status RosterRelay::admit(const Introduction& peer) const {
  const auto& links = acceptor_->links();
  const bool here = std::any_of(links.begin(), links.end(), [&](const auto& link) {
    return link->stage() == Stage::kMember && link->rank() == peer.rank;
  });
  if (!here && std::find(children_.begin(), children_.end(), peer.rank) != children_.end()) {
    return {};
  }
  return invalid(rank_name(peer.rank, peer.host) + " came for blobs to " +
                 rank_name(options_.rank, options_.host) +
                 (here ? ", where it is already" : ", which passes none on to it"));
}

// A child sends nothing once it is admitted.
void RosterRelay::receive(ServerLink& link) {
  const bool open =
      acceptor_->receive(link, [this](const Introduction& peer) { return admit(peer); });
  const bool speaks = link.stage() == Stage::kMember && !link.stream().in.empty();
  if (!open || speaks) link.close();
}

// Until there is nothing left, or the socket takes no more and says when it does.
void RosterRelay::send(ServerLink& link) {
  FrameStream& stream = link.stream();
  bool more = true;
  while (more) {
    more = false;
    if (link.stage() == Stage::kMember) {
      size_t& passed_count = passed_count_[link.rank()];
      while (passed_count < bodies_.size() && stream.out.size() < kFeedBytes) {
        stream.seal(FrameKind::kBlobs, bodies_[passed_count++]);
      }
      more = passed_count < bodies_.size();
    }
    if (!link.send()) {
      link.close();
      return;
    }
    more = more && stream.out.empty();
  }
}

bool RosterRelay::flushed() const {
  if (!acceptor_) return true;
  const auto& links = acceptor_->links();
  return std::all_of(links.begin(), links.end(), [this](const auto& link) {
    if (link->stage() != Stage::kMember) return true;
    const auto passed = passed_count_.find(link->rank());
    const size_t passed_count = passed == passed_count_.end() ? 0 : passed->second;
    return passed_count == bodies_.size() && link->stream().out.empty();
  });
}

int64_t RosterRelay::waits(int64_t now_ns, std::vector<pollfd>* fds) const {
  int64_t due_ns = kNever;
  if (parent_) parent_->waits(fds);
  if (parent_ && !parent_->joined()) due_ns = parent_->due_ns();
  if (acceptor_) due_ns = std::min(due_ns, acceptor_->waits(now_ns, fds));
  return due_ns;
}

void RosterRelay::close() {
  parent_.reset();
  acceptor_.reset();
}

}  // namespace parallax
