// SPDX-License-Identifier: Apache-2.0
// UcxTransport: the conformance suite, all ranks in this process over loopback.
#include <iterator>

#include "net/ucx_world.h"
#include "unit/transport/conformance.h"

namespace parallax::net {
namespace {

std::unique_ptr<conformance::World> make_ucx_world(uint32_t world) {
  auto ranks = make_ucx_ranks(world);
  std::vector<std::unique_ptr<Transport>> transports(std::make_move_iterator(ranks.begin()),
                                                     std::make_move_iterator(ranks.end()));
  return std::make_unique<conformance::PlainWorld>(std::move(transports));
}

CONFORM(ucx, make_ucx_world)

}  // namespace
}  // namespace parallax::net
