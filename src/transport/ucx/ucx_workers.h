// SPDX-License-Identifier: Apache-2.0
// UcxWorkers: the workers of one transport, one for each of its rails: the first carries every
// message, the others what is placed in peers' memory. Each has a context of its own, since UCX
// 1.13 hangs with several RDMA devices in one. Threads and blocking as UcxWorker.
#ifndef PARALLAX_TRANSPORT_UCX_UCX_WORKERS_H_
#define PARALLAX_TRANSPORT_UCX_UCX_WORKERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/module/network_transport.h"
#include "transport/ucx/ucx_worker.h"

namespace parallax {

struct RailAddress {
  std::string address;  // UCX's own
  std::string device;   // "mlx5_0:1", printable; empty: not one alone
};

class UcxWorkers {
 public:
  // As UcxWorker::create. A rail beyond the first that does not open is left out, unless it was
  // asked for: then its error.
  static Status create(const NetworkOptions& options, std::unique_ptr<UcxWorkers>* workers);

  size_t count() const { return workers_.size(); }  // at least 1
  UcxWorker& at(size_t rail) const { return *workers_[rail]; }
  // As it was named; empty: UCX's own choice.
  const std::string& device(size_t rail) const { return devices_[rail]; }
  UcxWorker& first() const { return *workers_[0]; }
  std::vector<ucp_context_h> contexts() const;

  // Of all. Messages last: what a rail has to tell is told before the goodbye behind it.
  unsigned progress();
  // Readable for an event of any, after arm() was true.
  int wait_fd() const { return any_.valid() ? any_.get() : first().wait_fd(); }
  bool arm();

  // How peers reach all of them. read_address() takes a peer's, untrusted, apart, by rail. INVALID.
  std::string address() const;
  static Status read_address(const std::string& address, std::vector<RailAddress>* by_rail);
  std::string description() const;

  // As UcxWorker's.
  void end();
  static void abandon(std::unique_ptr<UcxWorkers> workers);

 private:
  UcxWorkers() = default;
  Status add_rails(const NetworkOptions& options);
  Status watch_all();

  std::vector<std::unique_ptr<UcxWorker>> workers_;  // by rail
  std::vector<std::string> devices_;                 // likewise
  std::string left_out_;                             // devices that did not open, and why
  UniqueFd any_;                                     // an epoll of all, where there are several
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_UCX_WORKERS_H_
