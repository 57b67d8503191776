// SPDX-License-Identifier: Apache-2.0
// UcxLanes: what UCX took for a connection, out of its own description of it (ucp_ep_print_info):
// UCX 1.13 has no other word for it. Pure, without UCX.
#ifndef PARALLAX_TRANSPORT_UCX_UCX_LANES_H_
#define PARALLAX_TRANSPORT_UCX_UCX_LANES_H_

#include <sstream>
#include <string>
#include <string_view>

namespace parallax {

struct UcxLanes {
  // Transport and device of the lanes that carry messages or writes: "rc_verbs/mlx5_0:1", several
  // joined by "+". Empty: UCX says none.
  std::string carriers;
  bool reliable = false;          // all of those are rc's or dc's
  bool writes_by_device = false;  // and UCX says how it writes over them
};

// Lines as "#  lane[0]:  2:rc_verbs/mlx5_0:1.0 md[1] -> md[1]/ib/sysdev[255] am am_bw#0 wireup".
inline UcxLanes read_lanes(std::string_view description) {
  UcxLanes lanes;
  bool by_device = false, otherwise = false, puts = false;
  std::istringstream lines{std::string(description)};
  for (std::string line; std::getline(lines, line);) {
    puts = puts || line.find("put[") != std::string::npos;
    const size_t lane = line.find("lane[");
    if (lane == std::string::npos ||
        (line.find(" am") == std::string::npos && line.find(" rma") == std::string::npos)) {
      continue;
    }
    const bool device =
        line.find(":rc_") != std::string::npos || line.find(":dc_") != std::string::npos;
    by_device = by_device || device;
    otherwise = otherwise || !device;
    // "2:rc_verbs/mlx5_0:1.0" behind "lane[0]:": without the resource's number and the path's.
    std::istringstream words(line.substr(lane));
    std::string name;
    words >> name >> name;
    name = name.substr(name.find(':') + 1);
    name = name.substr(0, name.rfind('.'));
    if (("+" + lanes.carriers + "+").find("+" + name + "+") != std::string::npos) continue;
    lanes.carriers += (lanes.carriers.empty() ? "" : "+") + name;
  }
  lanes.reliable = by_device && !otherwise;
  lanes.writes_by_device = lanes.reliable && puts;
  return lanes;
}

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_UCX_LANES_H_
