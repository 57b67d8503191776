// SPDX-License-Identifier: Apache-2.0
// TcpStrangers: a rank's port, and those who connect to it and have proved nothing yet. What they
// may cost is bounded: kStrangersMax connections, each with kHandshakeBytesMax bytes, for
// kStrangerNs at most. Where more come, of those that named an identity of the job and those that
// did not the more numerous lose their oldest: neither can crowd the others out. A rank that is
// displaced so connects again. Who says nothing is not even accepted for a second, and what a rank
// says first is read before another is accepted. OpenSSL is asked only once a whole record is
// there.
//
// Owned by the transport's owner; nothing blocks.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_STRANGERS_H_
#define PARALLAX_TRANSPORT_TCP_TCP_STRANGERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/socket_address.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/tcp/tcp_handshake.h"

namespace parallax {

// Ports to listen at; 0: one of the system's choosing.
struct TcpPorts {
  uint16_t first = 0;
  uint16_t last = 0;
};

class TcpStrangers {
 public:
  static constexpr uint32_t kStrangersMax = 64;
  static constexpr size_t kHandshakeBytesMax = 2048;
  static constexpr int64_t kStrangerNs = 5000 * kNanosecondsPerMillisecond;
  // Each may cost a key exchange: of those who come, and of those who were there and go on.
  static constexpr int kAcceptsPerPass = 2;
  static constexpr int kAdvancesPerPass = 2;

  // One who has the key.
  struct Member {
    UniqueFd socket;
    std::unique_ptr<TcpHandshake> handshake;  // done
  };

  explicit TcpStrangers(const TcpTls& tls) : tls_(tls) {}

  // At `address`, whose port is not looked at. IO names the address and the ports.
  Status listen(const SocketAddress& address, const TcpPorts& ports);
  int listener() const { return listener_.get(); }
  const SocketAddress& address() const { return address_; }

  // Accepts who waits, and has `epoll` tell `tag_first` + the stranger's number for each. False:
  // there is no descriptor left, not even by turning a stranger away.
  bool accept(int epoll, uint64_t tag_first, int64_t now_ns);
  // The port, of which `epoll` tells, takes nobody any more; whom it took before may go on.
  void close(int epoll);
  // Something happened at that stranger's. True: it is *member, and no stranger any more.
  bool advance(uint32_t stranger, Member* member);
  // Turns away who took too long.
  void expire(int64_t now_ns);
  uint32_t count() const { return count_; }
  uint64_t turned_away() const { return turned_away_; }

 private:
  struct Stranger {
    UniqueFd socket;
    int64_t since_ns = 0;
    size_t bytes_taken = 0;
    std::string in;
    std::string out;
    std::unique_ptr<TcpHandshake> handshake;
  };

  bool make_room();
  bool receive(Stranger& stranger);
  void turn_away(uint32_t stranger);

  const TcpTls& tls_;
  UniqueFd listener_;
  SocketAddress address_;
  std::array<std::unique_ptr<Stranger>, kStrangersMax> strangers_;
  uint32_t count_ = 0;
  uint64_t turned_away_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_STRANGERS_H_
