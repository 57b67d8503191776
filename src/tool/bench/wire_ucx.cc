// SPDX-License-Identifier: Apache-2.0
// UCX through the module that the library uses, without the library's engine above it: messages are
// cut to what the module carries, and copied to where they belong as they arrive.
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "job/network_choice.h"
#include "tool/bench/wire_way.h"
#include "tool/hex.h"
#include "transport/module/loader.h"

namespace parallax::tool::bench {

namespace {

constexpr int kSpinsMax = 2000;  // polls that find nothing, before it blocks
constexpr int kBlockMs = 10;     // at a time
constexpr int64_t kWireMs = 20'000;

class UcxWay final : public MessageWay, private Receiver {
 public:
  UcxWay(const WireContext& context, std::unique_ptr<NetworkTransport> transport)
      : peer_(1 - context.group.rank()),
        timeout_ms_(context.timeout_ms),
        transport_(std::move(transport)) {}

  std::string description() const override {
    const std::string way = transport_->way_to(peer_).text;
    return transport_->description() + (way.empty() ? "" : ": " + way);
  }

  Status wire(const std::string& address) {
    PARALLAX_RETURN_IF_ERROR(transport_->connect(peer_, address));
    uint32_t missing = 0;
    return transport_->wire({&peer_, 1}, deadline_ns(kWireMs), &missing);
  }

 private:
  Status send(std::span<const std::byte> message) override {
    const size_t piece_bytes = transport_->message_bytes_max();
    for (size_t at = 0; at < message.size(); at += piece_bytes) {
      const Segment piece = {.data = message.data() + at,
                             .bytes = std::min(piece_bytes, message.size() - at)};
      PARALLAX_RETURN_IF_ERROR(wait([&] { return transport_->writable(peer_); }));
      PARALLAX_RETURN_IF_ERROR(transport_->send(peer_, {&piece, 1}, 0));
      ++in_flight_;
    }
    return {};
  }

  // What arrives before it is asked for waits in `early_`, bounded by the sender's credits.
  Status receive(std::span<std::byte> message) override {
    const size_t early = std::min(early_.size() - early_read_, message.size());
    std::copy_n(early_.begin() + static_cast<ptrdiff_t>(early_read_), early, message.begin());
    early_read_ += early;
    if (early_read_ == early_.size()) {
      early_.clear();
      early_read_ = 0;
    }
    wanted_ = message.subspan(early);
    return wait([&] { return wanted_.empty(); });
  }

  Status flush() override {
    return wait([&] { return in_flight_ == 0; });
  }

  template <typename Condition>
  Status wait(Condition done) {
    if (done()) return {};
    const int64_t until_ns = deadline_ns(timeout_ms_);
    int idle = 0;
    while (!done()) {
      if (!lost_.empty()) return peer_lost("ucx: " + lost_);
      if (transport_->poll(*this)) {
        idle = 0;
        continue;
      }
      if (++idle < kSpinsMax) {
        if (idle % 64 == 0) sched_yield();
        continue;
      }
      if (clock_.now_ns() > until_ns)
        return timed_out("ucx: the other rank did not answer in time");
      if (!transport_->arm()) continue;
      pollfd waited = {.fd = transport_->wait_fd(), .events = POLLIN, .revents = 0};
      (void)poll(&waited, 1, kBlockMs);
    }
    return {};
  }

  void on_message(uint32_t, std::span<const std::byte> message) override {
    const size_t direct = std::min(message.size(), wanted_.size());
    if (direct > 0) std::memcpy(wanted_.data(), message.data(), direct);
    wanted_ = wanted_.subspan(direct);
    early_.insert(early_.end(), message.begin() + static_cast<ptrdiff_t>(direct), message.end());
  }
  void on_sent(uint64_t) override { --in_flight_; }
  void on_lost(uint32_t, Loss, std::string_view why) override { lost_ = why; }

  int64_t deadline_ns(int64_t left_ms) const {
    return clock_.now_ns() + left_ms * kNanosecondsPerMillisecond;
  }

  const SteadyClock clock_;
  const uint32_t peer_;
  const int64_t timeout_ms_;
  std::unique_ptr<NetworkTransport> transport_;
  uint64_t in_flight_ = 0;
  std::span<std::byte> wanted_;
  std::vector<std::byte> early_;
  size_t early_read_ = 0;
  std::string lost_;
};

// The device and the transports of UCX that a job of these two ranks would have.
Status choose_as_a_job(const WireContext& context, NetworkChoice* choice) {
  const std::string& transport = context.settings.value("transport").text;
  const SettingValue& device = context.settings.value("net_device");
  parallax_options_t asked = {};
  if (!device.text.empty()) asked.net_device = device.text.c_str();
  return choose_network(
      {.carrier = transport == "rdma" ? NetworkCarrier::kRdma : NetworkCarrier::kUcx,
       .options = &asked,
       .net_device_where = device.where,
       .rails = context.settings.value("rails").text,
       .one_machine = context.one_machine},
      choice);
}

Status open_transport(const WireContext& context, std::unique_ptr<NetworkTransport>* transport) {
  const ParallaxTransportModule* module = nullptr;
  ModuleReport report;
  PARALLAX_RETURN_IF_ERROR(
      load_ucx_module(context.settings.value("module_dir").text, &module, &report));
  NetworkOptions options;
  options.rank = context.group.rank();
  options.world = context.group.world();
  NetworkChoice choice;
  PARALLAX_RETURN_IF_ERROR(choose_as_a_job(context, &choice));
  options.net_device = choice.device;
  options.transports = choice.transports;
  return module->create(options, transport);
}

}  // namespace

Status make_ucx_way(const WireContext& context, std::unique_ptr<RawWay>* way) {
  std::unique_ptr<NetworkTransport> transport;
  const Status opened = open_transport(context, &transport);
  std::string other;
  PARALLAX_RETURN_IF_ERROR(exchange_cards(
      context.group, opened.ok() ? hex_of(transport->address()) : std::string(), &other));
  PARALLAX_RETURN_IF_ERROR(opened);
  if (other.empty()) return unsupported("the other rank has no UCX");
  std::string address;
  if (!bytes_of(other, &address)) return invalid("the other rank gave no address of UCX");
  auto made = std::make_unique<UcxWay>(context, std::move(transport));
  PARALLAX_RETURN_IF_ERROR(made->wire(address));
  *way = std::move(made);
  return {};
}

}  // namespace parallax::tool::bench
