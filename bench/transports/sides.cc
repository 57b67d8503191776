// SPDX-License-Identifier: Apache-2.0
// Raw sockets, with and without GMAC, and the library's transports. See sides.h.
#include "sides.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/tcp_socket.h"
#include "transport/module/loader.h"
#include "transport/tcp/tcp_frames.h"
#include "transport/tcp/tcp_transport.h"

namespace parallax::transports {

void fail(const std::string& why) {
  std::fprintf(stderr, "parallax_transports: %s\n", why.c_str());
  std::exit(1);
}

int64_t now_ns() { return SteadyClock().now_ns(); }

bool Side::is_to_block() {
  constexpr int64_t kLookNs = 50'000;  // what a job's rank looks for before it blocks
  if (idle_ == Idle::kLooks) return false;
  const int64_t now = now_ns();
  if (idle_since_ns_ == 0) idle_since_ns_ = now;
  return now - idle_since_ns_ > kLookNs;
}

namespace {

constexpr size_t kBufferBytes = 256 << 10;

void expect(const Status& status) {
  if (!status.ok()) fail(status.message());
}

// Adds floats to `into`, over and over, in the order in which they come.
class Sum {
 public:
  void start(uint64_t count, size_t bytes, float* into) {
    into_ = into;
    bytes_ = bytes;
    left_ = count * bytes;
  }
  bool done() const { return left_ == 0; }
  void add(const std::byte* from, size_t bytes) {
    if (bytes > left_) fail("more came than was to be heard");
    left_ -= bytes;
    while (bytes > 0) {
      const size_t part = std::min(bytes, bytes_ - at_);
      float* const to = into_ + at_ / sizeof(float);
      for (size_t i = 0; i < part / sizeof(float); ++i) {
        float value;
        std::memcpy(&value, from + i * sizeof value, sizeof value);
        to[i] += value;
      }
      at_ = (at_ + part) % bytes_;
      from += part;
      bytes -= part;
    }
  }

 private:
  float* into_ = nullptr;
  size_t bytes_ = 0, at_ = 0;
  uint64_t left_ = 0;
};

class Raw : public Side {
 public:
  explicit Raw(UniqueFd socket) : socket_(std::move(socket)), buffer_(kBufferBytes) {}
  // In pieces: more at once fills the kernel's buffers beyond the caches, and is slower.
  void send(const std::byte* bytes, size_t count) override {
    for (size_t at = 0; at < count; at += kPieceBytes) {
      iovec piece = {const_cast<std::byte*>(bytes) + at, std::min(count - at, kPieceBytes)};
      send_all({&piece, 1});
    }
  }
  void hear(uint64_t count, size_t bytes, float* into) override {
    for (sum_.start(count, bytes, into); !sum_.done();) {
      if (!receive()) continue;
      const size_t whole = there_ / sizeof(float) * sizeof(float);
      sum_.add(buffer_.data(), whole);
      use(whole);
    }
  }

 protected:
  void send_all(std::span<iovec> pieces) {
    while (!pieces.empty()) {
      msghdr message = {};
      message.msg_iov = pieces.data();
      message.msg_iovlen = pieces.size();
      const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT | flags_);
      if (sent < 0 && errno != EAGAIN && errno != ENOBUFS) fail(std::strerror(errno));
      idle(sent > 0, POLLOUT);
      for (size_t left = sent < 0 ? 0 : static_cast<size_t>(sent); !pieces.empty();) {
        iovec& first = pieces.front();
        const size_t part = std::min(left, first.iov_len);
        first.iov_base = static_cast<std::byte*>(first.iov_base) + part;
        first.iov_len -= part;
        left -= part;
        if (first.iov_len > 0) break;
        pieces = pieces.subspan(1);
      }
    }
  }
  // Appends what is there.
  bool receive() {
    const ssize_t got =
        recv(socket_.get(), buffer_.data() + there_, buffer_.size() - there_, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) fail("the other side is gone");
    idle(got > 0, POLLIN);
    if (got > 0) there_ += static_cast<size_t>(got);
    return got > 0;
  }
  void use(size_t bytes) {
    there_ -= bytes;
    if (there_ > 0) std::memmove(buffer_.data(), buffer_.data() + bytes, there_);
  }
  int descriptor() const { return socket_.get(); }
  void set_flags(int flags) { flags_ = flags; }
  std::span<std::byte> buffer() { return {buffer_.data(), there_}; }
  Sum sum_;

