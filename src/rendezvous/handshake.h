// SPDX-License-Identifier: Apache-2.0
// The handshake of the tcp rendezvous: mutual challenge and response by HMAC-SHA256. Two state
// machines without I/O or clock: bytes in, bytes out, a nonce injected. One thread each.
//
//   rank r                                rank 0, or the rank that passes rosters on to r
//   HELLO      who I am, nonce      ->
//                                   <-    CHALLENGE  who I am, nonce
//   PROOF      HMAC(client key, HELLO CHALLENGE) ->
//                                   <-    WELCOME    status, HMAC(server key, HELLO CHALLENGE PROOF
//                                                    status)
//   or, before the peer is authenticated, rank 0 answers REFUSAL: status, sentence.
//
// HELLO and CHALLENGE hold protocol, version, rank, host, whether there is a secret, world, lease
// and job, so the proofs cover all of that and both nonces: a session that is replayed, reflected
// or altered fails. Client key, server key and the two keys of the Channel that follows are derived
// from the job's key under labels of their own, the last two from HELLO and CHALLENGE as well.
// Without a secret the job's key is known to all, and the proofs show only that nothing was
// garbled.
//
// The client proves itself first, so that a stranger who connects to rank 0 gets no value against
// which guesses of the secret could be tested offline.
#ifndef PARALLAX_RENDEZVOUS_HANDSHAKE_H_
#define PARALLAX_RENDEZVOUS_HANDSHAKE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/crypto.h"
#include "base/status.h"
#include "rendezvous/frame.h"

namespace parallax {

inline constexpr uint16_t kRendezvousProtocol = 2;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kJobNameBytesMax = 64;

// What a rank says of itself.
struct Introduction {
  uint16_t protocol = kRendezvousProtocol;
  uint32_t version = 0;
  uint32_t rank = 0;
  std::string host;
  bool secret = false;
  uint32_t world = 0;
  uint32_t lease_ms = 0;
  std::string job;  // "" if the job has no name
  std::string nonce;
};

// "rank 3 (host b)".
std::string rank_name(uint32_t rank, const std::string& host);

// A status within a frame. Reading fails for a code that this library does not have, and for
// control bytes, since the sentence reaches a terminal.
void put_status(std::string* out, const Status& status);
bool take_status(std::string_view* bytes, Status* status);

// What the two sides share. Bytes that follow the handshake are left for the Channel.
class Handshake {
 public:
  enum class Phase { kTalking, kProven, kDone, kFailed };

  Phase phase() const { return phase_; }
  // Why it failed.
  const Status& status() const { return status_; }
  // The other side; complete from kProven on.
  const Introduction& peer() const { return peer_; }

 protected:
  Handshake(Introduction self, const Key& job_key) : self_(std::move(self)), job_key_(job_key) {}

  Phase fail(Status status);
  Status check_peer() const;
  std::string session() const { return hello_ + challenge_; }

  const Introduction self_;
  const Key job_key_;
  Introduction peer_;
  std::string hello_;  // the bodies, as sent
  std::string challenge_;
  std::string proof_;
  Phase phase_ = Phase::kTalking;
  Status status_;
};

class ClientHandshake : public Handshake {
 public:
  // `server_rank` is whom it comes to; another's answer is not believed.
  ClientHandshake(Introduction self, const Key& job_key, uint32_t server_rank = 0)
      : Handshake(std::move(self), job_key), server_rank_(server_rank) {}

  void start(std::string* out);
  // Takes whole frames off the front of *in. kDone: welcomed. kFailed: status() says why, in words
  // for this rank's user.
  Phase advance(std::string* in, std::string* out);
  Channel channel() const;

 private:
  Phase on_challenge(std::string_view body, std::string* out);
  Phase on_welcome(std::string_view body);
  Phase on_refusal(std::string_view body);
  Phase fail_as_stranger();

  const uint32_t server_rank_;
};

class ServerHandshake : public Handshake {
 public:
  ServerHandshake(Introduction self, const Key& job_key) : Handshake(std::move(self), job_key) {}

  // kProven: the peer knows the key, and welcome() decides. kFailed: status() is for the log, and
  // *out holds what the peer is told, if its HELLO could be read.
  Phase advance(std::string* in, std::string* out);
  // An error refuses the peer after all, and tells it why under the key.
  Phase welcome(const Status& status, std::string* out);
  Channel channel() const;

 private:
  Phase on_hello(std::string_view body, std::string* out);
  Phase on_proof(std::string_view body, std::string* out);
  Phase refuse(Status status, std::string* out);
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_HANDSHAKE_H_
