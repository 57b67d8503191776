// SPDX-License-Identifier: Apache-2.0
// The handshake of the tcp rendezvous and the frames after it, without I/O: what an honest pair
// learns, and what strangers, replays, reflections, cuts and flipped bits come to.
#include "rendezvous/handshake.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "base/codec.h"
#include "support/words.h"

namespace parallax {
namespace {

using testkit::has;
using Phase = Handshake::Phase;

Key key_of(const std::string& secret) { return derive_key(secret, "test"); }

Introduction introduce(uint32_t rank, char nonce) {
  Introduction intro;
  intro.version = 100;
  intro.rank = rank;
  intro.host = "host" + std::to_string(rank);
  intro.secret = true;
  intro.world = 4;
  intro.lease_ms = 5000;
  intro.job = "job";
  intro.nonce = std::string(kNonceBytes, nonce);
  return intro;
}

// What went over the wire in each direction, and how both sides ended.
struct Session {
  std::string up;
  std::string down;
  Phase client = Phase::kTalking;
  Phase server = Phase::kTalking;
  Status client_status;
  Status server_status;
  std::string opened;  // what the server read from the first sealed frame
};

constexpr std::string_view kBlob = "a blob";
constexpr size_t kSealedBytes = kFrameHeadBytes + kBlob.size() + kMacBytes;

// Carries bytes between the two until neither says more, and welcomes who has proved itself.
Session talk(ClientHandshake client, ServerHandshake server, const Status& admitted = {}) {
  Session session;
  std::string to_server, to_client;
  client.start(&to_server);
  while (!to_server.empty() || !to_client.empty()) {
    session.up += to_server;
    std::string out;
    session.server = server.advance(&to_server, &out);
    if (session.server == Phase::kProven) session.server = server.welcome(admitted, &out);
    session.down += out;
    to_client += out;
    to_server.clear();
    session.client = client.advance(&to_client, &to_server);
    if (session.server == Phase::kFailed || session.server == Phase::kDone) break;
  }
  session.client_status = client.status();
  session.server_status = server.status();
  if (session.client != Phase::kDone || session.server != Phase::kDone) return session;
  Channel near = client.channel();
  Channel far = server.channel();
  std::string bytes;
  near.seal(FrameKind::kBring, kBlob, &bytes);
  session.up += bytes;
  Frame frame;
  size_t used = 0;
  // Reflected, it opens on neither side.
  Channel mirror = client.channel();
  EXPECT_EQ(mirror.open(bytes, &frame, &used), Took::kBroken);
  if (far.open(bytes, &frame, &used) == Took::kFrame) session.opened = frame.body;
  return session;
}

Session talk_as(const Introduction& client, const Introduction& server,
                const std::string& client_secret = "s", const std::string& server_secret = "s") {
  return talk(ClientHandshake(client, key_of(client_secret)),
              ServerHandshake(server, key_of(server_secret)));
}

// Feeds bytes to a fresh server; how far they get.
Phase serve(const std::string& bytes, char nonce, std::string* out, size_t at_once = SIZE_MAX) {
  ServerHandshake server(introduce(0, nonce), key_of("s"));
  std::string in;
  for (size_t at = 0; at < bytes.size(); at += std::min(at_once, bytes.size() - at)) {
    in += bytes.substr(at, at_once);
    if (server.advance(&in, out) != Phase::kTalking) break;
  }
  return server.phase();
}

TEST(Handshake, an_honest_pair_meets) {
  const Session session = talk_as(introduce(3, 'c'), introduce(0, 's'));
  EXPECT_EQ(session.client, Phase::kDone) << session.client_status.message();
  EXPECT_EQ(session.server, Phase::kDone) << session.server_status.message();
  EXPECT_EQ(session.opened, "a blob");
}

TEST(Handshake, byte_by_byte_is_the_same) {
  const Session session = talk_as(introduce(3, 'c'), introduce(0, 's'));
  std::string out;
  EXPECT_EQ(serve(session.up, 's', &out, 1), Phase::kProven);
}

// Given a rank that comes to another than rank 0, expect that one to be believed, and no other.
TEST(Handshake, who_answers_is_whom_the_client_came_to) {
  for (const uint32_t answers : {8u, 0u, 9u}) {
    const Session session = talk(ClientHandshake(introduce(3, 'c'), key_of("s"), 8),
                                 ServerHandshake(introduce(answers, 's'), key_of("s")));
    EXPECT_EQ(session.client == Phase::kDone, answers == 8) << session.client_status.message();
    if (answers == 8) continue;
    EXPECT_EQ(session.client, Phase::kFailed);
    EXPECT_TRUE(has(session.client_status, "not rank 8 of libparallax"));
    EXPECT_NE(session.server, Phase::kDone);
  }
}

TEST(Handshake, a_wrong_secret_is_told_to_both) {
  const Session session = talk_as(introduce(3, 'c'), introduce(0, 's'), "mine", "yours");
  EXPECT_EQ(session.client, Phase::kFailed);
  EXPECT_EQ(session.client_status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(session.client_status, "wrong secret")) << session.client_status.message();
  EXPECT_TRUE(has(session.server_status, "rank 3 (host host3)"));
}

// Given an impostor without the secret that welcomes everyone, expect nobody to follow it.
TEST(Handshake, an_impostor_is_not_followed) {
  ClientHandshake client(introduce(3, 'c'), key_of("s"));
  ServerHandshake honest(introduce(0, 's'), key_of("s"));
  std::string up, down;
  client.start(&up);
  (void)honest.advance(&up, &down);
  ASSERT_EQ(client.advance(&down, &up), Phase::kTalking);
  std::string welcome;
  put_status(&welcome, {});
  welcome.append(kMacBytes, '\0');
  put_frame(&down, FrameKind::kWelcome, welcome);
  EXPECT_EQ(client.advance(&down, &up), Phase::kFailed);
  EXPECT_TRUE(has(client.status(), "does not know the secret")) << client.status().message();
}

TEST(Handshake, what_ranks_disagree_on_is_named) {
  struct Case {
    const char* what;
    void (*change)(Introduction*);
    parallax_status_t code;
    const char* sentence;
  };
  const Case cases[] = {
      {"version", [](Introduction* i) { i->version = 200; }, PARALLAX_MISMATCH,
       "rank 3 (host host3) runs libparallax 0.2.0, rank 0 (host host0) runs 0.1.0"},
      {"protocol", [](Introduction* i) { i->protocol = kRendezvousProtocol - 1; },
       PARALLAX_MISMATCH, "libparallax"},
      {"world", [](Introduction* i) { i->world = 8; }, PARALLAX_MISMATCH,
       "rank 3 (host host3) says world 8, rank 0 (host host0) says 4"},
      {"job", [](Introduction* i) { i->job = "other"; }, PARALLAX_MISMATCH, "is of job 'other'"},
      {"secret", [](Introduction* i) { i->secret = false; }, PARALLAX_INVALID,
       "rank 0 (host host0) was given a secret, rank 3 (host host3) was not"},
      {"rank 0 twice", [](Introduction* i) { i->rank = 0; }, PARALLAX_INVALID, "one number"},
      {"rank past the world", [](Introduction* i) { i->rank = 4; }, PARALLAX_INVALID, "past"},
  };
  for (const Case& one : cases) {
    Introduction client = introduce(3, 'c');
    one.change(&client);
    const Session session = talk_as(client, introduce(0, 's'));
    EXPECT_EQ(session.client, Phase::kFailed) << one.what;
    EXPECT_EQ(session.client_status.code(), one.code) << one.what;
    EXPECT_TRUE(has(session.client_status, one.sentence)) << session.client_status.message();
    EXPECT_EQ(session.server, Phase::kFailed) << one.what;
  }
}

TEST(Handshake, who_is_not_admitted_learns_why) {
  const Session session =
      talk(ClientHandshake(introduce(3, 'c'), key_of("s")),
           ServerHandshake(introduce(0, 's'), key_of("s")), invalid("rank 3 is here already"));
  EXPECT_EQ(session.client, Phase::kFailed);
  EXPECT_EQ(session.client_status.message(), "rank 3 is here already");
}

// Given a recorded session, expect it to prove nothing to a rank 0 that drew another nonce, and
// its frames to be broken in another session.
TEST(Handshake, a_replay_fails) {
  const Session session = talk_as(introduce(3, 'c'), introduce(0, 's'));
  std::string out;
  EXPECT_EQ(serve(session.up, 's', &out), Phase::kProven) << "the record itself is good";
  EXPECT_EQ(serve(session.up, 't', &out), Phase::kFailed);
  ClientHandshake client(introduce(3, 'd'), key_of("s"));
  std::string up;
  client.start(&up);
  std::string down = session.down;
  EXPECT_EQ(client.advance(&down, &up), Phase::kFailed);
}

// Given a peer that sends back what it gets, expect it to come to nothing on either side.
TEST(Handshake, a_reflection_fails) {
  ClientHandshake client(introduce(3, 'c'), key_of("s"));
  std::string up;
  client.start(&up);
  std::string echo = up;
  EXPECT_EQ(client.advance(&echo, &up), Phase::kFailed);

  // The challenge turned into the hello of a second connection, and its proof carried back.
  ServerHandshake first(introduce(0, 's'), key_of("s"));
  std::string hello, challenge, out;
  put_frame(&hello, FrameKind::kHello, up.substr(kFrameHeadBytes, up.size() - kFrameHeadBytes));
  std::string in = hello;
  (void)first.advance(&in, &challenge);
  ASSERT_FALSE(challenge.empty());
  std::string reflected;
  put_frame(&reflected, FrameKind::kHello, challenge.substr(kFrameHeadBytes));
  EXPECT_EQ(serve(reflected, 's', &out), Phase::kFailed);
  in.clear();
  put_frame(&in, FrameKind::kProof, challenge.substr(challenge.size() - kMacBytes));
  EXPECT_EQ(first.advance(&in, &out), Phase::kFailed);
}

// Given a session that breaks off anywhere, expect both sides to wait for more, or to have failed,
// and never to be done.
TEST(Handshake, cut_at_each_byte) {
  const Session session = talk_as(introduce(3, 'c'), introduce(0, 's'));
  const std::string up = session.up.substr(0, session.up.size() - kSealedBytes);
  std::string out;
  ASSERT_EQ(serve(up, 's', &out), Phase::kProven);
  for (size_t bytes = 0; bytes < up.size(); ++bytes) {
    EXPECT_EQ(serve(up.substr(0, bytes), 's', &out), Phase::kTalking) << bytes;
  }
  for (size_t bytes = 0; bytes < session.down.size(); ++bytes) {
    ClientHandshake client(introduce(3, 'c'), key_of("s"));
    std::string sent;
    client.start(&sent);
    std::string down = session.down.substr(0, bytes);
    EXPECT_EQ(client.advance(&down, &sent), Phase::kTalking) << bytes;
  }
}

std::string flip(std::string bytes, size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
  return bytes;
}

// Given one flipped bit anywhere, in a length too, expect nobody to come through, and each side to
// say so with what it has: it waits for no bytes that do not come.
TEST(Handshake, flipped_bits_fail_at_once) {
  const Session session = talk_as(introduce(3, 'c'), introduce(0, 's'));
  const std::string up = session.up.substr(0, session.up.size() - kSealedBytes);
  for (size_t bit = 0; bit < 8 * up.size(); ++bit) {
    std::string out;
    EXPECT_EQ(serve(flip(up, bit), 's', &out), Phase::kFailed) << bit / 8 << " bit " << bit % 8;
  }
  for (size_t bit = 0; bit < 8 * session.down.size(); ++bit) {
    ClientHandshake client(introduce(3, 'c'), key_of("s"));
    std::string sent;
    client.start(&sent);
    std::string bent = flip(session.down, bit);
    EXPECT_EQ(client.advance(&bent, &sent), Phase::kFailed) << bit / 8 << " bit " << bit % 8;
  }
}

// The same where nothing follows the frame: it is answered, or the side has failed.
TEST(Handshake, a_frame_with_a_flipped_bit_is_answered_or_fails) {
  const Session session = talk_as(introduce(3, 'c'), introduce(0, 's'));
  const size_t proof_at = session.up.size() - kSealedBytes - kFrameHeadBytes - kMacBytes;
  const std::string hello = session.up.substr(0, proof_at);
  for (size_t bit = 0; bit < 8 * hello.size(); ++bit) {
    std::string out;
    const Phase phase = serve(flip(hello, bit), 's', &out);
    EXPECT_TRUE(phase == Phase::kFailed || !out.empty()) << bit / 8 << " bit " << bit % 8;
  }
  Frame challenge;
  size_t challenge_bytes = 0;
  ASSERT_EQ(take_frame(session.down, kHandshakeBodyBytesMax, &challenge, &challenge_bytes),
            Took::kFrame);
  for (size_t bit = 0; bit < 8 * challenge_bytes; ++bit) {
    ClientHandshake client(introduce(3, 'c'), key_of("s"));
    std::string started, sent;
    client.start(&started);
    std::string bent = flip(session.down.substr(0, challenge_bytes), bit);
    const Phase phase = client.advance(&bent, &sent);
    EXPECT_TRUE(phase == Phase::kFailed || !sent.empty()) << bit / 8 << " bit " << bit % 8;
  }
}

// A refusal, too, is no longer than it says.
TEST(Handshake, a_refusal_with_a_flipped_bit_fails_at_once) {
  const Session session = talk_as(introduce(3, 'c'), introduce(0, 's'), "mine", "yours");
  Frame challenge;
  size_t challenge_bytes = 0;
  ASSERT_EQ(take_frame(session.down, kHandshakeBodyBytesMax, &challenge, &challenge_bytes),
            Took::kFrame);
  const std::string refusal = session.down.substr(challenge_bytes);
  for (size_t bit = 0; bit < 8 * refusal.size(); ++bit) {
    ClientHandshake client(introduce(3, 'c'), key_of("mine"));
    std::string sent;
    client.start(&sent);
    std::string bent = session.down.substr(0, challenge_bytes) + flip(refusal, bit);
    EXPECT_EQ(client.advance(&bent, &sent), Phase::kFailed) << bit / 8 << " bit " << bit % 8;
  }
}

// Given lengths past every bound, expect an end before anything is kept.
TEST(Handshake, oversize_lengths_fail_at_once) {
  for (const uint32_t bytes : {static_cast<uint32_t>(kHandshakeBodyBytesMax + 1), UINT32_MAX}) {
    std::string head;
    put_number(&head, bytes);
    std::string out;
    EXPECT_EQ(serve(head, 's', &out), Phase::kFailed);
    ClientHandshake client(introduce(3, 'c'), key_of("s"));
    EXPECT_EQ(client.advance(&head, &out), Phase::kFailed);
  }
  // Inside a frame: a host's name that is longer than the frame.
  const Session session = talk_as(introduce(3, 'c'), introduce(0, 's'));
  std::string hello = session.up;
  hello[kFrameHeadBytes + 14] = '\x7f';
  std::string out;
  EXPECT_EQ(serve(hello, 's', &out), Phase::kFailed);
}

TEST(Handshake, garbage_never_comes_through) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 2 == 0 && bytes.size() > 5) bytes.replace(0, 5, std::string("\x40\0\0\0\1", 5));
    std::string out;
    const Phase phase = serve(bytes, 's', &out);
    EXPECT_TRUE(phase == Phase::kTalking || phase == Phase::kFailed);
    ClientHandshake client(introduce(3, 'c'), key_of("s"));
    client.start(&out);
    EXPECT_NE(client.advance(&bytes, &out), Phase::kDone);
  }
}

