// SPDX-License-Identifier: Apache-2.0
// Reach: whether TCP from this rank to another works, what it carries, and how far apart their
// clocks are. A Listener answers the time to a peer that knows its secret, and sends back as many
// bytes as such a peer sends behind the question; nothing to anyone else. Used by `parallax doctor`
// alone.
//
// What strangers may cost: kProbersMax descriptors, 16 bytes of each, for kProberTimeoutMs at most.
// When more connect, or descriptors run out, the oldest is dropped, first of those that have sent
// nothing; a prober that is dropped so tries again. Who knows the secret may stay for
// kCarryTimeoutMs, and send kCarriedBytesMax. The thread allocates nothing.
#ifndef PARALLAX_TOOL_REACH_H_
#define PARALLAX_TOOL_REACH_H_

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/tcp/tcp_strangers.h"

namespace parallax::tool {

inline constexpr size_t kProbersMax = 128;
inline constexpr int64_t kProberTimeoutMs = 1000;  // to say the secret
inline constexpr int64_t kCarryTimeoutMs = 5000;   // there and back
inline constexpr size_t kCarriedBytesMax = 16 << 20;

struct TcpEndpoint {
  std::string address;  // numeric
  uint16_t port = 0;
  std::string from = {};  // this rank's address to connect from, numeric; "": as the route has it
};
std::string describe(const TcpEndpoint& endpoint);  // "10.0.0.1:4711", "[::1]:4711"

// Little-endian hosts only, as all of the wire format is.
inline constexpr uint64_t kReachMagic = 0x3f72746f63646c70;
inline constexpr uint64_t kCarryMagic = 0x3f79727261636c70;  // more bytes follow the question
struct ReachQuestion {
  uint64_t magic = kReachMagic;
  uint64_t secret = 0;
};
struct ReachAnswer {
  uint64_t secret = 0;
  int64_t wall_ns = 0;
};

class Listener {
 public:
  ~Listener();
  // A port of the kernel's choice, or the first free one of `ports`, on each address, and beside it
  // those of `wanted_ports` that are free on all of them. Starts the thread that answers. IO,
  // LIMIT; there is then no endpoint.
  Status start(const std::vector<std::string>& addresses,
               const std::vector<uint16_t>& wanted_ports = {}, const TcpPorts& ports = {});
  const std::vector<TcpEndpoint>& endpoints() const { return endpoints_; }
  const std::vector<uint16_t>& other_ports() const { return other_ports_; }
  uint64_t secret() const { return secret_; }

 private:
  // A connection, and what it has sent so far.
  struct Prober {
    UniqueFd socket;
    int64_t deadline_ns = 0;
    size_t said_bytes = 0;
    std::array<std::byte, sizeof(ReachQuestion)> said{};
    bool carries = false;      // it knows the secret, and sends what is to be sent back
    bool gives = false;        // it has sent all
    size_t carried_bytes = 0;  // to be sent back
  };

  // port 0: the kernel's choice.
  static Status listen_at(const TcpEndpoint& where, UniqueFd* socket, uint16_t* port);
  static Status listen_within(const TcpPorts& ports, TcpEndpoint* where, UniqueFd* socket);
  void listen_at_all(const std::vector<std::string>& addresses, uint16_t port);
  // Run by the thread.
  void serve();
  void sleep();
  void look();
  void accept_all(int listener);
  void make_room();
  bool done_with(Prober& prober);
  bool carried(Prober& prober);

  std::vector<UniqueFd> sockets_;
  std::vector<TcpEndpoint> endpoints_;
  std::vector<uint16_t> other_ports_;
  uint64_t secret_ = 0;
  UniqueFd stop_;
  SteadyClock clock_;
  std::vector<Prober> probers_;  // the oldest first
  std::vector<pollfd> polled_;   // stop_, then sockets_, then probers_
  int64_t accept_again_ns_ = 0;  // descriptors had run out
  std::array<std::byte, 64 << 10> carried_ = {};
  std::thread thread_;
};

struct Probe {
  int64_t round_trip_ns = 0;
  int64_t clock_ahead_ns = 0;  // of the peer's wall clock; right to half the round trip
  std::string local_address;   // numeric: this side's of the connection
};

// Ports low, in the middle and high in a range, by default that which the kernel gives out, where
// data ports of a job lie: a firewall may let one through and not another.
std::vector<uint16_t> ports_across(const TcpPorts& ports = {});

// Connects within connect_ms, and asks; if the other side hangs up, as a crowded Listener does, it
// connects again. Once TCP has connected, the other side may take kAnswerTimeoutMs. IO: why
// it cannot be reached ("no route to host", "refused", "no answer after 2000 ms"). Nothing goes on
// after until_ns, of SteadyClock.
inline constexpr int64_t kAnswerTimeoutMs = 10'000;
Status probe_peer(const TcpEndpoint& peer, uint64_t secret, int64_t connect_ms, Probe* probe,
                  int64_t until_ns = INT64_MAX);

// What a path carried there and back.
struct Carried {
  size_t bytes = 0;       // sent
  size_t back_bytes = 0;  // that came back
  int64_t there_and_back_ns = 0;
};
// Connects as probe_peer does, sends up to bytes_max, for kCarrySendMs at most, and takes as many
// back; again where it is hung up on. IO: not all came back in kCarryTimeoutMs, or by until_ns; or
// why it cannot be reached.
inline constexpr int64_t kCarrySendMs = 250;
Status carry_to_peer(const TcpEndpoint& peer, uint64_t secret, size_t bytes_max, Carried* carried,
                     int64_t until_ns = INT64_MAX);

int64_t wall_clock_ns();

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_REACH_H_
