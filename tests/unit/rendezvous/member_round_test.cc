// SPDX-License-Identifier: Apache-2.0
// MemberRound: receive blobs (the next ones, others, cut short), that a round is complete (in turn,
// or not), answers (asked for, or not):
// expect what an honest rank 0 sends to be taken, and nothing else.
#include "rendezvous/member_round.h"

#include <gtest/gtest.h>

#include "base/codec.h"
#include "rendezvous/roster_frames.h"

namespace parallax {
namespace {

std::string blobs(uint64_t round, uint32_t first, const std::vector<std::string>& all) {
  return encode(BlobPiece{round, first, all});
}
std::string complete(uint64_t round, bool empty = false) {
  return encode(CompleteRound{round, empty});
}

TEST(MemberRound, rounds) {
  MemberRound round(3);
  EXPECT_FALSE(round.to_bring());
  for (uint64_t number = 0; number < 3; ++number) {
    round.begin("mine");
    EXPECT_TRUE(round.to_bring());
    std::string expected;
    put_number(&expected, number);
    EXPECT_FALSE(round.take_blobs(blobs(number, 0, {"a"}))) << "before this rank brought its own";
    EXPECT_EQ(round.bring(), expected + "mine");
    EXPECT_FALSE(round.to_bring());
    EXPECT_TRUE(round.at_first());
    EXPECT_TRUE(round.take_blobs(blobs(number, 0, {"a", ""})));
    EXPECT_FALSE(round.met());
    EXPECT_FALSE(round.at_first());
    EXPECT_TRUE(round.take_blobs(blobs(number, 2, {"c"})));
    EXPECT_TRUE(round.met());
    EXPECT_EQ(round.finish(), (std::vector<std::string>{"a", "", "c"}));
    EXPECT_FALSE(round.met());
  }
}

TEST(MemberRound, blobs_out_of_turn_are_refused) {
  const std::string wrong[] = {blobs(1, 0, {"a"}),                 // of another round
                               blobs(0, 1, {"b"}),                 // not the next
                               blobs(0, 0, {"a", "b", "c", "d"}),  // more than there are ranks
                               blobs(0, 0, {"a"}) + "x",           // bytes left over
                               blobs(0, 0, {"a"}).substr(0, 18),
                               "x",
                               ""};  // cut short
  for (const std::string& body : wrong) {
    MemberRound round(3);
    round.begin("mine");
    (void)round.bring();
    EXPECT_FALSE(round.take_blobs(body)) << body.size();
  }
}

// Given blobs that come by another way than the word that the round is complete, expect either to
// come first.
TEST(MemberRound, complete_before_or_after_the_blobs) {
  MemberRound round(2);
  for (uint64_t number = 0; number < 4; ++number) {
    round.begin("mine");
    EXPECT_FALSE(round.take_complete(complete(number))) << "before this rank brought its own";
    (void)round.bring();
    const bool first = number % 2 == 0;
    EXPECT_FALSE(round.take_complete(complete(number + 1)));
    if (first) {
      EXPECT_TRUE(round.take_complete(complete(number)));
      EXPECT_TRUE(round.awaits_blobs());
    }
    EXPECT_TRUE(round.take_blobs(blobs(number, 0, {"a"})));
    EXPECT_EQ(round.awaits_blobs(), first);
    EXPECT_EQ(round.fetch(), encode(FetchRequest{number, 1})) << "only what is not there";
    EXPECT_TRUE(round.take_blobs(blobs(number, 1, {"b"})));
    EXPECT_FALSE(round.awaits_blobs());
    EXPECT_EQ(round.finish().size(), 2u);
    if (!first) {
      EXPECT_TRUE(round.take_complete(complete(number))) << "late";
    }
    EXPECT_FALSE(round.take_complete(complete(number))) << "again";
  }
}

TEST(MemberRound, an_empty_round_needs_no_blobs) {
  MemberRound round(3);
  round.begin("");
  (void)round.bring();
  EXPECT_TRUE(round.take_complete(complete(0, true)));
  EXPECT_TRUE(round.met());
  EXPECT_EQ(round.finish(), std::vector<std::string>(3));
  round.begin("");
  (void)round.bring();
  EXPECT_TRUE(round.take_blobs(blobs(1, 0, {"a"})));
  EXPECT_FALSE(round.take_complete(complete(1, true))) << "though a blob has come";
}

TEST(MemberRound, answers) {
  MemberRound round(3);
  std::string rest;
  put_text(&rest, "rank 1 never came", 100);
  EXPECT_TRUE(round.answered());
  EXPECT_FALSE(round.take_answer(rest)) << "nobody asked";
  EXPECT_EQ(round.ask(), std::string(8, '\0'));
  EXPECT_FALSE(round.answered());
  EXPECT_TRUE(round.take_answer(rest));
  EXPECT_TRUE(round.answered());
  EXPECT_EQ(round.missing(), "rank 1 never came");
  (void)round.ask();
  EXPECT_FALSE(round.take_answer(rest.substr(0, 5)));
  std::string bell;
  put_text(&bell, "\a", 100);
  EXPECT_FALSE(round.take_answer(bell));
}

}  // namespace
}  // namespace parallax