TEST(Handshake, a_refusal_is_no_way_to_say_anything_else) {
  const std::pair<int, const char*> cases[] = {{0, "you are lost"},
                                               {1, "you are lost"},
                                               {PARALLAX_PEER_LOST, "you are lost"},
                                               {-99, "you are lost"},
                                               {PARALLAX_MISMATCH, ""}};
  for (const auto& [code, sentence] : cases) {
    ClientHandshake client(introduce(3, 'c'), key_of("s"));
    std::string out, body, in;
    client.start(&out);
    put_number(&body, static_cast<int32_t>(code));
    put_text(&body, sentence, kSentenceBytesMax);
    put_frame(&in, FrameKind::kRefusal, body);
    EXPECT_EQ(client.advance(&in, &out), Phase::kFailed);
    EXPECT_EQ(client.status().code(), PARALLAX_IO) << code;
    EXPECT_NE(client.status().message(), "") << code;
  }
}

class Sealed : public ::testing::Test {
 protected:
  Sealed() : near_(key_of("up"), key_of("down")), far_(key_of("down"), key_of("up")) {
    near_.seal(FrameKind::kKeepalive, "", &first_);
    near_.seal(FrameKind::kBring, "a blob", &second_);
  }

  Took open(const std::string& bytes) { return far_.open(bytes, &frame_, &used_); }

