// SPDX-License-Identifier: Apache-2.0
// NetworkChoice: on which device a rank's network between hosts runs, and why; or the sentence that
// says why on none. Under transport "rdma" that is a port of an RDMA device that is active, or an
// error: never another network. Any thread; asks the kernel, tens of milliseconds for RDMA.
#ifndef PARALLAX_JOB_NETWORK_CHOICE_H_
#define PARALLAX_JOB_NETWORK_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "parallax/parallax.h"
#include "topology/topology.h"
#include "topology/visible_gpus.h"
#include "transport/endpoint.h"
#include "transport/module/network_transport.h"

namespace parallax {

// What carries messages between hosts, and why in words.
struct CarrierChoice {
  NetworkCarrier carrier = NetworkCarrier::kTcp;
  std::string why = {};  // "the default", "transport, from environment PARALLAX_TRANSPORT"
};

// What options.transport says, which was set `where`; where it is null, RDMA if net_device names a
// device of it, else tcp.
CarrierChoice choose_carrier(const parallax_options_t& options, const std::string& where);
// The same of what is known of net_device. Pure.
CarrierChoice choose_carrier(const char* transport, const std::string& where, bool device_is_rdma);

struct NetworkRequest {
  NetworkCarrier carrier = NetworkCarrier::kTcp;
  const parallax_options_t* options = nullptr;  // net_device, with the settings in
  std::string net_device_where = {};            // "environment PARALLAX_NET_DEVICE"
  std::string tcp_address_where = {};           // of that setting; empty: it is not set
  std::string rails = "auto";                   // the setting
  bool one_machine = false;                     // every rank is on this one
  uint32_t local_rank = 0;                      // its number among the ranks of its host
  uint32_t local_ranks = 1;                     // how many those are
  CudaVariables cuda = {};                      // read by choose_network()
};

// All that UCX has on verbs: it takes the best that the device knows.
inline constexpr const char* kVerbsTransports = "rc,dc,ud";

struct NetworkChoice {
  std::string device = {};                     // "lo", "mlx5_0:1"; empty: UCX's own choice
  std::vector<std::string> more_devices = {};  // rails beyond it
  bool more_devices_asked = false;             // by their names
  std::string transports = {};                 // UCX's names; empty: by the device
  std::string why = {};                        // of the device, in words
};

// What the user told UCX by its own variables, which win over ours; empty: not set.
struct UcxVariables {
  std::string transports = {};   // UCX_TLS
  std::string net_devices = {};  // UCX_NET_DEVICES
};

// What to warn of where tcp is taken by default though the user told UCX which network to take; "":
// nothing. Pure.
std::string ucx_left_out(const NetworkRequest& request, const UcxVariables& ucx);

// As named, lo on one machine, else the default route's with tcp and UCX's choice with UCX; for
// RDMA choose_rdma() of what is there.
Status choose_network(const NetworkRequest& request, NetworkChoice* choice);

// The port that is named, or those that plan_rails (topology/rails.h) gives the rank: of those that
// work the nearest, shared out among the ranks of its host; how many, or which, the setting rails
// says. Pure. INVALID: what is named is none, or lets UCX take another network; IO: there is none,
// or none works.
Status choose_rdma(const NetworkRequest& request, const UcxVariables& ucx, const Topology& topology,
                   NetworkChoice* choice);

// UCX's, of what was chosen.
NetworkOptions ucx_network(const NetworkChoice& choice, uint32_t rank, uint32_t world,
                           uint64_t registered_bytes_max);

}  // namespace parallax

#endif  // PARALLAX_JOB_NETWORK_CHOICE_H_
