// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 by OpenSSL, over memory. See tcp_handshake.h.
#include "transport/tcp/tcp_handshake.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace parallax {

namespace {

constexpr size_t kRecordHeaderBytes = 5;
constexpr const char* kHandshakeSuite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kHandshakeSuiteId[] = {0x13, 0x01};
// The second where the first is not known, as to a FIPS provider; the two agree on P-256.
constexpr const char* kHandshakeGroups = "X25519:P-256";
constexpr const char* kHandshakeGroupsFips = "P-256";
constexpr std::string_view kExporterLabel = "EXPORTER-libparallax-tcp-1";

TcpHandshake& owner_of(const SSL* ssl) {
  return *static_cast<TcpHandshake*>(SSL_get_app_data(ssl));
}

// Of the first record, header and all; 0: it is not whole yet.
size_t record_bytes(std::string_view in) {
  if (in.size() < kRecordHeaderBytes) return 0;
  const size_t bytes = kRecordHeaderBytes + (size_t{static_cast<unsigned char>(in[3])} << 8 |
                                             static_cast<unsigned char>(in[4]));
  return in.size() < bytes ? 0 : bytes;
}

std::string openssl_words() {
  const unsigned long code = ERR_get_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "no reason given" : reason;
}

SSL_SESSION* make_session(SSL* ssl, const Key& key) {
  SSL_SESSION* const session = SSL_SESSION_new();
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kHandshakeSuiteId);
  if (session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, key.bytes.data(), key.bytes.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

}  // namespace

extern "C" {

// The side that connects: which key, under which name. OpenSSL copies the name.
static int parallax_tcp_use_psk(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* id_bytes,
                                SSL_SESSION** session) {
  const std::string_view text = owner_of(ssl).identity_text();
  try {
    *session = owner_of(ssl).session_to_use();
  } catch (...) {
    return 0;
  }
  *id = reinterpret_cast<const unsigned char*>(text.data());
  *id_bytes = text.size();
  return *session == nullptr ? 0 : 1;
}

// The side that listens: the key of that name. No session means that there is none.
static int parallax_tcp_find_psk(SSL* ssl, const unsigned char* id, size_t id_bytes,
                                 SSL_SESSION** session) {
  *session = nullptr;
  try {
    *session = owner_of(ssl).session_of({reinterpret_cast<const char*>(id), id_bytes});
  } catch (...) {
    return 0;
  }
  return 1;
}

}  // extern "C"

Status TcpTls::create(const Key& job_key, Find find, std::unique_ptr<TcpTls>* tls) {
  std::unique_ptr<TcpTls> made(new TcpTls(job_key, std::move(find)));
  ERR_clear_error();
  made->context_ = SSL_CTX_new(TLS_method());
  SSL_CTX* const context = made->context_;
  if (context == nullptr) return limit("open: OpenSSL made no context: " + openssl_words());
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kHandshakeSuite) != 1 ||
      (SSL_CTX_set1_groups_list(context, kHandshakeGroups) != 1 &&
       SSL_CTX_set1_groups_list(context, kHandshakeGroupsFips) != 1) ||
      SSL_CTX_set_num_tickets(context, 0) != 1) {
    return unsupported("open: this OpenSSL cannot do TLS 1.3 as transport tcp needs it: " +
                       openssl_words());
  }
  ERR_clear_error();
  // No records that only please middle boxes, no sessions kept, no key exchange by the key alone.
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_psk_use_session_callback(context, parallax_tcp_use_psk);
  SSL_CTX_set_psk_find_session_callback(context, parallax_tcp_find_psk);
  *tls = std::move(made);
  return {};
}

TcpTls::~TcpTls() { SSL_CTX_free(context_); }

TcpHandshake::TcpHandshake(const TcpTls& tls) : tls_(tls), connects_(false) { make(tls); }

TcpHandshake::TcpHandshake(const TcpTls& tls, const TcpTrust& trust)
    : tls_(tls),
      connects_(true),
      trusts_(true),
      trust_(trust),
      identity_text_(trust.identity.text()) {
  make(tls);
}

TcpHandshake::~TcpHandshake() { SSL_free(ssl_); }

void TcpHandshake::make(const TcpTls& tls) {
  ssl_ = SSL_new(tls.context());
  BIO* const from_peer = BIO_new(BIO_s_mem());
  BIO* const to_peer = BIO_new(BIO_s_mem());
  PARALLAX_CHECK(ssl_ != nullptr && from_peer != nullptr && to_peer != nullptr);
  SSL_set_bio(ssl_, from_peer, to_peer);
  SSL_set_app_data(ssl_, this);
  if (connects_) {
    SSL_set_connect_state(ssl_);
  } else {
    SSL_set_accept_state(ssl_);
  }
}

ssl_session_st* TcpHandshake::session_to_use() const {
  return make_session(ssl_, tcp_shared_key(tls_.job_key(), trust_.listener_salt, identity_text()));
}

ssl_session_st* TcpHandshake::session_of(std::string_view identity) {
  uint32_t from = 0;
  TcpTrust trust;
  if (!identity_from(identity, &from) || !tls_.find(from, &trust) ||
      trust.identity.text() != identity) {
    return nullptr;
  }
  trust_ = trust;
  trusts_ = true;
  return make_session(ssl_, tcp_shared_key(tls_.job_key(), trust.listener_salt, identity));
}

bool TcpHandshake::has_record(std::string_view in) { return record_bytes(in) > 0; }

void TcpHandshake::start(std::string* out) { (void)step(out); }

TcpHandshake::Phase TcpHandshake::advance(std::string* in, std::string* out) {
  size_t used = 0;
  while (phase_ == Phase::kTalking) {
    const std::string_view rest = std::string_view(*in).substr(used);
    const size_t bytes = record_bytes(rest);
    if (bytes == 0) break;
    PARALLAX_CHECK(BIO_write(SSL_get_rbio(ssl_), rest.data(), static_cast<int>(bytes)) ==
                   static_cast<int>(bytes));
    used += bytes;
    step(out);
  }
  in->erase(0, used);
  return phase_;
}

TcpHandshake::Phase TcpHandshake::step(std::string* out) {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  const int reason = result == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_, result);
  std::array<char, 1024> bytes;
  for (int count = 0; (count = BIO_read(SSL_get_wbio(ssl_), bytes.data(), bytes.size())) > 0;) {
    out->append(bytes.data(), static_cast<size_t>(count));
  }
  if (reason == SSL_ERROR_WANT_READ) return phase_;
  if (result != 1) return fail("TLS: " + openssl_words());
  // A session by other means than the key would be nobody's.
  if (!trusts_ || SSL_session_reused(ssl_) != 1) return fail("the peer has no key of this job");
  if (!export_secrets()) return fail("TLS: " + openssl_words());
  phase_ = Phase::kDone;
  return phase_;
}

bool TcpHandshake::export_secrets() {
  std::array<unsigned char, 2 * kKeyBytes> secrets = {};
  if (SSL_export_keying_material(ssl_, secrets.data(), secrets.size(), kExporterLabel.data(),
                                 kExporterLabel.size(), nullptr, 0, 0) != 1) {
    return false;
  }
  std::copy_n(secrets.begin(), kKeyBytes, to_listener_.bytes.begin());
  std::copy_n(secrets.begin() + kKeyBytes, kKeyBytes, from_listener_.bytes.begin());
  OPENSSL_cleanse(secrets.data(), secrets.size());
  return true;
}

TcpHandshake::Phase TcpHandshake::fail(std::string why) {
  why_ = std::move(why);
  phase_ = Phase::kFailed;
  return phase_;
}

}  // namespace parallax
