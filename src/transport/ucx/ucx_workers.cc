// SPDX-License-Identifier: Apache-2.0
// The workers of all rails as one. See ucx_workers.h.
#include "transport/ucx/ucx_workers.h"

#include <sys/epoll.h>

#include <cstring>
#include <utility>

namespace parallax {

namespace {

constexpr size_t kDeviceBytesMax = 64;

// Of one device, and such that it can be printed as it is.
bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kDeviceBytesMax &&
         text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
             "_-.:@") == std::string::npos;
}

}  // namespace

Status UcxWorkers::create(const NetworkOptions& options, std::unique_ptr<UcxWorkers>* workers) {
  if (options.more_devices.size() >= kRailsMax) {
    return invalid("a rank has at most " + std::to_string(kRailsMax) + " rails");
  }
  std::unique_ptr<UcxWorkers> made(new UcxWorkers);
  made->workers_.resize(1);
  made->devices_ = {options.net_device};
  PARALLAX_RETURN_IF_ERROR(UcxWorker::create(options, 0, &made->workers_[0]));
  PARALLAX_RETURN_IF_ERROR(made->add_rails(options));
  PARALLAX_RETURN_IF_ERROR(made->watch_all());
  *workers = std::move(made);
  return {};
}

Status UcxWorkers::add_rails(const NetworkOptions& options) {
  for (const std::string& device : options.more_devices) {
    NetworkOptions own = options;
    own.net_device = device;
    std::unique_ptr<UcxWorker> worker;
    const Status opened = UcxWorker::create(own, workers_.size(), &worker);
    if (opened.ok()) {
      workers_.push_back(std::move(worker));
      devices_.push_back(device);
    } else if (options.more_devices_asked) {
      return opened;
    } else {
      left_out_ += "; " + device + " is left out: " + opened.message();
    }
  }
  return {};
}

Status UcxWorkers::watch_all() {
  if (workers_.size() == 1) return {};
  any_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!any_.valid()) return io_error("UCX: no descriptor to wait for several workers by");
  for (const auto& worker : workers_) {
    epoll_event event = {.events = EPOLLIN, .data = {.fd = worker->wait_fd()}};
    if (epoll_ctl(any_.get(), EPOLL_CTL_ADD, worker->wait_fd(), &event) != 0) {
      return io_error("UCX: its event descriptor cannot be waited for beside others");
    }
  }
  return {};
}

std::vector<ucp_context_h> UcxWorkers::contexts() const {
  std::vector<ucp_context_h> contexts;
  for (const auto& worker : workers_) contexts.push_back(worker->context());
  return contexts;
}

unsigned UcxWorkers::progress() {
  unsigned count = 0;
  for (size_t rail = workers_.size(); rail-- > 0;) {
    count += ucp_worker_progress(workers_[rail]->get());
  }
  return count;
}

bool UcxWorkers::arm() {
  for (const auto& worker : workers_) {
    if (ucp_worker_arm(worker->get()) != UCS_OK) return false;
  }
  return true;
}

// Of each rail the length, of two bytes, of UCX's own address, and that; then the length, of one
// byte, of the device's name, and that.
std::string UcxWorkers::address() const {
  std::string address;
  for (const auto& worker : workers_) {
    const auto bytes = static_cast<uint16_t>(worker->address().size());
    address.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    address += worker->address();
    const std::string device = is_name(worker->device()) ? worker->device() : std::string();
    address += static_cast<char>(device.size());
    address += device;
  }
  return address;
}

Status UcxWorkers::read_address(const std::string& address, std::vector<RailAddress>* by_rail) {
  by_rail->clear();
  for (size_t at = 0; at < address.size();) {
    uint16_t bytes = 0;
    const bool has_length = address.size() - at >= sizeof bytes;
    if (has_length) std::memcpy(&bytes, address.data() + at, sizeof bytes);
    at += sizeof bytes;
    if (!has_length || bytes == 0 || bytes > address.size() - at || by_rail->size() == kRailsMax) {
      return invalid("it is cut, or of more rails than there can be");
    }
    RailAddress rail = {.address = address.substr(at, bytes), .device = {}};
    at += bytes;
    const size_t name_bytes = at < address.size() ? static_cast<uint8_t>(address[at]) : SIZE_MAX;
    if (name_bytes > kDeviceBytesMax || ++at + name_bytes > address.size()) {
      return invalid("it is cut, or the name of a device is too long");
    }
    rail.device = address.substr(at, name_bytes);
    if (!rail.device.empty() && !is_name(rail.device)) return invalid("a device without a name");
    at += name_bytes;
    by_rail->push_back(std::move(rail));
  }
  return by_rail->empty() ? invalid("it is empty") : Status();
}

std::string UcxWorkers::description() const {
  std::string text = first().description();
  for (size_t rail = 1; rail < devices_.size(); ++rail) {
    text += (rail == 1 ? ", pieces over " : ", ") + devices_[rail];
  }
  return text + (devices_.size() > 1 ? " too" : "") + left_out_;
}

void UcxWorkers::end() {
  for (const auto& worker : workers_) worker->end();
}

void UcxWorkers::abandon(std::unique_ptr<UcxWorkers> workers) {
  for (auto& worker : workers->workers_) UcxWorker::abandon(std::move(worker));
}

}  // namespace parallax
