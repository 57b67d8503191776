// SPDX-License-Identifier: Apache-2.0
// The two sides of the handshake: see the header. Pure. Every byte is a stranger's until kProven
// (server) or kDone (client).
#include "rendezvous/handshake.h"

#include <algorithm>

#include "base/check.h"
#include "base/codec.h"
#include "transport/endpoint.h"

namespace parallax {

namespace {

constexpr uint32_t kMagic = 0x4d584c50;  // "PLXM"
constexpr std::string_view kClientProof = "parallax rendezvous 1: proof of a client";
constexpr std::string_view kServerProof = "parallax rendezvous 1: proof of rank 0";
constexpr std::string_view kUpKey = "parallax rendezvous 1: frames to rank 0";
constexpr std::string_view kDownKey = "parallax rendezvous 1: frames from rank 0";

// The fields up to the host are the same in every protocol version, so that a rank of another
// version can be refused by name.
std::string encode(const Introduction& intro) {
  std::string out;
  put_number(&out, kMagic);
  put_number(&out, intro.protocol);
  put_number(&out, intro.version);
  put_number(&out, intro.rank);
  put_text(&out, intro.host, PARALLAX_NAME_MAX);
  put_number(&out, static_cast<uint8_t>(intro.secret ? 1 : 0));
  put_number(&out, intro.world);
  put_number(&out, intro.lease_ms);
  put_text(&out, intro.job, kJobNameBytesMax);
  out.append(intro.nonce);
  return out;
}

// False: not from libparallax. Of another protocol version only the constant fields are read.
bool decode(std::string_view body, Introduction* intro) {
  ByteReader reader(body);
  uint32_t magic = 0;
  uint8_t secret = 0;
  std::string_view nonce;
  if (!reader.number(&magic) || magic != kMagic || !reader.number(&intro->protocol) ||
      !reader.number(&intro->version) || !reader.number(&intro->rank) ||
      !reader.text(&intro->host, PARALLAX_NAME_MAX) || !is_printable(intro->host)) {
    return false;
  }
  if (intro->protocol != kRendezvousProtocol) return true;
  if (!reader.number(&secret) || secret > 1 || !reader.number(&intro->world) ||
      !reader.number(&intro->lease_ms) || !reader.text(&intro->job, kJobNameBytesMax) ||
      !is_printable(intro->job) || !reader.raw(kNonceBytes, &nonce) || !reader.empty()) {
    return false;
  }
  intro->secret = secret == 1;
  intro->nonce.assign(nonce);
  return true;
}

// An introduction's fixed bytes up to and with the length of the host's name, and from there up to
// and with that of the job's.
constexpr size_t kIntroHeadBytes = 4 + 2 + 4 + 4 + 2;
constexpr size_t kIntroMiddleBytes = 1 + 4 + 4 + 2;

// Whether an introduction of which `body` is there can have body_bytes in all.
bool introduction_fits(size_t body_bytes, std::string_view body) {
  ByteReader reader(body);
  std::string_view skipped;
  uint32_t magic = kMagic;
  uint16_t protocol = kRendezvousProtocol;
  uint16_t host_bytes = 0;
  uint16_t job_bytes = 0;
  if (reader.number(&magic) && magic != kMagic) return false;
  if (reader.number(&protocol) && protocol != kRendezvousProtocol) return true;  // unknown to us
  const bool host_told = reader.raw(2 * sizeof(uint32_t), &skipped) && reader.number(&host_bytes);
  const bool job_told = reader.raw(host_bytes + kIntroMiddleBytes - sizeof job_bytes, &skipped) &&
                        reader.number(&job_bytes);
  if (host_bytes > PARALLAX_NAME_MAX || job_bytes > kJobNameBytesMax) return false;
  const size_t least = kIntroHeadBytes + host_bytes + kIntroMiddleBytes + job_bytes + kNonceBytes;
  const size_t most =
      least + (host_told ? 0 : PARALLAX_NAME_MAX) + (job_told ? 0 : kJobNameBytesMax);
  return body_bytes >= least && body_bytes <= most;
}

// As above, of a status with `tail_bytes` behind it.
bool status_fits(size_t body_bytes, std::string_view body, size_t tail_bytes) {
  ByteReader reader(body);
  int32_t code = 0;
  uint16_t sentence_bytes = 0;
  const bool told = reader.number(&code) && reader.number(&sentence_bytes);
  const size_t least = sizeof code + sizeof sentence_bytes + sentence_bytes + tail_bytes;
  return body_bytes >= least && body_bytes <= least + (told ? 0 : kSentenceBytesMax);
}

// False if a frame of this kind cannot have the length that its head announces. The rest of such a
// frame would never come, and a stranger's connection would be held until its deadline.
bool length_fits(std::string_view bytes) {
  ByteReader reader(bytes);
  uint32_t body_bytes = 0;
  uint8_t kind = 0;
  if (!reader.number(&body_bytes) || !reader.number(&kind)) return true;  // not whole yet
  const std::string_view body = bytes.substr(kFrameHeadBytes);
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::kHello:
    case FrameKind::kChallenge:
      return introduction_fits(body_bytes, body);
    case FrameKind::kProof:
      return body_bytes == kMacBytes;
    case FrameKind::kWelcome:
      return status_fits(body_bytes, body, kMacBytes);
    case FrameKind::kRefusal:
      return status_fits(body_bytes, body, 0);
    default:
      return false;
  }
}

// As take_frame, of the frames of a handshake.
Took take_plain(std::string_view bytes, Frame* frame, size_t* used) {
  const Took took = take_frame(bytes, kHandshakeBodyBytesMax, frame, used);
  return took == Took::kMore && !length_fits(bytes) ? Took::kBroken : took;
}

std::string says(const Introduction& who) { return rank_name(who.rank, who.host); }

}  // namespace

