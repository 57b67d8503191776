// SPDX-License-Identifier: Apache-2.0
// What a member is sent: see the header.
#include "rendezvous/roster_feed.h"

#include "base/codec.h"
#include "rendezvous/handshake.h"
#include "transport/endpoint.h"

namespace parallax {

namespace {
constexpr size_t kBlobsBytesMax = 32 * 1024;
static_assert(kBlobsBytesMax + kEndpointBytesMax + 64 <= kSealedBodyBytesMax);
}  // namespace

void RosterFeed::put_blobs(const Roster& roster, Channel* channel, std::string* out) {
  while (roster.complete(round_) && out->size() < kFeedBytes) {
    std::string body;
    put_number(&body, round_);
    put_number(&body, next_);
    const size_t count_at = body.size();
    put_number(&body, uint32_t{0});
    uint32_t count = 0;
    while (next_ < roster.world() && body.size() < kBlobsBytesMax) {
      put_text(&body, roster.blob(round_, next_++), kEndpointBytesMax);
      ++count;
    }
    std::string number;
    put_number(&number, count);
    body.replace(count_at, number.size(), number);
    channel->seal(FrameKind::kBlobs, body, out);
    if (next_ < roster.world()) continue;
    next_ = 0;
    ++round_;
  }
}

void RosterFeed::put_verdict(const Roster& roster, Channel* channel, std::string* out) {
  if (told_ || roster.verdict().ok()) return;
  told_ = true;
  std::string body;
  put_status(&body, roster.verdict());
  channel->seal(FrameKind::kVerdict, body, out);
}

}  // namespace parallax
