// SPDX-License-Identifier: Apache-2.0
// The handshake of a connection: TLS 1.3 by OpenSSL with an external pre-shared key and ephemeral
// keys (psk_dhe_ke), no certificate. Without I/O or clock: bytes in, bytes out. What is kept of the
// TLS session are two secrets of its exporter (RFC 8446, 7.5), one a direction; the frames that
// follow are ours (tcp_frames.h).
//
// The key holds the job, both ranks and their roles, the epoch, the versions and the suite: a
// handshake that is replayed, reflected, altered, or of another job fails. One caller at a time;
// nothing blocks.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_HANDSHAKE_H_
#define PARALLAX_TRANSPORT_TCP_TCP_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/crypto.h"
#include "base/status.h"
#include "transport/tcp/tcp_wire.h"

struct ssl_ctx_st;
struct ssl_st;
struct ssl_session_st;

namespace parallax {

// What one side of a connection knows of it before anything is said.
struct TcpTrust {
  TcpIdentity identity;
  Key listener_salt;
};

// OpenSSL's settings, shared by the handshakes of a rank, which it outlives.
class TcpTls {
 public:
  // For those who connect: the trust for a rank by its number; false if it is none of the job.
  using Find = std::function<bool(uint32_t from, TcpTrust* trust)>;

  // LIMIT, UNSUPPORTED: OpenSSL cannot do it.
  static Status create(const Key& job_key, Find find, std::unique_ptr<TcpTls>* tls);
  ~TcpTls();
  TcpTls(const TcpTls&) = delete;
  TcpTls& operator=(const TcpTls&) = delete;

  ssl_ctx_st* context() const { return context_; }
  const Key& job_key() const { return job_key_; }
  bool find(uint32_t from, TcpTrust* trust) const { return find_(from, trust); }

 private:
  TcpTls(const Key& job_key, Find find) : job_key_(job_key), find_(std::move(find)) {}

  const Key job_key_;
  const Find find_;
  ssl_ctx_st* context_ = nullptr;
};

class TcpHandshake {
 public:
  enum class Phase : uint8_t { kTalking, kDone, kFailed };

  // The side that listens.
  explicit TcpHandshake(const TcpTls& tls);
  // The side that connects, to the rank that `trust` names.
  TcpHandshake(const TcpTls& tls, const TcpTrust& trust);
  ~TcpHandshake();
  TcpHandshake(const TcpHandshake&) = delete;
  TcpHandshake& operator=(const TcpHandshake&) = delete;

  // Whether a whole record is there, so that advance() would have something to do.
  static bool has_record(std::string_view in);
  // The side that connects speaks first.
  void start(std::string* out);
  // Takes whole TLS records off the front of *in, none past the end of the handshake, and appends
  // what is to be sent to *out, also of a handshake that fails.
  Phase advance(std::string* in, std::string* out);

  Phase phase() const { return phase_; }
  // Whether the peer is, or named itself as, one of the job: a stranger does not know its number.
  bool knows_peer() const { return trusts_; }
  // Of kFailed, one clause.
  const std::string& why() const { return why_; }
  // Of kDone: who both are, and the secrets of what this side sends and receives.
  const TcpIdentity& identity() const { return trust_.identity; }
  const Key& send_secret() const { return connects_ ? to_listener_ : from_listener_; }
  const Key& receive_secret() const { return connects_ ? from_listener_ : to_listener_; }

  // OpenSSL's callbacks.
  ssl_session_st* session_to_use() const;
  ssl_session_st* session_of(std::string_view identity);
  std::string_view identity_text() const { return identity_text_; }

 private:
  void make(const TcpTls& tls);
  Phase step(std::string* out);
  Phase fail(std::string why);
  bool export_secrets();

  const TcpTls& tls_;
  const bool connects_;
  bool trusts_ = false;  // the peer's identity was one of the job
  TcpTrust trust_;
  const std::string identity_text_;  // of the side that connects
  ssl_st* ssl_ = nullptr;
  Phase phase_ = Phase::kTalking;
  std::string why_;
  Key to_listener_;
  Key from_listener_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_HANDSHAKE_H_
