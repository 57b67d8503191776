// SPDX-License-Identifier: Apache-2.0
// Which address of this machine the other ranks are given to connect to. Asks the kernel; sends
// nothing. Any thread.
#ifndef PARALLAX_BASE_INTERFACE_H_
#define PARALLAX_BASE_INTERFACE_H_

#include <string>

#include "base/socket_address.h"
#include "base/status.h"

namespace parallax {

// The address, with port 0, of the interface called `device` (IPv4 before IPv6). With "": the
// address from which the default route goes out, IPv4's before IPv6's, else that of any interface
// that is up and has its link, else loopback. INVALID: the device does not exist, is down or has no
// address; the message lists those that have one.
Status choose_address(const std::string& device, SocketAddress* address);
// The address that `text` writes, "10.0.0.1" or "fd00::1", with port 0. INVALID: it is none, or no
// interface that is up has it, or not `device`, where that is given; the message lists what there
// is.
Status find_address(const std::string& text, const std::string& device, SocketAddress* address);

// Whether `device` is an interface of this machine, or an RDMA device as "mlx5_0:1".
bool is_network_device(const std::string& device);

// "mlx5_0:1" or "mlx5_0": a device of the RDMA subsystem.
bool is_rdma_device(const std::string& device);

// The interface that has this address, whatever its port; "": none.
std::string interface_of(const SocketAddress& address);

}  // namespace parallax

#endif  // PARALLAX_BASE_INTERFACE_H_
