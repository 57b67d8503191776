// SPDX-License-Identifier: Apache-2.0
// Exposure: whether a rank's UCX would listen where strangers may reach it, and whether its user
// said that it may. UCX over tcp neither authenticates nor encrypts (docs/security.md), so beyond
// loopback it takes a word: transport "ucx". Every rank tells the others at the rendezvous, and all
// decide alike. Pure, but for is_rdma_device, which asks the kernel; any thread.
#ifndef PARALLAX_TRANSPORT_EXPOSURE_H_
#define PARALLAX_TRANSPORT_EXPOSURE_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace parallax {

struct Endpoint;

enum class NetworkReach : uint8_t {
  kClosed,    // no tcp, or on loopback alone
  kByChoice,  // tcp on loopback if all ranks are on one machine, else on every interface
  kOpen,      // tcp on an interface that was named and is not loopback
};

// What carries messages between hosts.
enum class NetworkCarrier : uint8_t { kUcx, kRdma, kTcp };

// What this rank's program and its environment say of the network between hosts.
struct NetworkWish {
  std::string net_device = {};       // of the options or settings; empty: not given
  bool is_rdma = false;              // it is an RDMA device
  std::string ucx_transports = {};   // UCX_TLS, which wins over ours; empty: not set
  std::string ucx_net_devices = {};  // UCX_NET_DEVICES, likewise
};

NetworkReach reach_of(const NetworkWish& wish);

// UNSUPPORTED, with the same sentence for every rank, if some rank would be exposed and has not
// said "ucx". For ranks on several hosts.
Status check_exposure(std::span<const Endpoint> all);

// "mlx5_0:1" or "mlx5_0": a device of the RDMA subsystem.
bool is_rdma_device(const std::string& device);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_EXPOSURE_H_
