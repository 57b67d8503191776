// SPDX-License-Identifier: Apache-2.0
// Frames, plain and sealed: see the header. Pure.
#include "rendezvous/frame.h"

#include "base/check.h"
#include "base/codec.h"

namespace parallax {

void put_frame(std::string* out, FrameKind kind, std::string_view body) {
  put_number(out, static_cast<uint32_t>(body.size()));
  put_number(out, static_cast<uint8_t>(kind));
  out->append(body);
}

Took take_frame(std::string_view bytes, size_t body_bytes_max, Frame* frame, size_t* used) {
  ByteReader reader(bytes);
  uint32_t body_bytes = 0;
  uint8_t kind = 0;
  if (!reader.number(&body_bytes)) return Took::kMore;
  if (body_bytes > body_bytes_max) return Took::kBroken;
  if (!reader.number(&kind) || !reader.raw(body_bytes, &frame->body)) return Took::kMore;
  frame->kind = static_cast<FrameKind>(kind);
  *used = kFrameHeadBytes + body_bytes;
  return Took::kFrame;
}

void Channel::seal(FrameKind kind, std::string_view body, std::string* out) {
  PARALLAX_CHECK(body.size() <= kSealedBodyBytesMax);
  std::string number;
  put_number(&number, sent_count_++);
  const size_t start = out->size();
  put_frame(out, kind, body);
  out->append(hmac(send_, number, std::string_view(*out).substr(start)));
}

Took Channel::open(std::string_view bytes, Frame* frame, size_t* used) {
  if (broken_) return Took::kBroken;
  const Took took = take_frame(bytes, kSealedBodyBytesMax, frame, used);
  broken_ = took == Took::kBroken;
  if (took != Took::kFrame) return took;
  if (bytes.size() - *used < kMacBytes) return Took::kMore;
  std::string number;
  put_number(&number, received_count_);
  broken_ =
      !same_bytes(hmac(receive_, number, bytes.substr(0, *used)), bytes.substr(*used, kMacBytes));
  if (broken_) return Took::kBroken;
  ++received_count_;
  *used += kMacBytes;
  return Took::kFrame;
}

}  // namespace parallax
