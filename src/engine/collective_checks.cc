// SPDX-License-Identifier: Apache-2.0
// Fields, sizes and buffers of a collective. See collective_checks.h.
#include "engine/collective_checks.h"

#include <string>

#include "base/not_yet.h"
#include "collectives/collective_report.h"

namespace parallax {

namespace {

constexpr uint64_t kBytesMax = 1ull << 40;  // of a buffer

struct Buffer {
  const std::byte* bytes = nullptr;
  uint64_t count = 0;  // of bytes
  bool overlaps(const Buffer& other) const {
    const auto first = reinterpret_cast<uintptr_t>(bytes);
    const auto other_first = reinterpret_cast<uintptr_t>(other.bytes);
    return count > 0 && other.count > 0 && first < other_first + other.count &&
           other_first < first + count;
  }
};

class Checks {
 public:
  Checks(const parallax_collective_t& call, Collective* out) : call_(call), out_(*out) {}

  Status run() {
    PARALLAX_RETURN_IF_ERROR(check_fields());
    PARALLAX_RETURN_IF_ERROR(take_counts());
    out_.send = static_cast<const std::byte*>(call_.send);
    out_.recv = static_cast<std::byte*>(call_.recv);
    return check_buffers();
  }

 private:
  static Status wrong(const char* field, const std::string& what) {
    return invalid(std::string("collective: ") + what).about_field(field);
  }
  bool is(uint32_t kind) const { return call_.kind == kind; }

  Status check_fields() {
    PARALLAX_RETURN_IF_ERROR(
        refuse_not_yet("collective: ", {{"memory", call_.memory != PARALLAX_MEMORY_HOST},
                                        {"device", call_.device != 0},
                                        {"stream", call_.stream != nullptr}}));
    if (!is_collective_kind(call_.kind)) {
      return wrong("kind", "kind is " + std::to_string(call_.kind) +
                               "; it must be a parallax_collective_kind_t");
    }
    if (combines(call_.kind) && call_.dtype == PARALLAX_BYTES) {
      return wrong("dtype", std::string("dtype is PARALLAX_BYTES, which ") +
                                collective_name(call_.kind) +
                                " cannot combine; give the numbers' own dtype");
    }
    if (!is_copied_dtype(call_.dtype)) {
      return wrong("dtype",
                   "dtype is " + std::to_string(call_.dtype) + "; it must be a parallax_dtype_t");
    }
    out_.terms.kind = static_cast<uint8_t>(call_.kind);
    out_.terms.dtype = static_cast<uint8_t>(call_.dtype);
    if (combines(call_.kind)) PARALLAX_RETURN_IF_ERROR(check_op());
    if (!has_root(call_.kind)) return {};
    if (call_.root >= out_.world) {
      return wrong("root", "root is " + std::to_string(call_.root) + ", the job has " +
                               std::to_string(out_.world) + " ranks");
    }
    out_.terms.root = call_.root;
    return {};
  }

  Status check_op() {
    if (call_.op > PARALLAX_OP_XOR) {
      return wrong("op", "op is " + std::to_string(call_.op) + "; it must be a parallax_op_t");
    }
    const bool bits = call_.op >= PARALLAX_OP_AND;
    if (bits && is_floating(call_.dtype)) {
      return wrong("op", std::string("op is of integers, dtype is ") + dtype_name(call_.dtype));
    }
    if (call_.op == PARALLAX_OP_MEAN && !is_floating(call_.dtype)) {
      return wrong("op", std::string("op is MEAN, dtype is ") + dtype_name(call_.dtype) +
                             "; sum integers, and divide as you like");
    }
    out_.terms.op = static_cast<uint8_t>(call_.op);
    return {};
  }

  // What a buffer may hold: no sum of counts wraps.
  uint64_t elements_max() const { return kBytesMax / bytes_of_dtype(call_.dtype); }

