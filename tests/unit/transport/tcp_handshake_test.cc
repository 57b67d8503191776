// SPDX-License-Identifier: Apache-2.0
// The handshake of tcp, without a socket: who has the key comes through, however the bytes are
// split, and nobody else does.
#include "transport/tcp/tcp_handshake.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <utility>

namespace parallax {
namespace {

using Phase = TcpHandshake::Phase;

TcpTrust trust_of(uint32_t from, uint32_t to) {
  TcpTrust trust;
  trust.identity = {
      .job = 4711, .epoch = 7, .world = 4, .from = from, .to = to, .version = 200, .suite = {}};
  trust.listener_salt = derive_key("salt", std::to_string(to));
  return trust;
}

// A rank's side: it listens as `rank`, and connects as whom a test likes.
std::unique_ptr<TcpTls> tls_of(uint32_t rank, const char* secret = "the secret of a job") {
  std::unique_ptr<TcpTls> tls;
  const Status made = TcpTls::create(
      tcp_job_key(secret, 4711),
      [rank](uint32_t from, TcpTrust* trust) {
        if (from >= 4 || from == rank) return false;
        *trust = trust_of(from, rank);
        return true;
      },
      &tls);
  EXPECT_TRUE(made.ok()) << made.message();
  return tls;
}

struct Talk {
  Phase connects = Phase::kTalking;
  Phase listens = Phase::kTalking;
  std::string from_connecting, from_listening;  // all that was sent
};

// Passes bytes on, `piece_bytes` at a time, until neither side has more to say.
Talk talk(TcpHandshake& connects, TcpHandshake& listens, size_t piece_bytes = SIZE_MAX) {
  Talk said;
  std::string to_listening, to_connecting, in_listening, in_connecting;
  connects.start(&to_listening);
  while (!to_listening.empty() || !to_connecting.empty()) {
    const std::string one = to_listening.substr(0, piece_bytes);
    to_listening.erase(0, one.size());
    said.from_connecting += one;
    in_listening += one;
    said.listens = listens.advance(&in_listening, &to_connecting);
    const std::string other = to_connecting.substr(0, piece_bytes);
    to_connecting.erase(0, other.size());
    said.from_listening += other;
    in_connecting += other;
    said.connects = connects.advance(&in_connecting, &to_listening);
  }
  return said;
}

bool same(const Key& one, const Key& other) { return one.view() == other.view(); }

TEST(TcpHandshake, gives_both_sides_the_same_secrets) {
  const auto one = tls_of(1), two = tls_of(2);
  Key earlier;
  for (const size_t piece : {SIZE_MAX, size_t{1}, size_t{5}, size_t{100}}) {
    TcpHandshake connects(*one, trust_of(1, 2)), listens(*two);
    const Talk said = talk(connects, listens, piece);
    ASSERT_EQ(said.connects, Phase::kDone) << connects.why();
    ASSERT_EQ(said.listens, Phase::kDone) << listens.why();
    EXPECT_EQ(listens.identity().from, 1u);
    EXPECT_TRUE(same(connects.send_secret(), listens.receive_secret()));
    EXPECT_TRUE(same(connects.receive_secret(), listens.send_secret()));
    EXPECT_FALSE(same(connects.send_secret(), connects.receive_secret()));
    EXPECT_FALSE(same(connects.send_secret(), earlier)) << "two connections have one key";
    earlier = connects.send_secret();
    EXPECT_LT(said.from_connecting.size(), 1000u);
  }
}

// Given a rank whose OpenSSL knows P-256 alone, as a FIPS provider does, at either end or both,
// expect the two to come through.
TEST(TcpHandshake, goes_by_another_curve_where_one_end_lacks_the_first) {
  const auto one = tls_of(1), two = tls_of(2), fips_one = tls_of(1), fips_two = tls_of(2);
  for (const TcpTls* each : {fips_one.get(), fips_two.get()}) {
    ASSERT_EQ(SSL_CTX_set1_groups_list(each->context(), "P-256"), 1);
  }
  const std::pair<const TcpTls*, const TcpTls*> pairs[] = {
      {fips_one.get(), two.get()}, {one.get(), fips_two.get()}, {fips_one.get(), fips_two.get()}};
  for (const auto& [from, to] : pairs) {
    TcpHandshake connects(*from, trust_of(1, 2)), listens(*to);
    const Talk said = talk(connects, listens);
    EXPECT_EQ(said.connects, Phase::kDone) << connects.why();
    EXPECT_EQ(said.listens, Phase::kDone) << listens.why();
    EXPECT_TRUE(same(connects.send_secret(), listens.receive_secret()));
    EXPECT_LT(said.from_connecting.size(), 2048u) << "as much as a port takes of one";
  }
}

// Given what follows the handshake in the same bytes, expect it to be left.
TEST(TcpHandshake, takes_nothing_past_its_end) {
  const auto one = tls_of(1), two = tls_of(2);
  TcpHandshake connects(*one, trust_of(1, 2)), listens(*two);
  std::string there, back;
  connects.start(&there);
  listens.advance(&there, &back);
  connects.advance(&back, &there);
  there += "behind it";
  EXPECT_EQ(listens.advance(&there, &back), Phase::kDone);
  EXPECT_EQ(there, "behind it");
}

TEST(TcpHandshake, refuses_whoever_has_not_the_key) {
  const auto two = tls_of(2);
  const auto refused = [&](const TcpTls& tls, const TcpTrust& trust) {
    TcpHandshake connects(tls, trust), listens(*two);
    const Talk said = talk(connects, listens);
    EXPECT_EQ(said.listens, Phase::kFailed);
    EXPECT_NE(said.connects, Phase::kDone);
    EXPECT_FALSE(listens.why().empty());
  };
  refused(*tls_of(1, "another secret"), trust_of(1, 2));
  const auto one = tls_of(1);
  TcpTrust other = trust_of(1, 2);
  other.listener_salt.bytes[0] ^= 1;
  refused(*one, other);
  refused(*one, trust_of(1, 3));  // meant for another rank
  refused(*one, trust_of(2, 2));  // as the rank itself
  refused(*one, trust_of(9, 2));
  for (const auto change :
       {+[](TcpIdentity& id) { ++id.job; }, +[](TcpIdentity& id) { ++id.epoch; },
        +[](TcpIdentity& id) { ++id.version; }, +[](TcpIdentity& id) { ++id.world; },
        +[](TcpIdentity& id) { id.suite.security = TcpSecurity::kHandshake; },
        +[](TcpIdentity& id) { id.suite.cipher = TcpCipher::kChaCha20Poly1305; }}) {
    other = trust_of(1, 2);
    change(other.identity);
    refused(*one, other);
  }
}

// Whether the two came through with different secrets, or one without the other.
bool deceived(TcpHandshake& connects, TcpHandshake& listens) {
  if (listens.phase() != Phase::kDone) return false;
  return connects.phase() != Phase::kDone ||
         !same(connects.send_secret(), listens.receive_secret());
}

// Given one bit flipped of what either side says, expect that side to fail; but for the version in
// a record's header, which TLS 1.3 ignores (RFC 8446, 5.1): both then hold the same.
TEST(TcpHandshake, any_flipped_bit_ends_it) {
  const auto one = tls_of(1), two = tls_of(2);
  TcpHandshake first(*one, trust_of(1, 2)), second(*two);
  const Talk whole = talk(first, second);
  const auto flip = [](std::string& bytes, size_t bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
  };
  size_t come_through = 0;
  for (size_t bit = 0; bit < 8 * whole.from_connecting.size(); ++bit) {
    TcpHandshake connects(*one, trust_of(1, 2)), listens(*two);
    std::string there, back;
    connects.start(&there);
    const size_t hello_bits = 8 * there.size();
    if (bit < hello_bits) flip(there, bit);
    listens.advance(&there, &back);
    connects.advance(&back, &there);
    if (bit >= hello_bits) flip(there, bit - hello_bits);
    come_through += listens.advance(&there, &back) == Phase::kDone ? 1 : 0;
    EXPECT_FALSE(deceived(connects, listens)) << "bit " << bit;
  }
  for (size_t bit = 0; bit < 8 * whole.from_listening.size(); ++bit) {
    TcpHandshake connects(*one, trust_of(1, 2)), listens(*two);
    std::string there, back;
    connects.start(&there);
    listens.advance(&there, &back);
    flip(back, bit);
    come_through += connects.advance(&back, &there) == Phase::kDone ? 1 : 0;
    listens.advance(&there, &back);
    EXPECT_FALSE(deceived(connects, listens)) << "bit " << bit;
  }
  EXPECT_LE(come_through, 16u * 6);
}

TEST(TcpHandshake, replayed_and_reflected_it_fails) {
  const auto one = tls_of(1), two = tls_of(2);
  TcpHandshake connects(*one, trust_of(1, 2)), listens(*two);
  const Talk said = talk(connects, listens);
  std::string replayed = said.from_connecting, answer;
  TcpHandshake again(*two);
  EXPECT_NE(again.advance(&replayed, &answer), Phase::kDone);
  std::string reflected = said.from_connecting;
  TcpHandshake itself(*one);
  EXPECT_EQ(itself.advance(&reflected, &answer), Phase::kFailed);
}

TEST(TcpHandshake, bytes_of_strangers_fail_it) {
  const auto two = tls_of(2);
  for (std::string bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(2000, 'x'),
                            std::string("\x16\x03\x01\0\x05\x01\0\0\x01\0", 10)}) {
    TcpHandshake listens(*two);
    std::string answer;
    EXPECT_NE(listens.advance(&bytes, &answer), Phase::kDone);
  }
}

}  // namespace
}  // namespace parallax
