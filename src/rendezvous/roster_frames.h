// SPDX-License-Identifier: Apache-2.0
// The bodies of the frames by which the blobs of a round reach all ranks of a tcp rendezvous. Rank
// 0 sends them to its children in the tree of ranks (radix_children), and each member passes them
// on to its own. What a member sends its children, only that member vouches for; but each rank
// hears from rank 0 itself, over its own connection, the digest of all blobs, and believes none
// that do not fit it. Who gets none from its parent that do fetches them from rank 0.
//
// decode() returns false for what encode() does not write; every length is checked. Pure.
#ifndef PARALLAX_RENDEZVOUS_ROSTER_FRAMES_H_
#define PARALLAX_RENDEZVOUS_ROSTER_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace parallax {

// kBlobs: those of some ranks, one at least, in order. u64 round, u32 first rank, u32 count, then
// each as a text.
struct BlobPiece {
  uint64_t round = 0;
  uint32_t first = 0;
  std::vector<std::string> blobs;
};
// As many blobs as make a body longer than this end a piece.
inline constexpr size_t kBlobPieceBytes = 32 * 1024;

// kParent: where a rank finds its parent in the tree. u32 rank, u8 bytes of the address, address,
// u16 port.
struct ParentAddress {
  uint32_t rank = 0;
  std::string address;  // of 4 or 16 bytes; none: the one where this rank reached rank 0
  uint16_t port = 0;    // 0: it takes no children
};

// kComplete: every rank has brought its blob. u64 round, u8 bytes of the digest, digest.
struct CompleteRound {
  uint64_t round = 0;
  std::string digest;  // of 32 bytes; none: all blobs are empty, and none are sent
};

// kFetch: the blobs of this round, all of them, are wanted from rank 0 itself. u64 round.
struct FetchRequest {
  uint64_t round = 0;
};

// The blob of a rank.
using BlobAt = std::function<const std::string&(uint32_t rank)>;

// The piece whose first blob is that of rank `first`.
BlobPiece piece_from(uint32_t first, uint64_t round, uint32_t world, const BlobAt& blob);
// SHA-256 of all blobs as texts, one after the other; "" if all are empty.
std::string digest_of(uint32_t world, const BlobAt& blob);

std::string encode(const BlobPiece& piece);
std::string encode(const ParentAddress& parent);
std::string encode(const CompleteRound& complete);
std::string encode(const FetchRequest& request);
bool decode(std::string_view body, BlobPiece* piece);
bool decode(std::string_view body, ParentAddress* parent);
bool decode(std::string_view body, CompleteRound* complete);
bool decode(std::string_view body, FetchRequest* request);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_ROSTER_FRAMES_H_
