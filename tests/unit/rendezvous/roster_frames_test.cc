// SPDX-License-Identifier: Apache-2.0
// The frames of rosters: what is encoded comes back, and every cut and tail is refused.
#include "rendezvous/roster_frames.h"

#include <gtest/gtest.h>

#include "base/codec.h"
#include "base/crypto.h"

namespace parallax {
namespace {

template <typename T>
void expect_only(const std::string& body) {
  T read;
  EXPECT_TRUE(decode(body, &read));
  EXPECT_EQ(encode(read), body);
  for (size_t bytes = 0; bytes < body.size(); ++bytes) {
    T cut;
    EXPECT_FALSE(decode(std::string_view(body).substr(0, bytes), &cut)) << bytes;
  }
  T longer;
  EXPECT_FALSE(decode(body + '\0', &longer));
}

TEST(RosterFrames, what_is_encoded_comes_back_and_nothing_else) {
  expect_only<BlobPiece>(encode(BlobPiece{7, 3, {"a", "", std::string(4096, 'x')}}));
  expect_only<ParentAddress>(encode(ParentAddress{8, std::string(4, '\x7f'), 4711}));
  expect_only<ParentAddress>(encode(ParentAddress{8, std::string(16, '\1'), 4711}));
  expect_only<ParentAddress>(encode(ParentAddress{8, "", 0}));
  expect_only<CompleteRound>(encode(CompleteRound{1ULL << 40, std::string(32, 'd')}));
  expect_only<CompleteRound>(encode(CompleteRound{1ULL << 40, ""}));
  expect_only<FetchRequest>(encode(FetchRequest{1ULL << 40}));
}

TEST(RosterFrames, lengths_and_ranges) {
  BlobPiece piece;
  std::string body = encode(BlobPiece{0, 0, {}});
  body[12] = 1;
  put_text(&body, std::string(4097, 'x'), UINT16_MAX);
  EXPECT_FALSE(decode(body, &piece)) << "a blob longer than any";
  std::string many = encode(BlobPiece{0, 0, {}});
  many.replace(12, 4, "\xff\xff\xff\xff");
  EXPECT_FALSE(decode(many, &piece)) << "more than there are";
  ParentAddress parent;
  EXPECT_FALSE(decode(encode(ParentAddress{8, "12345", 1}), &parent));
  CompleteRound complete;
  EXPECT_FALSE(decode(encode(CompleteRound{0, std::string(31, 'd')}), &complete));
  EXPECT_FALSE(decode(encode(BlobPiece{0, 0, {}}), &piece)) << "of no blob: it would say nothing";
}

TEST(RosterFrames, pieces_hold_all_blobs_in_turn) {
  std::vector<std::string> blobs;
  for (int i = 0; i < 20; ++i) blobs.emplace_back(4000, static_cast<char>(i));
  std::vector<std::string> all;
  int piece_count = 0;
  while (all.size() < blobs.size()) {
    const BlobPiece piece =
        piece_from(static_cast<uint32_t>(all.size()), 7, 20,
                   [&](uint32_t rank) -> const std::string& { return blobs[rank]; });
    EXPECT_EQ(piece.round, 7u);
    EXPECT_EQ(piece.first, all.size());
    all.insert(all.end(), piece.blobs.begin(), piece.blobs.end());
    ++piece_count;
  }
  EXPECT_EQ(all, blobs);
  EXPECT_EQ(piece_count, 3);
}

std::string digest(const std::vector<std::string>& blobs) {
  return digest_of(static_cast<uint32_t>(blobs.size()),
                   [&](uint32_t rank) -> const std::string& { return blobs[rank]; });
}

TEST(RosterFrames, the_digest_tells_blobs_apart) {
  EXPECT_EQ(digest({"", "", ""}), "");
  EXPECT_EQ(digest({"a", "bc"}), sha256(std::string("\1\0a\2\0bc", 7)));
  EXPECT_NE(digest({"a", "bc"}), digest({"ab", "c"}));
  EXPECT_NE(digest({"a", "b"}), digest({"b", "a"}));
}

}  // namespace
}  // namespace parallax
