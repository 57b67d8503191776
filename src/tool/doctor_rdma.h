// SPDX-License-Identifier: Apache-2.0
// What the doctor finds about RDMA devices. The checks are pure, over plain values, so that each is
// tested by a broken port table; what they look at is gathered apart (gather_rdma). Any thread.
//
// The names of the findings are for programs, too, and stay: rdma, rdma_permission, rdma_ucx,
// rdma_port, rdma_gid, rdma_mtu, rdma_pfc_ecn; among ranks rdma_ranks and rdma_reach.
#ifndef PARALLAX_TOOL_DOCTOR_RDMA_H_
#define PARALLAX_TOOL_DOCTOR_RDMA_H_

#include <string>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "tool/doctor.h"
#include "topology/topology.h"
#include "topology/visible_gpus.h"

namespace parallax::tool {

struct RdmaFacts {
  Topology topology;
  std::string device = {};     // the RDMA device that a setting names; "": any
  bool is_wanted = false;      // a setting asks for RDMA: what hinders it fails
  bool are_here = false;       // the devices are this machine's, not a file's
  CudaVariables cuda = {};     // of this process
  std::string gid_index = {};  // UCX_IB_GID_INDEX; "": not set
  std::string no_files = {};   // why files of /dev/infiniband cannot be opened; "": they can
  std::string no_verbs = {};   // why UCX has no verbs; "": it has, or UCX was not loaded
};

// `nics_file`: the option --nics; "": this machine's devices. IO, INVALID: of that file.
Status gather_rdma(const Settings& settings, const std::string& nics_file, RdmaFacts* facts);

void check_rdma(const RdmaFacts& facts, Findings* findings);

// The files uverbs* below `folder` that this process may not read and write; "": none.
std::string closed_files(const std::string& folder);

// Why the library of UCX whose parts lie in `folder` has no verbs; "": it has.
std::string ucx_without_verbs(const std::string& folder);

// What a rank tells the others of the port that it would use.
struct RdmaCard {
  std::string port = {};  // "mlx5_0:1"; "": none works
  std::string why = {};   // none works
  std::string link_layer = {};
  std::string gid = {};  // "roce_v2 IPv4"; "" over InfiniBand
  uint32_t rate_mbit_s = 0;
  uint32_t mtu_bytes = 0;

  bool operator==(const RdmaCard&) const = default;
};

// Of the rank with this place on its host.
RdmaCard rdma_card(const RdmaFacts& facts, uint32_t local_rank, uint32_t local_ranks);

// `others`: by name, "rank 1 (host b)".
void compare_rdma(const RdmaCard& own, const std::vector<std::pair<std::string, RdmaCard>>& others,
                  bool is_wanted, Findings* findings);

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_DOCTOR_RDMA_H_
