// SPDX-License-Identifier: Apache-2.0
// UcxTransport: the conformance suite, all ranks in this process over loopback; with one rail, and
// with three, whose workers are polled, waited for and closed beside the first.
#include <iterator>

#include "net/ucx_world.h"
#include "unit/transport/conformance.h"

namespace parallax::net {
namespace {

std::unique_ptr<conformance::World> world_of(std::vector<std::unique_ptr<NetworkTransport>> ranks) {
  std::vector<std::unique_ptr<Transport>> transports(std::make_move_iterator(ranks.begin()),
                                                     std::make_move_iterator(ranks.end()));
  return std::make_unique<conformance::PlainWorld>(std::move(transports));
}

std::unique_ptr<conformance::World> make_ucx_world(uint32_t world) {
  return world_of(make_ucx_ranks(world));
}

// As a job has them, with no connection in the making. PARALLAX_TEST_MORE_DEVICE: one that
// tests/rdma has.
std::unique_ptr<conformance::World> make_rails_world(uint32_t world) {
  const std::string more = setting_of_test("PARALLAX_TEST_MORE_DEVICE", "");
  auto ranks = make_ucx_ranks(
      world, more.empty() ? std::vector<std::string>{"lo", "lo"} : std::vector{more});
  wire_all(ranks);
  return world_of(std::move(ranks));
}

CONFORM(ucx, make_ucx_world)
CONFORM(ucx_rails, make_rails_world)

}  // namespace
}  // namespace parallax::net
