// SPDX-License-Identifier: Apache-2.0
// Rosters as bytes: see the header.
#include "rendezvous/roster_frames.h"

#include "base/codec.h"
#include "base/crypto.h"
#include "rendezvous/frame.h"
#include "transport/endpoint.h"

namespace parallax {

namespace {
constexpr size_t kIpv4Bytes = 4;
constexpr size_t kIpv6Bytes = 16;
static_assert(kBlobPieceBytes + kEndpointBytesMax + 64 <= kSealedBodyBytesMax);
}  // namespace

BlobPiece piece_from(uint32_t first, uint64_t round, uint32_t world, const BlobAt& blob) {
  BlobPiece piece{.round = round, .first = first, .blobs = {}};
  size_t bytes = 0;
  for (uint32_t rank = first; rank < world && bytes < kBlobPieceBytes; ++rank) {
    piece.blobs.push_back(blob(rank));
    bytes += sizeof(uint16_t) + piece.blobs.back().size();
  }
  return piece;
}

std::string digest_of(uint32_t world, const BlobAt& blob) {
  std::string texts;
  bool empty = true;
  for (uint32_t rank = 0; rank < world; ++rank) {
    empty = empty && blob(rank).empty();
    put_text(&texts, blob(rank), kEndpointBytesMax);
  }
  return empty ? std::string() : sha256(texts);
}

std::string encode(const BlobPiece& piece) {
  std::string body;
  put_number(&body, piece.round);
  put_number(&body, piece.first);
  put_number(&body, static_cast<uint32_t>(piece.blobs.size()));
  for (const std::string& blob : piece.blobs) put_text(&body, blob, kEndpointBytesMax);
  return body;
}

bool decode(std::string_view body, BlobPiece* piece) {
  ByteReader reader(body);
  uint32_t count = 0;
  if (!reader.number(&piece->round) || !reader.number(&piece->first) || !reader.number(&count) ||
      count == 0) {
    return false;
  }
  // One that is too large ends where the bytes do.
  for (uint32_t i = 0; i < count; ++i) {
    std::string blob;
    if (!reader.text(&blob, kEndpointBytesMax)) return false;
    piece->blobs.push_back(std::move(blob));
  }
  return reader.empty();
}

std::string encode(const ParentAddress& parent) {
  std::string body;
  put_number(&body, parent.rank);
  put_number(&body, static_cast<uint8_t>(parent.address.size()));
  body.append(parent.address);
  put_number(&body, parent.port);
  return body;
}

bool decode(std::string_view body, ParentAddress* parent) {
  ByteReader reader(body);
  uint8_t bytes = 0;
  std::string_view address;
  if (!reader.number(&parent->rank) || !reader.number(&bytes) ||
      (bytes != 0 && bytes != kIpv4Bytes && bytes != kIpv6Bytes) || !reader.raw(bytes, &address) ||
      !reader.number(&parent->port)) {
    return false;
  }
  parent->address.assign(address);
  return reader.empty();
}

std::string encode(const CompleteRound& complete) {
  std::string body;
  put_number(&body, complete.round);
  put_number(&body, static_cast<uint8_t>(complete.digest.size()));
  body.append(complete.digest);
  return body;
}

bool decode(std::string_view body, CompleteRound* complete) {
  ByteReader reader(body);
  uint8_t bytes = 0;
  std::string_view digest;
  if (!reader.number(&complete->round) || !reader.number(&bytes) ||
      (bytes != 0 && bytes != kDigestBytes) || !reader.raw(bytes, &digest)) {
    return false;
  }
  complete->digest.assign(digest);
  return reader.empty();
}

std::string encode(const FetchRequest& request) {
  std::string body;
  put_number(&body, request.round);
  return body;
}

bool decode(std::string_view body, FetchRequest* request) {
  ByteReader reader(body);
  return reader.number(&request->round) && reader.empty();
}

}  // namespace parallax
