// SPDX-License-Identifier: Apache-2.0
// Frames out of a byte stream: torn at every byte, ended at every byte; and what a header that is
// none tells of whom: of the peer where its tag holds, of somebody on the way where it does not.
#include "transport/tcp/tcp_incoming.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace parallax {
namespace {

using Next = TcpIncoming::Next;

constexpr size_t kStreamBodyBytesMax = 20000;
constexpr TcpSecurity kTaggedFrames[] = {TcpSecurity::kEncrypt, TcpSecurity::kAuthenticate};

// The next frame of a direction, as a peer who has the keys would send it.
std::string frame_of(TcpSealer& sealer, TcpFrameType type, size_t body_bytes) {
  const size_t tag_bytes = sealer.suite().tag_bytes();
  std::string frame(kTcpHeaderBytes + body_bytes + tag_bytes, 'x');
  const std::string body(body_bytes, 'x');
  const Segment segment{body.data(), body.size()};
  auto* const out = reinterpret_cast<std::byte*>(frame.data());
  std::byte tag[kTcpTagBytes];
  sealer.seal({static_cast<uint32_t>(body_bytes), type}, {&segment, 1}, out, out + kTcpHeaderBytes,
              tag);
  frame.replace(frame.size() - tag_bytes, tag_bytes, reinterpret_cast<const char*>(tag), tag_bytes);
  return frame;
}

// The first one.
std::string frame_of(TcpSecurity security, TcpFrameType type, size_t body_bytes) {
  TcpSealer sealer({.security = security}, {});
  return frame_of(sealer, type, body_bytes);
}

// One end of a stream, and what comes out of the other.
class ByteStream {
 public:
  explicit ByteStream(TcpSecurity security)
      : incoming_({.security = security}, {}, kStreamBodyBytesMax) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    here_.reset(ends[0]);
    there_.reset(ends[1]);
  }

  void say(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t taken =
          ::send(here_.get(), bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT);
      ASSERT_GT(taken, 0);
      sent += static_cast<size_t>(taken);
      ASSERT_EQ(fill(), TcpIncoming::Fill::kBytes);
    }
  }
  void end() { here_.reset(); }

  // Where the rest of a message is received, if it may be.
  std::byte* place = nullptr;

  TcpIncoming::Fill fill() {
    size_t rest_bytes = 0;
    const bool may_be = !incoming_.head(&rest_bytes).empty();
    return incoming_.fill(there_.get(), counters_, may_be ? place : nullptr, &error_);
  }
  int error() const { return error_; }
  Next next() { return incoming_.next(&frame_); }
  const TcpFrame& frame() const { return frame_; }
  // Types and bodies of the frames that are there; what follows them.
  Next take(std::string* said) {
    Next found = next();
    for (; found == Next::kFrame; found = next()) {
      *said += std::to_string(static_cast<int>(frame_.header.type)) + ":" +
               std::string(reinterpret_cast<const char*>(frame_.body.data()), frame_.body.size()) +
               ";";
    }
    return found;
  }

 private:
  UniqueFd here_, there_;
  TcpIncoming incoming_;
  TcpCounters counters_;
  TcpFrame frame_;
  int error_ = 0;
};

// What becomes of bytes that arrive.
Next next_of(TcpSecurity security, const std::string& bytes) {
  ByteStream stream(security);
  stream.say(bytes);
  return stream.next();
}

