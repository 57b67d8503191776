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
// That the round is complete, and of which blobs.
std::string complete(uint64_t round, const std::vector<std::string>& all) {
  const auto at = [&](uint32_t rank) -> const std::string& { return all[rank]; };
  return encode(CompleteRound{round, digest_of(static_cast<uint32_t>(all.size()), at)});
}

TEST(MemberRound, rounds) {
  MemberRound round(3);
  const std::vector<std::string> all = {"a", "", "c"};
  EXPECT_FALSE(round.to_bring());
  for (uint64_t number = 0; number < 3; ++number) {
    round.begin("mine");
    EXPECT_TRUE(round.to_bring());
    std::string expected;
    put_number(&expected, number);
    EXPECT_FALSE(round.take_blobs(blobs(number, 0, {"a"}))) << "before this rank brought its own";
    EXPECT_EQ(round.bring(), expected + "mine");
    EXPECT_FALSE(round.to_bring());
    EXPECT_TRUE(round.take_complete(complete(number, all)));
    EXPECT_TRUE(round.take_blobs(blobs(number, 0, {"a", ""})));
    EXPECT_TRUE(round.check());
    EXPECT_FALSE(round.met());
    EXPECT_TRUE(round.take_blobs(blobs(number, 2, {"c"})));
    EXPECT_FALSE(round.met()) << "before it is checked";
    EXPECT_TRUE(round.check());
    EXPECT_TRUE(round.met());
    EXPECT_EQ(round.pieces(), std::vector<std::string>{blobs(number, 0, all)});
    EXPECT_EQ(round.finish(), all);
    EXPECT_FALSE(round.met());
  }
}

TEST(MemberRound, blobs_out_of_turn_are_refused) {
  const std::string wrong[] = {blobs(1, 0, {"a"}),                 // of another round
                               blobs(0, 1, {"b"}),                 // not the next
                               blobs(0, 0, {"a", "b", "c", "d"}),  // more than there are ranks
                               blobs(0, 0, {}),                    // none
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
  const std::vector<std::string> all = {"a", "b"};
  for (uint64_t number = 0; number < 4; ++number) {
    round.begin("mine");
    EXPECT_FALSE(round.take_complete(complete(number, all))) << "before this rank brought its own";
    (void)round.bring();
    const bool first = number % 2 == 0;
    EXPECT_FALSE(round.take_complete(complete(number + 1, all)));
    if (first) {
      EXPECT_TRUE(round.take_complete(complete(number, all)));
    }
    EXPECT_TRUE(round.take_blobs(blobs(number, 0, {"a"})));
    EXPECT_EQ(round.awaits_blobs(), first);
    EXPECT_TRUE(round.take_blobs(blobs(number, 1, {"b"})));
    EXPECT_TRUE(round.check());
    EXPECT_EQ(round.met(), first) << "only by the word of rank 0";
    if (!first) {
      EXPECT_TRUE(round.take_complete(complete(number, all)));
      EXPECT_TRUE(round.check());
    }
    EXPECT_TRUE(round.met());
    EXPECT_FALSE(round.awaits_blobs());
    EXPECT_FALSE(round.take_complete(complete(number, all))) << "again";
    EXPECT_EQ(round.finish(), all);
  }
}

// Given blobs that are not those that rank 0 tells of, expect them to be forgotten, and the true
// ones to be taken.
TEST(MemberRound, blobs_of_another_digest_are_forgotten) {
  const std::vector<std::string> all = {"a", "b"};
  for (const bool first : {true, false}) {
    MemberRound round(2);
    round.begin("mine");
    (void)round.bring();
    if (first) {
      EXPECT_TRUE(round.take_complete(complete(0, all)));
    }
    EXPECT_TRUE(round.take_blobs(blobs(0, 0, {"a", "forged"})));
    if (!first) {
      EXPECT_TRUE(round.take_complete(complete(0, all)));
    }
    EXPECT_FALSE(round.check());
    EXPECT_TRUE(round.awaits_blobs());
    EXPECT_EQ(round.fetch(), encode(FetchRequest{0}));
    EXPECT_TRUE(round.take_blobs(blobs(0, 0, all)));
    EXPECT_TRUE(round.check());
    EXPECT_TRUE(round.met());
    EXPECT_EQ(round.finish(), all);
  }
}

TEST(MemberRound, what_is_fetched_is_fetched_whole) {
  MemberRound round(2);
  round.begin("mine");
  (void)round.bring();
  EXPECT_TRUE(round.take_complete(complete(0, {"a", "b"})));
  EXPECT_TRUE(round.take_blobs(blobs(0, 0, {"forged"})));
  EXPECT_EQ(round.fetch(), encode(FetchRequest{0}));
  EXPECT_TRUE(round.take_blobs(blobs(0, 0, {"a", "b"})));
  EXPECT_TRUE(round.check());
  EXPECT_TRUE(round.met());
}

TEST(MemberRound, an_empty_round_needs_no_blobs) {
  MemberRound round(3);
  const std::vector<std::string> none(3);
  round.begin("");
  (void)round.bring();
  EXPECT_TRUE(round.take_complete(complete(0, none)));
  EXPECT_TRUE(round.check());
  EXPECT_TRUE(round.met());
  EXPECT_TRUE(round.pieces().empty());
  EXPECT_EQ(round.finish(), none);
  round.begin("");
  (void)round.bring();
  EXPECT_TRUE(round.take_blobs(blobs(1, 0, {"forged"})));
  EXPECT_TRUE(round.take_complete(complete(1, none))) << "whatever a parent sent before";
  EXPECT_FALSE(round.check());
  EXPECT_TRUE(round.met());
  EXPECT_EQ(round.finish(), none);
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
