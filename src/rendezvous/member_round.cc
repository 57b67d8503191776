// SPDX-License-Identifier: Apache-2.0
// The round under way: see the header.
#include "rendezvous/member_round.h"

#include "base/codec.h"
#include "rendezvous/frame.h"
#include "transport/endpoint.h"

namespace parallax {

void MemberRound::begin(std::string_view mine) {
  mine_.assign(mine);
  blobs_.clear();
  brought_ = false;
}

std::string MemberRound::bring() {
  brought_ = true;
  std::string body;
  put_number(&body, round_);
  return body + mine_;
}

bool MemberRound::take_blobs(std::string_view body) {
  ByteReader reader(body);
  uint64_t round = 0;
  uint32_t first = 0;
  uint32_t count = 0;
  if (!reader.number(&round) || !reader.number(&first) || !reader.number(&count) ||
      round != round_ || first != blobs_.size() || count > world_ - first) {
    return false;
  }
  for (uint32_t i = 0; i < count; ++i) {
    blobs_.emplace_back();
    if (!reader.text(&blobs_.back(), kEndpointBytesMax)) return false;
  }
  return reader.empty();
}

std::vector<std::string> MemberRound::finish() {
  ++round_;
  std::vector<std::string> all;
  all.swap(blobs_);
  return all;
}

std::string MemberRound::ask() {
  ++asked_count_;
  std::string body;
  put_number(&body, round_);
  return body;
}

bool MemberRound::take_answer(std::string_view rest) {
  ByteReader reader(rest);
  if (answered() || !reader.text(&missing_, kSentenceBytesMax) || !is_printable(missing_)) {
    return false;
  }
  ++answered_count_;
  return true;
}

}  // namespace parallax