 private:
  void idle(bool has_moved, short events) {
    if (has_moved) return moved();
    pollfd ready = {socket_.get(), events, 0};
    if (is_to_block()) ::poll(&ready, 1, -1);
  }

  const UniqueFd socket_;
  std::vector<std::byte> buffer_;
  size_t there_ = 0;
  int flags_ = 0;  // of sendmsg, beside those that always are
};

// MSG_ZEROCOPY: the kernel sends out of this process's pages, and says behind when it is done.
class RawZeroCopy final : public Raw {
 public:
  explicit RawZeroCopy(UniqueFd socket) : Raw(std::move(socket)) {
    const int on = 1;
    if (setsockopt(descriptor(), SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) != 0) fail("SO_ZEROCOPY");
    set_flags(MSG_ZEROCOPY);
  }
  void send(const std::byte* bytes, size_t count) override {
    Raw::send(bytes, count);
    std::array<char, 256> control;
    msghdr message = {};
    do {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
    } while (recvmsg(descriptor(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0);
  }
};

// Pieces as the library's frames, with the same tags, and nothing else of the library's.
class RawGmac final : public Raw {
 public:
  explicit RawGmac(UniqueFd socket) : Raw(std::move(socket)) {}
  void send(const std::byte* bytes, size_t count) override {
    for (size_t at = 0; at < count; at += kPieceBytes) {
      const Segment body{bytes + at, std::min(count - at, kPieceBytes)};
      std::array<std::byte, kTcpHeaderBytes> header;
      std::array<std::byte, kTcpTagBytes> tag;
      sealer_.seal({static_cast<uint32_t>(body.bytes), TcpFrameType::kMessage}, {&body, 1},
                   header.data(), nullptr, tag.data());
      iovec pieces[] = {{header.data(), header.size()},
                        {const_cast<void*>(body.data), body.bytes},
                        {tag.data(), tag.size()}};
      send_all(pieces);
    }
  }
  void hear(uint64_t count, size_t bytes, float* into) override {
    for (sum_.start(count, bytes, into); !sum_.done();) {
      if (receive()) take_frames();
    }
  }

 private:
  void take_frames() {
    size_t at = 0;
    TcpFrameHeader header;
    for (const std::span<std::byte> there = buffer(); there.size() - at >= kTcpHeaderBytes;) {
      if (!decode_tcp_header(there.data() + at, kTcpBodyBytesMax, &header)) fail("no frame");
      const size_t frame_bytes = kTcpHeaderBytes + header.body_bytes + kTcpTagBytes;
      if (there.size() - at < frame_bytes) break;
      if (!opener_.open(there.subspan(at, frame_bytes))) fail("a tag is wrong");
      sum_.add(there.data() + at + kTcpHeaderBytes, header.body_bytes);
      at += frame_bytes;
    }
    use(at);
  }

  TcpSealer sealer_{TcpSuite{.security = TcpSecurity::kAuthenticate}, Key()};
  TcpOpener opener_{TcpSuite{.security = TcpSecurity::kAuthenticate}, Key()};
};

class Carried final : public Side, private Receiver {
 public:
  Carried(std::unique_ptr<NetworkTransport> transport, uint32_t peer)
      : transport_(std::move(transport)), peer_(peer) {}
  ~Carried() override {
    while (pending_ > 0 && gone_.empty()) advance();
  }
  void send(const std::byte* bytes, size_t count) override {
    for (size_t at = 0; at < count; at += kPieceBytes) {
      const Segment segment{bytes + at, std::min(count - at, kPieceBytes)};
      while (!transport_->writable(peer_)) advance();
      expect(transport_->send(peer_, {&segment, 1}, 0));
      ++pending_;
    }
  }
  void hear(uint64_t count, size_t bytes, float* into) override {
    for (sum_.start(count, bytes, into); !sum_.done();) advance();
  }

 private:
  void advance() {
    if (!gone_.empty()) fail(gone_);
    if (transport_->poll(*this)) return moved();
    if (!is_to_block() || !transport_->arm()) return;
    pollfd ready = {transport_->wait_fd(), POLLIN, 0};
    ::poll(&ready, 1, -1);
  }
  void on_message(uint32_t, std::span<const std::byte> message) override {
    sum_.add(message.data(), message.size());
  }
  void on_sent(uint64_t) override { --pending_; }
  // No failure where nothing more is to come: it may have finished first.
  void on_lost(uint32_t, Loss, std::string_view why) override { gone_ = why; }

  std::unique_ptr<NetworkTransport> transport_;
  const uint32_t peer_;
  std::string gone_;
  Sum sum_;
  uint64_t pending_ = 0;
};

std::unique_ptr<Side> meet(std::unique_ptr<NetworkTransport> transport, const Place& place) {
  const uint32_t peer = 1 - place.rank;
  expect(transport->connect(peer, place.exchange(transport->address())));
  uint32_t missing = 0;
  expect(transport->wire({&peer, 1}, now_ns() + 10'000'000'000, &missing));
  return std::make_unique<Carried>(std::move(transport), peer);
}

std::unique_ptr<Side> tcp(TcpSecurity security, const Place& place) {
  TcpOptions options;
  options.rank = place.rank;
  options.world = 2;
  options.net_device = place.device;
  options.security = security;
  std::unique_ptr<TcpTransport> made;
  expect(TcpTransport::create(options, &made));
  return meet(std::move(made), place);
}

std::unique_ptr<Side> ucx(const Place& place) {
  const ParallaxTransportModule* module = nullptr;
  ModuleReport report;
  expect(load_ucx_module("", &module, &report));
  std::unique_ptr<NetworkTransport> made;
  expect(module->create(
      {.rank = place.rank, .world = 2, .net_device = place.device, .transports = "tcp"}, &made));
  return meet(std::move(made), place);
}

SocketAddress address_of(const std::string& text, uint16_t port) {
  std::string bytes(4, '\0');
  if (inet_pton(AF_INET, text.c_str(), bytes.data()) != 1) fail("no IPv4 address: " + text);
  return make_address(bytes, port);
}

UniqueFd connected_socket(const Place& place) {
  UniqueFd listener, socket;
  SocketAddress at;
  if (place.rank == 0) {
    if (tcp_listen_at(address_of(place.address, 0), &listener) != 0) fail("no port");
    expect(tcp_name(listener, &at));
  }
  const std::string there =
      place.exchange(place.rank == 0 ? place.address + " " + std::to_string(port_of(at)) : "-");
  if (place.rank == 0) {
    while (tcp_accept(listener, &socket, &at) != Accepted::kOne) {
    }
    return socket;
  }
  const size_t space = there.find(' ');
  at = address_of(there.substr(0, space), static_cast<uint16_t>(std::stoul(there.substr(space))));
  if (tcp_connect(at, &socket) != 0) fail("not connected");
  for (int failure = ENOTCONN; failure != 0;) {
    failure = tcp_connected(socket);
    if (failure != 0 && failure != ENOTCONN) fail(std::strerror(failure));
  }
  return socket;
}

}  // namespace

std::unique_ptr<Side> make_side(const std::string& way, const Place& place) {
  if (way == "raw") return std::make_unique<Raw>(connected_socket(place));
  if (way == "raw-gmac") return std::make_unique<RawGmac>(connected_socket(place));
  if (way == "raw-zerocopy") return std::make_unique<RawZeroCopy>(connected_socket(place));
  if (way == "handshake") return tcp(TcpSecurity::kHandshake, place);
  if (way == "authenticate") return tcp(TcpSecurity::kAuthenticate, place);
  if (way == "encrypt") return tcp(TcpSecurity::kEncrypt, place);
  if (way == "ucx") return ucx(place);
  fail("no way: " + way);
}

}  // namespace parallax::transports