  Status take_counts() {
    uint64_t received = call_.count;
    if (is(PARALLAX_ALLTOALLV) || is(PARALLAX_ALLGATHERV)) {
      PARALLAX_RETURN_IF_ERROR(
          take(call_.recv_counts, "recv_counts", &out_.recv_counts, &received));
    }
    if (is(PARALLAX_ALLTOALLV)) {
      uint64_t sent = 0;
      PARALLAX_RETURN_IF_ERROR(take(call_.send_counts, "send_counts", &out_.send_counts, &sent));
      if (out_.send_counts[out_.rank] != out_.recv_counts[out_.rank]) {
        return wrong("recv_counts", "send_counts and recv_counts differ for this rank itself");
      }
      sent_ = sent;
      received_ = received;
      return {};
    }
    if (is(PARALLAX_ALLGATHERV)) {
      if (call_.count != out_.recv_counts[out_.rank]) {
        return wrong("count", "count is " + std::to_string(call_.count) +
                                  ", recv_counts of this rank itself " +
                                  std::to_string(out_.recv_counts[out_.rank]));
      }
      out_.terms.counts_digest = digest_of(out_.recv_counts);
    }
    out_.terms.count = received;
    const bool of_each =
        is(PARALLAX_ALLGATHER) || is(PARALLAX_GATHER) || is(PARALLAX_REDUCE_SCATTER);
    if (received > elements_max() / (of_each ? out_.world : 1)) {
      return wrong("count", "count is " + std::to_string(received) +
                                ": more than 2^40 bytes in all; cut it up");
    }
    sent_ = is(PARALLAX_REDUCE_SCATTER) ? received * out_.world : call_.count;
    if (is(PARALLAX_BROADCAST) && out_.rank != call_.root) sent_ = 0;
    received_ = out_.terms.elements(out_.world);
    if (is(PARALLAX_REDUCE_SCATTER)) received_ = received;
    const bool elsewhere = is(PARALLAX_REDUCE) || is(PARALLAX_GATHER);
    if (elsewhere && out_.rank != call_.root) received_ = 0;
    return {};
  }

  Status take(const uint64_t* counts, const char* name, std::vector<uint64_t>* out,
              uint64_t* sum) const {
    if (counts == nullptr) return wrong(name, std::string(name) + " is null");
    if (reinterpret_cast<uintptr_t>(counts) % alignof(uint64_t) != 0) {
      return wrong(name, std::string(name) + " is not aligned to " +
                             std::to_string(alignof(uint64_t)) + " bytes");
    }
    out->assign(counts, counts + out_.world);
    *sum = 0;
    for (const uint64_t count : *out) {
      if (count > elements_max() - *sum) {
        return wrong(name, std::string(name) + ": more than 2^40 bytes in all; cut it up");
      }
      *sum += count;
    }
    return {};
  }

  Status check_buffers() {
    const uint64_t bytes = bytes_of_dtype(call_.dtype);
    const Buffer send = {out_.send, sent_ * bytes};
    Buffer recv = {out_.recv, received_ * bytes};
    if (send.count > 0 && send.bytes == nullptr) return wrong("send", "send is null");
    const bool may_lack = is(PARALLAX_BROADCAST) && out_.rank == call_.root;
    if (recv.count > 0 && recv.bytes == nullptr) {
      if (!may_lack) return wrong("recv", "recv is null");
      recv.count = 0;
    }
    if (recv.count == 0) out_.recv = nullptr;
    out_.send_bytes = send.count;
    out_.recv_bytes = recv.count;
    if (!send.overlaps(recv) || in_place(send, recv, bytes)) return {};
    return wrong("recv", "send and recv overlap, other than in place (see parallax_collective)");
  }

  bool in_place(const Buffer& send, const Buffer& recv, uint64_t bytes) const {
    switch (call_.kind) {
      case PARALLAX_REDUCE_SCATTER:
        return recv.bytes >= send.bytes && recv.bytes + recv.count <= send.bytes + send.count;
      case PARALLAX_ALLTOALLV:
        return false;
      case PARALLAX_ALLGATHER:
      case PARALLAX_ALLGATHERV:
      case PARALLAX_GATHER:
        return send.bytes == recv.bytes + out_.given_by(out_.rank).first * bytes;
      default:
        return send.bytes == recv.bytes;
    }
  }

  const parallax_collective_t& call_;
  Collective& out_;
  uint64_t sent_ = 0;  // numbers of send and recv here
  uint64_t received_ = 0;
};

}  // namespace

Status check_collective(const parallax_collective_t& call, uint32_t rank, uint32_t world,
                        Collective* out) {
  out->rank = rank;
  out->world = world;
  return Checks(call, out).run();
}

}  // namespace parallax
