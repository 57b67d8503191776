// SPDX-License-Identifier: Apache-2.0
// Starting and completing barriers and broadcasts. See collective_calls.h.
#include "engine/collective_calls.h"

#include <new>
#include <utility>

#include "base/byte_range.h"
#include "base/check.h"
#include "engine/collective_checks.h"

namespace parallax {

Status CollectiveCalls::barrier(Request** request) {
  PARALLAX_RETURN_IF_ERROR(phase_.check_running("barrier"));
  TakenRequest taken(requests_);
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kBarrier, 0));
  barriers_.push(&*taken);
  *request = taken.keep();
  return {};
}

Status CollectiveCalls::advance() {
  if (out_of_place_) return limit("collective: out of memory, and none to tell the others by");
  advance_barrier();
  rounds_.advance();
  PARALLAX_RETURN_IF_ERROR(rounds_.check_leaving(phase_.closing()));
  return advance_broadcast();
}

Status CollectiveCalls::collective(const parallax_collective_t& call, Request** request) {
  PARALLAX_RETURN_IF_ERROR(phase_.check_running("collective"));
  try {
    return post(call, request);
  } catch (const std::bad_alloc&) {
    return refuse_for_memory(call.tag);
  }
}

// All or nothing of it: what throws has taken no place.
Status CollectiveCalls::post(const parallax_collective_t& call, Request** request) {
  Collective what;
  Status fits = check_collective(call, columns_.rank(), columns_.world(), &what);
  if (!fits.ok()) return rounds_.refuse(call.tag, std::move(fits));
  const auto send = ByteRange::at(what.send, what.send_bytes);
  const auto recv = ByteRange::at(what.recv, what.recv_bytes);
  PARALLAX_RETURN_IF_ERROR(rounds_.post(std::move(what), call.tag, request));
  (*request)->send = send;
  (*request)->recv = recv;
  return {};
}

// It keeps its place among the others all the same. Where there is not even memory for that, the
// next pass fails the job: the ranks would be out of step with each other.
Status CollectiveCalls::refuse_for_memory(uint64_t tag) {
  try {
    return rounds_.refuse(tag, limit("collective: out of memory; nothing of it was exchanged"));
  } catch (const std::bad_alloc&) {
    out_of_place_ = true;
    throw;
  }
}

void CollectiveCalls::advance_barrier() {
  TreeSync& tree = trees_[TreeKind::kBarrier];
  if (!tree.joined()) {
    if (barriers_.empty()) return;
    tree.join();
  }
  if (!tree.take_complete()) return;
  if (trees_.pass_on(TreeKind::kBarrier, {})) PARALLAX_CHECK(on_barrier_answer({}));
}

bool CollectiveCalls::on_barrier_answer(std::span<const std::byte> payload) {
  // This rank joined because of a barrier, and is answered once.
  PARALLAX_CHECK(!barriers_.empty());
  barriers_.finish_front({});
  return payload.empty();
}

Status CollectiveCalls::broadcast(std::byte* buffer, uint64_t bytes, uint32_t root,
                                  Request** request) {
  PARALLAX_RETURN_IF_ERROR(phase_.check_running("broadcast"));
  constexpr uint64_t kBroadcastBytesMax = 1ull << 40;
  if (root >= columns_.world()) {
    return invalid("broadcast: root is " + std::to_string(root) + ", the job has " +
                   std::to_string(columns_.world()) + " ranks")
        .about_field("root");
  }
  if (bytes > kBroadcastBytesMax)
    return invalid("broadcast: more than 2^40 bytes; cut it up").about_field("bytes");
  if (buffer == nullptr && bytes > 0)
    return invalid("broadcast: buffer is null").about_field("buffer");
  TakenRequest taken(requests_);
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kBroadcast, 0));
  taken->root = root;
  taken->buffer = {buffer, bytes};
  broadcasts_.push(&*taken);
  *request = taken.keep();
  return {};
}

Status CollectiveCalls::advance_broadcast() {
  const auto mismatch = [this] {
    return exchange_.mismatch().empty() ? Status()
                                        : Status(PARALLAX_MISMATCH, exchange_.mismatch());
  };
  PARALLAX_RETURN_IF_ERROR(mismatch());  // also of one that is complete here
  while (!broadcasts_.empty()) {
    Request& first = broadcasts_.front();
    if (!first.started) {
      first.started = true;
      exchange_.start(first.root, first.buffer.data(), first.buffer.size());
    }
    PARALLAX_RETURN_IF_ERROR(mismatch());
    if (!exchange_.finished()) return {};
    exchange_.finish();
    broadcasts_.finish_front({});
  }
  return {};
}

void CollectiveCalls::finish_all(const Status& status) {
  barriers_.finish_all(status);
  broadcasts_.finish_all(status);
  rounds_.finish_all(status);
}

}  // namespace parallax