std::string rank_name(uint32_t rank, const std::string& host) {
  return "rank " + std::to_string(rank) + " (host " + host + ")";
}

void put_status(std::string* out, const Status& status) {
  std::string sentence = status.message().substr(0, kSentenceBytesMax);
  std::replace_if(
      sentence.begin(), sentence.end(),
      [](char c) {
        return !is_printable({&c, 1});
      },
      ' ');
  put_number(out, static_cast<int32_t>(status.code()));
  put_text(out, sentence, kSentenceBytesMax);
}

bool take_status(std::string_view* bytes, Status* status) {
  ByteReader reader(*bytes);
  int32_t code = 0;
  uint16_t sentence_bytes = 0;
  std::string_view sentence;
  if (!reader.number(&code) || code > PARALLAX_OK || code < PARALLAX_INTERNAL ||
      !reader.number(&sentence_bytes) || sentence_bytes > kSentenceBytesMax ||
      !reader.raw(sentence_bytes, &sentence) || !is_printable(sentence) ||
      (sentence.empty() && code != PARALLAX_OK)) {
    return false;
  }
  bytes->remove_prefix(sizeof code + sizeof sentence_bytes + sentence_bytes);
  *status = Status(static_cast<parallax_status_t>(code), std::string(sentence));
  return true;
}

Handshake::Phase Handshake::fail(Status status) {
  status_ = std::move(status);
  return phase_ = Phase::kFailed;
}

// What both sides must agree on. The sentences name both ranks, since either side's user may read
// them.
Status Handshake::check_peer() const {
  const auto named = [this](Status failure, const char* field) {
    return std::move(failure).about_peer(peer_.rank, peer_.host).about_field(field);
  };
  if (peer_.protocol != self_.protocol || peer_.version != self_.version) {
    return named(
        Status(PARALLAX_MISMATCH, says(peer_) + " runs libparallax " + version_text(peer_.version) +
                                      ", " + says(self_) + " runs " + version_text(self_.version) +
                                      ": install one version on every host"),
        "version");
  }
  if (peer_.secret != self_.secret) {
    const Introduction& with = peer_.secret ? peer_ : self_;
    const Introduction& without = peer_.secret ? self_ : peer_;
    return named(invalid(says(with) + " was given a secret, " + says(without) +
                         " was not: give every rank the same one (PARALLAX_SECRET_FILE or "
                         "PARALLAX_SECRET)"),
                 "secret_file");
  }
  if (peer_.job != self_.job) {
    return named(Status(PARALLAX_MISMATCH,
                        says(peer_) + " is of job '" + peer_.job + "', " + says(self_) +
                            " of job '" + self_.job +
                            "': two jobs met at one port; name each on all its ranks, as in "
                            "tcp:HOST:PORT#NAME"),
                 "rendezvous");
  }
  if (peer_.world != self_.world) {
    return named(
        Status(PARALLAX_MISMATCH, says(peer_) + " says world " + std::to_string(peer_.world) +
                                      ", " + says(self_) + " says " + std::to_string(self_.world)),
        "world");
  }
  return {};
}

void ClientHandshake::start(std::string* out) {
  PARALLAX_CHECK(self_.nonce.size() == kNonceBytes && hello_.empty());
  hello_ = encode(self_);
  put_frame(out, FrameKind::kHello, hello_);
}

Handshake::Phase ClientHandshake::advance(std::string* in, std::string* out) {
  while (phase_ == Phase::kTalking) {
    Frame frame;
    size_t used = 0;
    const Took took = take_plain(*in, &frame, &used);
    if (took == Took::kMore) break;
    if (took == Took::kBroken) return fail(io_error("what answers there is not libparallax"));
    if (frame.kind == FrameKind::kChallenge && challenge_.empty()) {
      (void)on_challenge(frame.body, out);
    } else if (frame.kind == FrameKind::kWelcome && !challenge_.empty()) {
      (void)on_welcome(frame.body);
    } else if (frame.kind == FrameKind::kRefusal) {
      (void)on_refusal(frame.body);
    } else {
      return fail_as_stranger();
    }
    in->erase(0, used);
  }
  return phase_;
}

