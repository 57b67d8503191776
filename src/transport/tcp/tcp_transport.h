// SPDX-License-Identifier: Apache-2.0
// TcpTransport: messages between hosts over Ethernet, authenticated and, by default, encrypted. One
// listener a rank, one connection a pair of ranks, one frame a message. Owned by one caller at a
// time, as transport.h says; it has no thread.
//
// Design notes
// - A connection begins with a handshake (tcp_handshake.h), whose keys protect its frames
//   (tcp_frames.h). The side that listens then says welcome; before that the side that connects
//   sends nothing, and takes the end of the connection for an attempt that failed.
// - Of two ranks either may connect, on its first message or in wire(). Where both do, the lower
//   rank's attempt counts: the higher one gives its own up for it, the lower one refuses.
// - Where wire() leaves no rank unconnected, as in jobs of up to kWiredWorldMax ranks, the port is
//   closed there: in the middle of a run there is nothing for a stranger to come to.
// - Back-pressure is by credits (kTcpCreditBytes), and by the kernel: what its buffers do not take
//   waits here, up to kSendsInFlightMax messages a peer. Without either writable() says no.
// - A message is delivered from the peer's receive buffer, from within poll(). A Receiver may send
//   and forget there, so nothing that a frame needs is freed before attend(), behind all of them.
// - The end of a connection is reported behind all messages that came before it. A peer that goes
//   says goodbye; an end without it is told apart, since anyone on the way can cut a connection.
//   How a rank goes is said in tcp_closing.h.
// - With few peers poll() asks their sockets themselves, one system call for the bytes and none to
//   hear of them; epoll is asked where that finds nothing, and for all that is not bytes.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_TRANSPORT_H_
#define PARALLAX_TRANSPORT_TCP_TCP_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "base/socket_address.h"
#include "base/unique_fd.h"
#include "transport/inproc/fifo.h"
#include "transport/module/network_transport.h"
#include "transport/tcp/tcp_outgoing.h"
#include "transport/tcp/tcp_peer.h"
#include "transport/tcp/tcp_strangers.h"
#include "transport/tcp/tcp_turns.h"
#include "transport/tcp/tcp_wiring.h"

namespace parallax {

struct TcpOptions {
  uint32_t rank = 0;
  uint32_t world = 0;
  // The interface to listen at and to connect from: "lo", "eth0"; empty: the default route's.
  std::string net_device = {};
  std::string own_address = {};  // "10.0.0.1", of that interface if it is given; empty: its first
  TcpPorts ports = {};
  uint32_t busy_poll_us = 0;        // SO_BUSY_POLL of each connection; 0: as the system has it
  std::string congestion = "auto";  // checked: see tcp_congestion.h
  TcpSecurity security = TcpSecurity::kEncrypt;
  // From the job's secret; the same on every rank. Where there is none: any, the same everywhere,
  // and what keeps strangers out is the salt of the listening rank, which the rendezvous carries.
  Key job_key = {};
  uint64_t job = 0;
  uint32_t epoch = 0;
  int64_t lease_ns = 5000 * kNanosecondsPerMillisecond;
  size_t message_bytes_max = 0;  // 0: the default; the same on every rank
  bool aes_hardware = has_aes_hardware();
  uint64_t frames_per_key = TcpSuite().frames_per_key;  // the same on every rank
};

// "10.0.0.1:43119 on eth0".
std::string tcp_place(const SocketAddress& address);

// Where a transport of these options would listen, with port 0. INVALID.
Status choose_own_address(const TcpOptions& options, SocketAddress* address);

class TcpTransport final : public NetworkTransport {
 public:
  // Listens. INVALID, IO, LIMIT.
  static Status create(const TcpOptions& options, std::unique_ptr<TcpTransport>* transport);
  // Says goodbye, and hands over what was sent, as close_tcp() says.
  ~TcpTransport() override;

  std::string_view name() const override { return "tcp"; }
  size_t message_bytes_max() const override { return message_bytes_max_; }
  bool writable(uint32_t to) const override;
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override;
  bool copies_sends(uint32_t to) const override;
  bool poll(Receiver& receiver) override;
  int wait_fd() const override { return epoll_.get(); }
  bool arm() override;
  void forget(uint32_t rank) override;

  std::string address() const override;
  Status connect(uint32_t rank, const std::string& address) override;
  Status wire(std::span<const uint32_t> ranks, int64_t deadline_ns, uint32_t* missing) override;
  std::string description() const override;
  NetworkStats stats() const override;
  const TcpCounters& counters() const { return counters_; }

  // For the owner of several connections to one rank.
  TcpTurns& turns() { return turns_; }
  // Connects, if it is not connected, as a first message does.
  void reach(uint32_t rank);

  // For wire_tcp(): who of them is not connected, having begun where this rank is to connect.
  // INVALID.
  Status wire_on(std::span<const uint32_t> ranks, TcpLate* late);

 private:
  explicit TcpTransport(const TcpOptions& options);

  // tcp_connecting.cc
  Status open();
  void attempt(TcpPeer& peer);
  void advance_dial(TcpPeer& peer);
  void fail_attempt(TcpPeer& peer, std::string trouble, bool final);
  void stop_dial(TcpPeer& peer);
  void link(TcpPeer& peer, UniqueFd socket, const TcpHandshake& handshake);
  void connected(TcpPeer& peer);
  void admit(TcpStrangers::Member member);
  void accept();
  void on_tick();
  void keep_time();

  // tcp_transport.cc
  bool look(Receiver& receiver);
  bool receive(TcpPeer& peer, Receiver& receiver);
  bool take_frames(TcpPeer& peer, Receiver& receiver);
  void flush(TcpPeer& peer);
  bool on_event(TcpPeer& peer, uint32_t events, Receiver& receiver);
  void end_by(TcpPeer& peer, Loss loss, std::string why);
  void fail(TcpPeer& peer, Loss loss, std::string why);
  void attend_later(TcpPeer& peer);
  bool attend(Receiver& receiver);
  void unlink(TcpPeer& peer);

  const TcpOptions options_;
  const size_t message_bytes_max_;
  const Key salt_;
  UniqueFd epoll_;
  UniqueFd timer_;
  bool ticking_ = false;
  bool armed_ = false;
  uint32_t known_count_ = 0;
  uint32_t empty_polls_ = 0;  // since epoll was asked
  uint32_t dial_count_ = 0;   // peers in kConnecting
  int waiting_count_ = 0;     // peers whose socket took less than it was given
  bool accept_paused_ = false;
  bool accept_lacks_ = false;       // a descriptor, or memory, the last time that somebody came
  TcpPeer* interrupted_ = nullptr;  // whose message a Receiver threw at: others may lie behind it
  std::unique_ptr<TcpTls> tls_;
  std::unique_ptr<TcpStrangers> strangers_;
  TcpCounters counters_;
  NetworkStats stats_;
  TcpBuffers buffers_;  // outlives the peers
  Fifo<TcpPeer::Completion> completions_;
  std::vector<std::unique_ptr<TcpPeer>> peers_;  // by rank; null: not known
  TcpTurns turns_{epoll_, peers_};               // behind both
  std::vector<TcpPeer*> connected_;
  std::vector<TcpPeer*> attention_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_TRANSPORT_H_
