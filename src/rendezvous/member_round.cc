// SPDX-License-Identifier: Apache-2.0
// The round under way: see the header.
#include "rendezvous/member_round.h"

#include "base/codec.h"
#include "rendezvous/frame.h"
#include "rendezvous/roster_frames.h"

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
  BlobPiece piece;
  if (to_bring() || !decode(body, &piece) || piece.round != round_ ||
      piece.first != blobs_.size() || piece.blobs.size() > world_ - piece.first) {
    return false;
  }
  for (std::string& blob : piece.blobs) blobs_.push_back(std::move(blob));
  return true;
}

bool MemberRound::take_complete(std::string_view body) {
  CompleteRound complete;
  if (!decode(body, &complete) || complete.round != complete_count_ || complete_count_ > round_ ||
      to_bring()) {
    return false;
  }
  ++complete_count_;
  if (!complete.empty) return true;
  if (complete.round != round_ || !at_first()) return false;
  blobs_.assign(world_, {});
  return true;
}

std::string MemberRound::fetch() const {
  return encode(FetchRequest{round_, static_cast<uint32_t>(blobs_.size())});
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
