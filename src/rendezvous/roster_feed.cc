// SPDX-License-Identifier: Apache-2.0
// What a member is sent: see the header.
#include "rendezvous/roster_feed.h"

#include "rendezvous/handshake.h"
#include "world/patterns.h"

namespace parallax {

RosterFeed::RosterFeed(uint32_t rank)
    : rank_(rank), parent_(radix_parent(rank)), fed_(parent_ == 0), parent_told_(parent_ == 0) {}

// A parent that reached rank 0 by loopback is on rank 0's machine: who comes from elsewhere finds
// it where it found rank 0.
void RosterFeed::put_parent(const Roster& roster, const SocketAddress& from, Channel* channel,
                            std::string* out) {
  const SocketAddress* port = parent_told_ ? nullptr : roster.children_port(parent_);
  if (port == nullptr) return;
  parent_told_ = true;
  ParentAddress parent{.rank = parent_, .address = {}, .port = port_of(*port)};
  if (parent.port != 0 && (is_loopback(from) || !is_loopback(*port))) {
    parent.address = address_bytes(*port);
  }
  channel->seal(FrameKind::kParent, encode(parent), out);
}

void RosterFeed::put_rounds(const Roster& roster, Channel* channel, std::string* out) {
  while (roster.complete(round_) && out->size() < kFeedBytes) {
    const bool empty = roster.digest(round_).empty();
    if (!complete_told_) {
      channel->seal(FrameKind::kComplete, encode(CompleteRound{round_, roster.digest(round_)}),
                    out);
    }
    complete_told_ = true;
    if (fed_ && !empty) put_piece(roster, channel, out);
    if (fed_ && !empty && next_ < roster.world()) continue;
    complete_told_ = false;
    next_ = 0;
    ++round_;
  }
}

void RosterFeed::put_piece(const Roster& roster, Channel* channel, std::string* out) {
  const BlobPiece piece =
      piece_from(next_, round_, roster.world(),
                 [&](uint32_t rank) -> const std::string& { return roster.blob(round_, rank); });
  next_ += static_cast<uint32_t>(piece.blobs.size());
  channel->seal(FrameKind::kBlobs, encode(piece), out);
}

bool RosterFeed::fetch(const Roster& roster, const FetchRequest& request) {
  if (fed_ || request.round + 1 != round_ || roster.has_brought(rank_, round_) ||
      roster.digest(request.round).empty()) {
    return false;
  }
  fed_ = true;
  complete_told_ = true;
  round_ = request.round;
  next_ = 0;
  return true;
}

void RosterFeed::put_verdict(const Roster& roster, Channel* channel, std::string* out) {
  if (verdict_told_ || roster.verdict().ok()) return;
  verdict_told_ = true;
  std::string body;
  put_status(&body, roster.verdict());
  channel->seal(FrameKind::kVerdict, body, out);
}

}  // namespace parallax