// Given a connection's frames from its welcome to its goodbye, torn behind every byte, expect all
// of them; ended there, those that are whole, and nothing that is taken for altered.
TEST(TcpIncoming, a_stream_is_torn_or_ends_at_every_byte) {
  for (const TcpSecurity security :
       {TcpSecurity::kEncrypt, TcpSecurity::kAuthenticate, TcpSecurity::kHandshake}) {
    TcpSealer sealer({.security = security}, {});
    const std::pair<TcpFrameType, size_t> meant[] = {{TcpFrameType::kWelcome, 0},
                                                     {TcpFrameType::kMessage, 5},
                                                     {TcpFrameType::kMessage, 0},
                                                     {TcpFrameType::kMessage, 70},
                                                     {TcpFrameType::kGoodbye, 0}};
    std::string bytes;
    std::vector<std::pair<size_t, std::string>> whole = {{0, ""}};  // behind that many bytes
    for (const auto& [type, body_bytes] : meant) {
      bytes += frame_of(sealer, type, body_bytes);
      whole.emplace_back(bytes.size(), whole.back().second +
                                           std::to_string(static_cast<int>(type)) + ":" +
                                           std::string(body_bytes, 'x') + ";");
    }
    for (size_t at = 0; at <= bytes.size(); ++at) {
      std::string before;
      for (const auto& [end, said] : whole) before = end <= at ? said : before;
      ByteStream torn(security), ended(security);
      std::string said;
      torn.say(bytes.substr(0, at));
      EXPECT_EQ(torn.take(&said), Next::kMore) << at;
      EXPECT_EQ(said, before) << at;
      torn.say(bytes.substr(at));
      EXPECT_EQ(torn.take(&said), Next::kMore) << at;
      EXPECT_EQ(said, whole.back().second) << at;

      said.clear();
      ended.say(bytes.substr(0, at));
      ended.end();
      EXPECT_EQ(ended.take(&said), Next::kMore) << at;
      EXPECT_EQ(said, before) << at;
      EXPECT_EQ(ended.fill(), TcpIncoming::Fill::kEnded) << at;
      EXPECT_EQ(ended.error(), 0) << at;
    }
  }
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Of a message in clear, between two others, every byte differs from its neighbours.
struct LongMessage {
  LongMessage() {
    for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>('a' + i * i % 23);
    stream.replace(before.size() + kTcpHeaderBytes, body.size(), body);
  }
  std::string rest() const { return body.substr(kMessageHeadBytes); }

  std::string body = std::string(kStreamBodyBytesMax, ' ');
  const std::string before = frame_of(TcpSecurity::kHandshake, TcpFrameType::kMessage, 3);
  const std::string after = frame_of(TcpSecurity::kHandshake, TcpFrameType::kMessage, 5);
  std::string stream =
      before + frame_of(TcpSecurity::kHandshake, TcpFrameType::kMessage, body.size()) + after;
};

// Given a long message in clear that is torn anywhere, expect its rest where it was asked for, once
// its head was there and enough was still to come, and else with the head.
TEST(TcpIncoming, the_rest_of_a_message_is_received_in_its_place) {
  const LongMessage message;
  const size_t first = message.before.size() + kTcpHeaderBytes;  // of its body
  const size_t end = first + message.body.size();
  for (size_t at = first; at < message.stream.size(); at += at < first + 60 ? 1 : 997) {
    ByteStream stream(TcpSecurity::kHandshake);
    std::string rest(kStreamBodyBytesMax, '.');
    stream.place = reinterpret_cast<std::byte*>(rest.data());
    // The first piece brings no head, the second one does or does not, the third ends it.
    for (const auto& [from, until] : {std::pair{size_t{0}, first},
                                      {first, at},
                                      {at, std::max(at, end - 1000)},
                                      {std::max(at, end - 1000), message.stream.size()}}) {
      stream.say(message.stream.substr(from, until - from));
      if (from == 0) {
        EXPECT_EQ(stream.next(), Next::kFrame);
      }
      if (until < end) {
        EXPECT_EQ(stream.next(), Next::kMore) << at;
      }
    }
    ASSERT_EQ(stream.next(), Next::kFrame) << at;
    const bool placed = at >= first + kMessageHeadBytes && at + TcpIncoming::kPlacedBytesMin <= end;
    EXPECT_EQ(stream.frame().header.body_bytes, message.body.size());
    EXPECT_FALSE(stream.frame().spoiled);
    if (placed) {
      EXPECT_EQ(stream.frame().placed_bytes, message.rest().size()) << at;
      EXPECT_EQ(text_of(stream.frame().body) + rest.substr(0, message.rest().size()), message.body);
    } else {
      EXPECT_EQ(stream.frame().placed_bytes, 0u) << at;
      EXPECT_EQ(text_of(stream.frame().body), message.body);
    }
    EXPECT_EQ(rest[message.rest().size()], '.') << "written beyond its end";
    ASSERT_EQ(stream.next(), Next::kFrame);
    EXPECT_EQ(stream.frame().body.size(), 5u);
    EXPECT_EQ(stream.next(), Next::kMore);
  }
}

// Given a place that is taken back while a message comes there, expect no byte more to be written,
// the message to be told spoiled, and the next one to come.
TEST(TcpIncoming, a_place_that_is_taken_back_spoils_the_message_alone) {
  const LongMessage message;
  const size_t first = message.before.size() + kTcpHeaderBytes;
  ByteStream stream(TcpSecurity::kHandshake);
  std::string rest(kStreamBodyBytesMax, '.');
  stream.place = reinterpret_cast<std::byte*>(rest.data());
  stream.say(message.stream.substr(0, first + 100));
  EXPECT_EQ(stream.next(), Next::kFrame);
  stream.say(message.stream.substr(first + 100, 900));
  const std::string written = rest;
  EXPECT_EQ(written.substr(0, 1000 - kMessageHeadBytes),
            message.rest().substr(0, 1000 - kMessageHeadBytes));
  stream.place = nullptr;
  stream.say(message.stream.substr(first + 1000, 5000));
  EXPECT_EQ(stream.next(), Next::kMore);
  stream.place = reinterpret_cast<std::byte*>(rest.data());  // too late
  stream.say(message.stream.substr(first + 6000));
  EXPECT_EQ(rest, written);
  EXPECT_EQ(stream.fill(), TcpIncoming::Fill::kBytes);  // what is behind it
  ASSERT_EQ(stream.next(), Next::kFrame);
  EXPECT_TRUE(stream.frame().spoiled);
  ASSERT_EQ(stream.next(), Next::kFrame);
  EXPECT_FALSE(stream.frame().spoiled);
  EXPECT_EQ(text_of(stream.frame().body), "xxxxx");
  EXPECT_EQ(stream.next(), Next::kMore);
}

// Given frames with tags, expect no message to be received anywhere but in the buffer.
TEST(TcpIncoming, what_has_a_tag_is_not_placed) {
  for (const TcpSecurity security : kTaggedFrames) {
    const std::string frame = frame_of(security, TcpFrameType::kMessage, kStreamBodyBytesMax);
    ByteStream stream(security);
    std::byte never{'.'};
    stream.place = &never;
    stream.say(frame.substr(0, 100));
    stream.say(frame.substr(100));
    ASSERT_EQ(stream.next(), Next::kFrame);
    EXPECT_EQ(stream.frame().placed_bytes, 0u);
    EXPECT_EQ(stream.frame().body.size(), kStreamBodyBytesMax);
  }
}

// Given any bit of a header flipped on the way, expect it to be found altered, or to wait for what
// it calls the rest; never to be taken for the peer's.
TEST(TcpIncoming, a_header_that_was_altered_says_nothing_of_the_peer) {
  for (const TcpSecurity security : kTaggedFrames) {
    const std::string frame = frame_of(security, TcpFrameType::kMessage, 400);
    EXPECT_EQ(next_of(security, frame), Next::kFrame);
    for (size_t bit = 0; bit < 8 * kTcpHeaderBytes; ++bit) {
      std::string bent = frame;
      bent[bit / 8] = static_cast<char>(bent[bit / 8] ^ 1 << bit % 8);
      EXPECT_NE(next_of(security, bent), Next::kFrame) << "bit " << bit;
      EXPECT_EQ(next_of(security, bent + std::string(kTcpFrameBytesMax, 'x')), Next::kForged)
          << "bit " << bit;
    }
  }
}

// Given what the peer itself sealed and is no frame, expect that to be its own doing, at its whole
// length; and a length without a frame that could hold it to be nobody's.
TEST(TcpIncoming, what_the_peer_sealed_is_its_own) {
  const auto none = static_cast<TcpFrameType>(5);
  for (const TcpSecurity security : kTaggedFrames) {
    const std::string garbage[] = {
        frame_of(security, none, 3), frame_of(security, TcpFrameType::kGoodbye, 3),
        frame_of(security, TcpFrameType::kMessage, kStreamBodyBytesMax + 1),
        frame_of(security, TcpFrameType::kMessage, kTcpBodyBytesMax)};
    for (const std::string& each : garbage) {
      EXPECT_EQ(next_of(security, each), Next::kGarbage) << each.size();
      EXPECT_EQ(next_of(security, each.substr(0, each.size() - 1)), Next::kMore) << each.size();
    }
    EXPECT_EQ(next_of(security, frame_of(security, TcpFrameType::kMessage, kTcpBodyBytesMax + 1)),
              Next::kForged);
  }
  EXPECT_EQ(next_of(TcpSecurity::kHandshake, frame_of(TcpSecurity::kHandshake, none, 3)),
            Next::kForged)
      << "without tags anyone on the way may have written it";
}

}  // namespace
}  // namespace parallax
