// SPDX-License-Identifier: Apache-2.0
// MemberRound: a member's view of a tcp rendezvous: the round under way, which of its blobs have
// come, and what rank 0 answered of who is missing. Reads and writes the bodies of frames, whose
// every length is checked. Pure. One thread, or under its owner's lock.
//
// Blobs come from the rank's parent in the tree or, where it is told so (fetch), from rank 0. That
// a round is complete rank 0 says itself, before or after the blobs come, with their digest: a
// parent is not believed in anything, and a round is met only by blobs of that digest.
//
//   begin -> bring -> take_complete, take_blobs..., each with check -> finish -> begin ...
#ifndef PARALLAX_RENDEZVOUS_MEMBER_ROUND_H_
#define PARALLAX_RENDEZVOUS_MEMBER_ROUND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parallax {

class MemberRound {
 public:
  explicit MemberRound(uint32_t world) : world_(world) {}

  // The next round, to which this rank brings `mine`.
  void begin(std::string_view mine);
  // Whether this rank's blob is still to be sent.
  bool to_bring() const { return !brought_; }
  // The body of kBring.
  std::string bring();
  // Of kBlobs. False: they are not the next ones of this round, which no honest rank sends.
  bool take_blobs(std::string_view body);
  // Of kComplete. False: it is not about this round, or was said before.
  bool take_complete(std::string_view body);
  // Compares what has come with what rank 0 said. False: some of it is not what the ranks brought,
  // and all is forgotten.
  bool check();
  // Whether all blobs are there, and are what the ranks brought.
  bool met() const { return met_; }
  // Whether they are on their way: every rank has brought its own.
  bool awaits_blobs() const { return digest_ && !met(); }
  // Of a round that is met: the bodies of kBlobs for this rank's children; none if all are empty.
  std::vector<std::string> pieces() const;
  // The body of kFetch: for all of them. What has come of them is forgotten.
  std::string fetch();
  // All of them; the round is over.
  std::vector<std::string> finish();

  // The body of kAsk.
  std::string ask();
  // Of kAnswer, behind the status. False: nobody asked, or it cannot be read.
  bool take_answer(std::string_view rest);
  bool answered() const { return answered_count_ >= asked_count_; }
  // Who is missing, as rank 0 answered last; "" before.
  const std::string& missing() const { return missing_; }

 private:
  const uint32_t world_;
  uint64_t round_ = 0;
  std::string mine_;
  bool brought_ = true;
  std::vector<std::string> blobs_;
  std::optional<std::string> digest_;  // once rank 0 said that the round is complete
  bool met_ = false;
  uint64_t asked_count_ = 0;
  uint64_t answered_count_ = 0;
  std::string missing_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_MEMBER_ROUND_H_
