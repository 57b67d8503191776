// SPDX-License-Identifier: Apache-2.0
// ServerLink: from stranger to member, or away.
#include "rendezvous/server_link.h"

#include "unit/rendezvous/link_kit.h"

namespace parallax {
namespace {

using link_kit::entry_with;
using link_kit::options_of;
using Stage = ServerLink::Stage;

class ServerLinkTest : public ::testing::Test {
 protected:
  ServerLinkTest() : ServerLinkTest(link_kit::connected()) {}
  explicit ServerLinkTest(std::pair<UniqueFd, UniqueFd> ends)
      : link_(std::move(ends.first), {},
              ServerHandshake(introduce(options_of(0), entry_with("s")), entry_with("s").key),
              1000) {
    peer_.socket = std::move(ends.second);
  }

  // Both sides take what the other said, until the peer's handshake is over or hears no more.
  Handshake::Phase talk(ClientHandshake* client) {
    client->start(&peer_.out);
    Handshake::Phase phase = Handshake::Phase::kTalking;
    for (int i = 0; i < 3 && phase == Handshake::Phase::kTalking; ++i) {
      (void)peer_.send();
      (void)link_.receive(admit_, &refused_);
      (void)link_.send();
      (void)peer_.receive(kHandshakeBodyBytesMax);
      phase = client->advance(&peer_.in, &peer_.out);
    }
    return phase;
  }

  ServerLink link_;
  FrameStream peer_;
  Status refused_;
  ServerLink::Admit admit_ = [](const Introduction&) { return Status(); };
};

TEST_F(ServerLinkTest, who_proves_itself_is_a_member) {
  ClientHandshake client(introduce(options_of(2), entry_with("s")), entry_with("s").key);
  EXPECT_FALSE(link_.introduced());
  EXPECT_EQ(talk(&client), Handshake::Phase::kDone) << client.status().message();
  EXPECT_EQ(link_.stage(), Stage::kMember);
  EXPECT_TRUE(link_.introduced());
  EXPECT_EQ(link_.rank(), 2u);
  link_.stream().seal(FrameKind::kKeepalive, {});
  ASSERT_TRUE(link_.send());
  peer_.channel = client.channel();
  ASSERT_TRUE(peer_.receive(1000));
  Frame frame;
  EXPECT_EQ(peer_.take(&frame), Took::kFrame);
}

TEST_F(ServerLinkTest, who_is_not_admitted_is_told_why_and_then_hung_up_on) {
  admit_ = [](const Introduction& peer) { return invalid("no room for " + peer.host); };
  ClientHandshake client(introduce(options_of(2), entry_with("s")), entry_with("s").key);
  EXPECT_EQ(talk(&client), Handshake::Phase::kFailed);
  EXPECT_EQ(client.status().message(), "no room for host2");
  EXPECT_EQ(refused_.message(), "no room for host2");
  link_.stream().out = "what it is told";
  link_.turn_away();
  EXPECT_EQ(link_.stage(), Stage::kClosing);
  EXPECT_TRUE(link_.send());
  peer_.in.clear();
  EXPECT_FALSE(peer_.receive(1000)) << "hung up behind what it is told";
  EXPECT_EQ(peer_.in, "what it is told");
}

TEST_F(ServerLinkTest, another_secret_is_refused_before_anybody_is_asked) {
  admit_ = [](const Introduction&) {
    ADD_FAILURE() << "asked";
    return Status();
  };
  ClientHandshake client(introduce(options_of(2), entry_with("x")), entry_with("x").key);
  EXPECT_EQ(talk(&client), Handshake::Phase::kFailed);
  EXPECT_TRUE(link_kit::has(refused_, "wrong secret")) << refused_.message();
}

TEST_F(ServerLinkTest, garbage_has_no_answer) {
  peer_.out = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_TRUE(peer_.send());
  EXPECT_TRUE(link_.receive(admit_, &refused_));
  EXPECT_FALSE(refused_.ok());
  link_.turn_away();
  EXPECT_EQ(link_.stage(), Stage::kClosed);
}

// Given a proof that arrives with the end of its connection, expect no member.
TEST_F(ServerLinkTest, a_proof_that_ends_with_its_connection_is_no_member) {
  ClientHandshake client(introduce(options_of(2), entry_with("s")), entry_with("s").key);
  client.start(&peer_.out);
  ASSERT_TRUE(peer_.send());
  ASSERT_TRUE(link_.receive(admit_, &refused_));
  ASSERT_TRUE(link_.send());
  ASSERT_TRUE(peer_.receive(kHandshakeBodyBytesMax));
  ASSERT_EQ(client.advance(&peer_.in, &peer_.out), Handshake::Phase::kTalking);
  ASSERT_TRUE(peer_.send());
  peer_.close();
  EXPECT_FALSE(link_.receive(admit_, &refused_));
  EXPECT_EQ(link_.stage(), Stage::kStranger);
}

}  // namespace
}  // namespace parallax
