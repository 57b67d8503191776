// SPDX-License-Identifier: Apache-2.0
// C ABI: streams of devices that wait for requests. Contracts in parallax.h.
#include <array>
#include <span>

#include "capi/boundary.h"
#include "capi/waited_requests.h"

namespace parallax {

namespace {

// Asks for the order of requests with a stream, and takes the questions back on every way out: a
// request that is waited for otherwise is awaited() once it is done.
class StreamOrder {
 public:
  StreamOrder(const WaitedRequests& waited, uint32_t device, void* stream)
      : waited_(waited), device_(device), stream_(stream) {
    for (Request* each : waited.all()) pending_[count_++] = each;
  }
  ~StreamOrder() {
    if (!asked_) return;
    waited_.job().progress().with_groups([this](const JobGroups&) {
      for (Request* each : waited_.all()) each->waiter.order = Order::kNotAsked;
    });
  }
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // Those that are not done and that the stream does not wait for yet.
  std::span<Request* const> pending() const { return {pending_.data(), count_}; }
  // Makes the stream wait for what it can.
  Status follow() {
    size_t left = 0;
    for (Request* each : pending()) {
      bool followed = each->done();
      if (!followed) {
        const auto ask = [&](Engine& engine) {
          return engine.step_calls().follow(*each, device_, stream_, &followed);
        };
        PARALLAX_RETURN_IF_ERROR(waited_.job().progress().call(each->group, ask));
      }
      asked_ = asked_ || !followed;
      if (!followed) pending_[left++] = each;
    }
    count_ = left;
    return {};
  }

 private:
  const WaitedRequests& waited_;
  const uint32_t device_;
  void* const stream_;
  std::array<Request*, PARALLAX_REQUESTS_MAX> pending_;
  size_t count_ = 0;
  bool asked_ = false;
};

Status stream_wait(parallax_request_t* const* requests, size_t count, uint32_t device, void* stream,
                   int64_t timeout_ms) {
  if (count == 0) return {};
  WaitedRequests waited("stream_wait");
  PARALLAX_RETURN_IF_ERROR(waited.take(requests, count, timeout_ms));
  Job& job = waited.job();
  const Status open = job.devices().open_for_stream(device);
  if (!open.ok()) return open.prefixed("stream_wait: ").about_field("device");
  const int64_t until_ns = job.clock().now_ns() + waited.timeout_ns();
  StreamOrder order(waited, device, stream);
  while (true) {
    const Status followed = order.follow();
    if (!followed.ok()) return followed.prefixed("stream_wait: ").about_field("stream");
    if (order.pending().empty()) break;
    // One whose order was there may have failed since: it is asked again, or done.
    const int64_t left_ns = until_ns - job.clock().now_ns();
    if (job.progress().wait_for(order.pending(), left_ns)) continue;
    PARALLAX_RETURN_IF_ERROR(waited.missing(order.pending()));
  }
  return waited.outcome();
}

}  // namespace

}  // namespace parallax

extern "C" parallax_status_t parallax_stream_wait(parallax_request_t* const* requests, size_t count,
                                                  uint32_t device, void* stream,
                                                  int64_t timeout_ms) {
  return parallax::guarded("stream_wait", [&] {
    return parallax::stream_wait(requests, count, device, stream, timeout_ms);
  });
}