  Channel near_;
  Channel far_;
  std::string first_, second_;
  Frame frame_;
  size_t used_ = 0;
};

TEST_F(Sealed, in_order_they_open) {
  EXPECT_EQ(open(first_ + second_), Took::kFrame);
  EXPECT_EQ(used_, first_.size());
  EXPECT_EQ(open(second_), Took::kFrame);
  EXPECT_EQ(frame_.body, "a blob");
  EXPECT_EQ(frame_.kind, FrameKind::kBring);
}

TEST_F(Sealed, cut_is_not_opened) {
  for (size_t bytes = 0; bytes < first_.size(); ++bytes) {
    EXPECT_EQ(open(first_.substr(0, bytes)), Took::kMore) << bytes;
  }
  EXPECT_EQ(open(first_), Took::kFrame);
}

TEST_F(Sealed, repeated_swapped_and_of_the_other_direction_break) {
  EXPECT_EQ(open(second_), Took::kBroken);
  EXPECT_EQ(open(first_), Took::kBroken) << "for good";
  Channel fresh(key_of("down"), key_of("up"));
  EXPECT_EQ(fresh.open(first_, &frame_, &used_), Took::kFrame);
  EXPECT_EQ(fresh.open(first_, &frame_, &used_), Took::kBroken);
  EXPECT_EQ(near_.open(first_, &frame_, &used_), Took::kBroken);
}

TEST_F(Sealed, flipped_bits_break) {
  for (size_t at = 0; at < first_.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bent = first_;
      bent[at] = static_cast<char>(bent[at] ^ 1 << bit);
      Channel fresh(key_of("down"), key_of("up"));
      EXPECT_NE(fresh.open(bent, &frame_, &used_), Took::kFrame) << at << " bit " << bit;
    }
  }
}

// RFC 4231, test case 2, and the compare.
TEST(Crypto, known_answers) {
  const std::string mac = hmac("Jefe", "what do ya want ", "for nothing?");
  const unsigned char expected[] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e,
                                    0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7,
                                    0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83,
                                    0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
  EXPECT_EQ(mac, std::string(reinterpret_cast<const char*>(expected), sizeof expected));
  EXPECT_TRUE(same_bytes("abc", "abc"));
  EXPECT_FALSE(same_bytes("abc", "abd"));
  EXPECT_FALSE(same_bytes("abc", "ab"));
  EXPECT_NE(random_bytes(32), random_bytes(32));
  EXPECT_FALSE(same_bytes(derive_key("s", "one").view(), derive_key("s", "two").view()));
}

}  // namespace
}  // namespace parallax
