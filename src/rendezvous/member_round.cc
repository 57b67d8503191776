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
  digest_.reset();
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
  if (to_bring() || !decode(body, &complete) || complete.round != round_ || digest_) return false;
  digest_ = std::move(complete.digest);
  return true;
}

bool MemberRound::check() {
  if (!awaits_blobs()) return true;
  const bool barrier = digest_->empty();
  const bool all = blobs_.size() == world_;
  if (!all && !barrier) return true;
  const auto at = [this](uint32_t rank) -> const std::string& { return blobs_[rank]; };
  const bool good = barrier ? blobs_.empty() : digest_of(world_, at) == *digest_;
  if (!good) blobs_.clear();
  if (barrier) blobs_.assign(world_, {});
  met_ = good || barrier;
  return good;
}

std::vector<std::string> MemberRound::pieces() const {
  std::vector<std::string> bodies;
  if (digest_->empty()) return bodies;
  const auto at = [this](uint32_t rank) -> const std::string& { return blobs_[rank]; };
  for (uint32_t next = 0; next < world_;) {
    const BlobPiece piece = piece_from(next, round_, world_, at);
    next += static_cast<uint32_t>(piece.blobs.size());
    bodies.push_back(encode(piece));
  }
  return bodies;
}

std::string MemberRound::fetch() {
  blobs_.clear();
  return encode(FetchRequest{round_});
}

std::vector<std::string> MemberRound::finish() {
  ++round_;
  met_ = false;
  digest_.reset();
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