Handshake::Phase ClientHandshake::fail_as_stranger() {
  return fail(io_error("what answers there is not rank " + std::to_string(server_rank_) +
                       " of libparallax"));
}

Handshake::Phase ClientHandshake::on_challenge(std::string_view body, std::string* out) {
  if (!decode(body, &peer_) || peer_.rank != server_rank_) {
    return fail_as_stranger();
  }
  const Status agreed = check_peer();
  if (!agreed.ok()) return fail(agreed);
  challenge_.assign(body);
  proof_ = hmac(derive_key(job_key_.view(), kClientProof), hello_, challenge_);
  put_frame(out, FrameKind::kProof, proof_);
  return phase_;
}

Handshake::Phase ClientHandshake::on_welcome(std::string_view body) {
  std::string_view rest = body;
  Status said;
  if (!take_status(&rest, &said) || rest.size() != kMacBytes) {
    return fail(io_error("rank " + std::to_string(server_rank_) + "'s welcome is garbled"));
  }
  const std::string_view signed_part = body.substr(0, body.size() - kMacBytes);
  const std::string expected =
      hmac(derive_key(job_key_.view(), kServerProof), session() + proof_, signed_part);
  if (!same_bytes(expected, rest)) {
    return fail(invalid("what answers there as " + says(peer_) + " does not know the secret"));
  }
  if (!said.ok()) return fail(said);
  return phase_ = Phase::kDone;
}

// A refusal is not authenticated. It can do no more than end this rank's attempt, which closing the
// connection would do as well.
Handshake::Phase ClientHandshake::on_refusal(std::string_view body) {
  Status said;
  if (!take_status(&body, &said) || !body.empty() ||
      (said.code() != PARALLAX_INVALID && said.code() != PARALLAX_MISMATCH)) {
    return fail_as_stranger();
  }
  return fail(said);
}

Channel ClientHandshake::channel() const {
  PARALLAX_CHECK(phase_ == Phase::kDone);
  return Channel(derive_key(job_key_.view(), kUpKey, session()),
                 derive_key(job_key_.view(), kDownKey, session()));
}

Handshake::Phase ServerHandshake::advance(std::string* in, std::string* out) {
  while (phase_ == Phase::kTalking) {
    Frame frame;
    size_t used = 0;
    const Took took = take_plain(*in, &frame, &used);
    if (took == Took::kMore) break;
    if (took == Took::kFrame && frame.kind == FrameKind::kHello && hello_.empty()) {
      (void)on_hello(frame.body, out);
    } else if (took == Took::kFrame && frame.kind == FrameKind::kProof && !hello_.empty()) {
      (void)on_proof(frame.body, out);
    } else {
      return fail(io_error("bytes that are no rank's"));
    }
    in->erase(0, used);
  }
  return phase_;
}

Handshake::Phase ServerHandshake::refuse(Status status, std::string* out) {
  std::string body;
  put_status(&body, status);
  put_frame(out, FrameKind::kRefusal, body);
  return fail(std::move(status));
}

Handshake::Phase ServerHandshake::on_hello(std::string_view body, std::string* out) {
  PARALLAX_CHECK(self_.nonce.size() == kNonceBytes);
  if (!decode(body, &peer_)) return fail(io_error("bytes that are no rank's"));
  const Status agreed = check_peer();
  if (!agreed.ok()) return refuse(agreed, out);
  if (peer_.rank == 0 || peer_.rank >= self_.world) {
    return refuse(invalid(says(peer_) + " came to the rendezvous of " + says(self_) +
                          ": two ranks have one number, or it is past the world of " +
                          std::to_string(self_.world)),
                  out);
  }
  hello_.assign(body);
  challenge_ = encode(self_);
  put_frame(out, FrameKind::kChallenge, challenge_);
  return phase_;
}

Handshake::Phase ServerHandshake::on_proof(std::string_view body, std::string* out) {
  const std::string expected = hmac(derive_key(job_key_.view(), kClientProof), session());
  if (!same_bytes(expected, body)) {
    return refuse(
        invalid("wrong secret: what " + says(peer_) + " was given is not what " + says(self_) +
                " has (PARALLAX_SECRET_FILE, PARALLAX_SECRET or the "
                "unique id)"),
        out);
  }
  proof_.assign(body);
  return phase_ = Phase::kProven;
}

Handshake::Phase ServerHandshake::welcome(const Status& status, std::string* out) {
  PARALLAX_CHECK(phase_ == Phase::kProven);
  std::string body;
  put_status(&body, status);
  body.append(hmac(derive_key(job_key_.view(), kServerProof), session() + proof_, body));
  put_frame(out, FrameKind::kWelcome, body);
  if (!status.ok()) return fail(status);
  return phase_ = Phase::kDone;
}

Channel ServerHandshake::channel() const {
  PARALLAX_CHECK(phase_ == Phase::kDone);
  return Channel(derive_key(job_key_.view(), kDownKey, session()),
                 derive_key(job_key_.view(), kUpKey, session()));
}

}  // namespace parallax
