// SPDX-License-Identifier: Apache-2.0
// UcxWorker: owns a UCP context and its one worker, configured for active messages that are always
// whole in their callback. Used by one owner at a time; create() may block for some milliseconds in
// the kernel, nothing else here blocks.
#ifndef PARALLAX_TRANSPORT_UCX_UCX_WORKER_H_
#define PARALLAX_TRANSPORT_UCX_UCX_WORKER_H_

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/module/network_transport.h"

namespace parallax {

// What UCX may choose from.
struct UcxNames {
  std::string transports, device, description;
};

class UcxWorker {
 public:
  // Beside `others` workers of this rank, which lock memory as it does. INVALID: no such device.
  // IO: UCX found nothing usable, with its word for it. LIMIT.
  static Status create(const NetworkOptions& options, size_t others,
                       std::unique_ptr<UcxWorker>* worker);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h get() const { return worker_; }
  ucp_context_h context() const { return context_; }
  // It is of an RDMA device, and may write into memory of peers.
  bool writes_by_device() const { return writes_by_device_; }
  int wait_fd() const { return wait_fd_; }
  const std::string& address() const { return address_; }
  // What UCX may take: "rc,dc,ud on mlx5_0:1". What it took each connection has (ucx_lanes.h).
  const std::string& description() const { return taken_from_.description; }
  const std::string& device() const { return taken_from_.device; }  // empty: any
  bool may_take_rc() const;

  // Keeps a worker as it is until the process ends, unused: UCX would end the process on the way.
  static void abandon(std::unique_ptr<UcxWorker> worker);

  // Ends the worker, and leaves its context. What is under way completes here, by its callbacks.
  void end();

  Status on_active_message(unsigned id, ucp_am_recv_callback_t callback, void* argument);

 private:
  UcxWorker() = default;
  Status open_context(const NetworkOptions& options);
  Status open_worker();

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int wait_fd_ = -1;  // owned by the worker
  bool writes_by_device_ = false;
  std::string address_;
  UcxNames taken_from_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_UCX_WORKER_H_
