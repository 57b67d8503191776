// SPDX-License-Identifier: Apache-2.0
// Fuzz: what reaches a rank of transport tcp before and after trust. A stranger's bytes at either
// side of the handshake, at once or byte by byte: nobody without the key comes through. A stream of
// frames, bent by the input: what is delivered is what was sent, in its order, up to where it was
// bent. Endpoints, of one rail or several: what is read is what would be written. Strangers at a
// port: what they cost is bounded, and none of them is a member.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/tcp_socket.h"
#include "base/unique_fd.h"
#include "transport/tcp/tcp_handshake.h"
#include "transport/tcp/tcp_incoming.h"
#include "transport/tcp/tcp_strangers.h"

namespace {

using parallax::TcpHandshake;

parallax::TcpTrust trust_of(uint32_t from, uint32_t to) {
  parallax::TcpTrust trust;
  trust.identity.from = from;
  trust.identity.to = to;
  trust.identity.world = 4;
  trust.listener_salt = parallax::derive_key("salt", "fuzz");
  return trust;
}

const parallax::TcpTls& tls() {
  static const std::unique_ptr<parallax::TcpTls> made = [] {
    std::unique_ptr<parallax::TcpTls> tls;
    const auto find = [](uint32_t from, parallax::TcpTrust* trust) {
      *trust = trust_of(from, 0);
      return from < 4;
    };
    if (!parallax::TcpTls::create(parallax::tcp_job_key("secret", 1), find, &tls).ok()) abort();
    return tls;
  }();
  return *made;
}

void speak(TcpHandshake& side, std::string bytes, bool slowly) {
  std::string in, out;
  while (!bytes.empty() && side.phase() == TcpHandshake::Phase::kTalking) {
    const size_t count = slowly ? 1 : bytes.size();
    in.append(bytes, 0, count);
    bytes.erase(0, count);
    if (side.advance(&in, &out) == TcpHandshake::Phase::kDone) abort();
  }
  if (side.phase() == TcpHandshake::Phase::kFailed && side.why().empty()) abort();
}

void speak_before_trust(const std::string& bytes, uint8_t mode) {
  if ((mode & 4) != 0) {
    TcpHandshake connects(tls(), trust_of(1, 0));
    std::string out;
    connects.start(&out);
    speak(connects, bytes, (mode & 8) != 0);
    return;
  }
  TcpHandshake listens(tls());
  speak(listens, bytes, (mode & 8) != 0);
}

std::string sealed(parallax::TcpSealer& sealer, const std::string& body) {
  std::string frame(parallax::kTcpHeaderBytes, '\0');
  std::string tag(sealer.suite().tag_bytes(), '\0'), made = body;
  const parallax::Segment segment{body.data(), body.size()};
  sealer.seal({static_cast<uint32_t>(body.size()), parallax::TcpFrameType::kMessage}, {&segment, 1},
              reinterpret_cast<std::byte*>(frame.data()), reinterpret_cast<std::byte*>(made.data()),
              reinterpret_cast<std::byte*>(tag.data()));
  return frame + made + tag;
}

// Long enough for messages that are received in their place.
constexpr size_t kBodyBytesMax = 20000;

std::string long_body() {
  std::string body(kBodyBytesMax, ' ');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>('a' + i * i % 23);
  return body;
}

bool is_as_meant(const parallax::TcpFrame& frame, const std::byte* place,
                 const std::string& meant) {
  const size_t here = frame.body.size();
  return here + frame.placed_bytes == meant.size() &&
         std::memcmp(frame.body.data(), meant.data(), here) == 0 &&
         std::memcmp(place, meant.data() + here, frame.placed_bytes) == 0;
}

// Two bytes of the input are a place in the stream, the third one what it is bent by; in clear it
// is the stream, behind a long message whose place comes and goes as its bits are.
void bend_frames(const std::string& input, uint8_t mode) {
  parallax::TcpSuite suite;
  suite.security = static_cast<parallax::TcpSecurity>((mode >> 2) % 3);
  suite.cipher =
      (mode & 32) != 0 ? parallax::TcpCipher::kChaCha20Poly1305 : parallax::TcpCipher::kAes128Gcm;
  suite.frames_per_key = 2;
  const parallax::Key secret = parallax::derive_key("direction", "fuzz");
  parallax::TcpSealer sealer(suite, secret);
  std::vector<std::string> bodies;
  std::string stream;
  for (size_t i = 0; i < 6; ++i) {
    bodies.push_back(std::string(i * i * 11, static_cast<char>('a' + i)));
    stream += sealed(sealer, bodies.back());
  }
  const std::string whole = stream;
  for (size_t at = 0; at + 3 <= input.size(); at += 3) {
    const size_t place = static_cast<uint8_t>(input[at]) << 8 | static_cast<uint8_t>(input[at + 1]);
    stream[place % stream.size()] ^= input[at + 2];
  }
  const bool clear = suite.security == parallax::TcpSecurity::kHandshake;
  static const std::string body_of_long = long_body();
  if (clear) stream = sealed(sealer, body_of_long) + input;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
  const parallax::UniqueFd one(ends[0]), other(ends[1]);
  parallax::TcpIncoming incoming(suite, secret, kBodyBytesMax);
  parallax::TcpCounters counters;
  parallax::TcpFrame frame;
  static std::byte place[kBodyBytesMax];
  size_t delivered = 0, sent = 0;
  while (sent < stream.size()) {
    const size_t small = clear ? 700 : 7;
    const size_t piece = std::min<size_t>(stream.size() - sent, (mode & 64) != 0 ? small : 4096);
    if (send(one.get(), stream.data() + sent, piece, 0) != static_cast<ssize_t>(piece)) abort();
    sent += piece;
    int error = 0;
    size_t rest_bytes = 0;
    const bool may_be = !incoming.head(&rest_bytes).empty();
    if (rest_bytes > sizeof place) abort();
    const size_t bit = sent / piece;
    const bool places = input.empty() || (input[bit / 8 % input.size()] >> bit % 8 & 1) == 0;
    incoming.fill(other.get(), counters, may_be && places ? place : nullptr, &error);
    for (;;) {
      const auto next = incoming.next(&frame);
      if (next == parallax::TcpIncoming::Next::kMore) break;
      if (next != parallax::TcpIncoming::Next::kFrame) return;
      const std::span<const std::byte> body = frame.body;
      if (body.size() + frame.placed_bytes > kBodyBytesMax) abort();
      const std::string& meant = clear ? body_of_long : bodies.at(delivered);
      if (clear && delivered++ > 0) continue;
      if (!clear) ++delivered;
      if (!frame.spoiled && !is_as_meant(frame, place, meant)) abort();
    }
  }
  if (stream == whole && delivered != bodies.size()) abort();
}

void read_texts(const std::string& bytes) {
  parallax::TcpEndpoint endpoint;
  if (parallax::decode_tcp_endpoint(bytes, &endpoint).ok() &&
      parallax::encode_tcp_endpoint(endpoint) != bytes) {
    abort();
  }
  std::vector<std::string> rails;
  if (parallax::decode_tcp_rails(bytes, &rails).ok() && rails.size() > 1 &&
      parallax::encode_tcp_rails(rails) != bytes) {
    abort();
  }
  uint32_t from = 0;
  (void)parallax::identity_from(bytes, &from);
}

// Each byte of the input opens a piece: by its value one comes, or who came last says as many bytes
// of what follows, or time passes.
void come_as_strangers(const std::string& input) {
  using parallax::TcpStrangers;
  static parallax::UniqueFd epoll;
  epoll.reset(epoll_create1(EPOLL_CLOEXEC));
  TcpStrangers strangers(tls());
  const auto loopback = parallax::make_address(std::string("\x7f\0\0\x01", 4), 0);
  if (!strangers.listen(loopback, {}).ok()) return;
  std::vector<parallax::UniqueFd> callers;
  int64_t now_ns = 1;
  const auto serve = [&] {
    epoll_event events[TcpStrangers::kStrangersMax];
    strangers.accept(epoll.get(), 0, now_ns);
    const int count = epoll_wait(epoll.get(), events, TcpStrangers::kStrangersMax, 0);
    for (int i = 0; i < count; ++i) {
      TcpStrangers::Member member;
      if (strangers.advance(static_cast<uint32_t>(events[i].data.u64), &member)) abort();
    }
    if (strangers.count() > TcpStrangers::kStrangersMax) abort();
  };
  for (size_t at = 0; at < input.size();) {
    const auto what = static_cast<uint8_t>(input[at++]);
    if (what == 255) {
      now_ns += TcpStrangers::kStrangerNs / 2;
      strangers.expire(now_ns);
    } else if (what % 4 == 0 && callers.size() < 2 * TcpStrangers::kStrangersMax) {
      callers.emplace_back();
      if (parallax::tcp_connect(strangers.address(), &callers.back()) != 0) callers.pop_back();
    } else if (!callers.empty()) {
      std::string words = input.substr(at, what);
      at += words.size();
      (void)parallax::tcp_send(callers.back(), &words);
    }
    serve();
  }
  now_ns += TcpStrangers::kStrangerNs;
  strangers.expire(now_ns);
  if (strangers.count() != 0) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const uint8_t mode = data[0];
  const std::string input(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  switch (mode % 4) {
    case 0:
      speak_before_trust(input, mode);
      break;
    case 3:
      (mode & 4) != 0 ? come_as_strangers(input) : read_texts(input);
      break;
    default:
      bend_frames(input, mode);
  }
  return 0;
}
