// SPDX-License-Identifier: Apache-2.0
// RdmaReach: whether packets from this rank's RDMA port come to those of other hosts, and theirs
// here, tried as a job would: over UCX, which connects the two by rc or dc, and a message each way.
// Over RoCE they are datagrams of UDP, at a port that TCP says nothing about. Used by `parallax
// doctor` alone, by one thread.
#ifndef PARALLAX_TOOL_DOCTOR_RDMA_REACH_H_
#define PARALLAX_TOOL_DOCTOR_RDMA_REACH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"
#include "tool/doctor.h"
#include "tool/doctor_rdma.h"
#include "transport/module/network_transport.h"

namespace parallax::tool {

class RdmaReach {
 public:
  struct Peer {
    uint32_t rank = 0;
    std::string name;     // "rank 1 (host b)"
    std::string address;  // of its open(), untrusted; "": it has none
    std::string port;     // "mlx5_0:1"
  };

  // Opens the port that the card names. What hinders that is told by check().
  void open(const Settings& settings, const RdmaCard& own, uint32_t rank, uint32_t world);
  // In hexadecimal digits; "": there is no port, or it did not open.
  const std::string& address() const { return address_; }

  // Each of the peers, which do this at the same time, has this rank among its own. Blocks for
  // kReachMs at most. Adds a finding, rdma_reach. The port stays open while this lives, which has
  // to be until every peer has tried: to one that is slower this rank would be lost.
  void check(const std::vector<Peer>& peers, bool is_wanted, Findings* findings);

  static constexpr int64_t kReachMs = 5000;

 private:
  // Of the peers that have an address, as far as they are reached.
  Status reach(const std::vector<Peer>& peers, std::string* reached);

  std::string port_;
  bool is_ethernet_ = false;
  Status opened_;
  std::unique_ptr<NetworkTransport> transport_;
  std::string address_;
};

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_DOCTOR_RDMA_REACH_H_
