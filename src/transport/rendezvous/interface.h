// SPDX-License-Identifier: Apache-2.0
// Which address of this machine others are told to come to. Asks the kernel; sends nothing. Any
// thread.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_INTERFACE_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_INTERFACE_H_

#include <string>

#include "transport/rendezvous/tcp_place.h"

namespace parallax {

// The address, with port 0, of the interface called `device` (IPv4 before IPv6); with "" that from
// which the default route goes out, else of any interface that is up, else loopback. INVALID names
// a device that is not there, is down, or has no address, and those that do.
Status choose_address(const std::string& device, SocketAddress* address);

// Whether `device` is an interface of this machine, or an RDMA device as "mlx5_0:1".
bool is_network_device(const std::string& device);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_INTERFACE_H_
