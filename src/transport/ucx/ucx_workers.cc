// SPDX-License-Identifier: Apache-2.0
// The workers of all rails as one. See ucx_workers.h.
#include "transport/ucx/ucx_workers.h"

#include <sys/epoll.h>

#include <cstring>
#include <utility>

namespace parallax {

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

// Of each rail the length, of two bytes, and UCX's own address.
std::string UcxWorkers::address() const {
  std::string address;
  for (const auto& worker : workers_) {
    const auto bytes = static_cast<uint16_t>(worker->address().size());
    address.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    address += worker->address();
  }
  return address;
}

Status UcxWorkers::read_address(const std::string& address, std::vector<std::string>* by_rail) {
  by_rail->clear();
  for (size_t at = 0; at < address.size();) {
    uint16_t bytes = 0;
    const bool has_length = address.size() - at >= sizeof bytes;
    if (has_length) std::memcpy(&bytes, address.data() + at, sizeof bytes);
    at += sizeof bytes;
    if (!has_length || bytes == 0 || bytes > address.size() - at || by_rail->size() == kRailsMax) {
      return invalid("it is cut, or of more rails than there can be");
    }
    by_rail->push_back(address.substr(at, bytes));
    at += bytes;
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
