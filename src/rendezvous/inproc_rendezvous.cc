// SPDX-License-Identifier: Apache-2.0
// InprocRendezvous: see the header.
#include "rendezvous/inproc_rendezvous.h"

#include "base/check.h"
#include "transport/endpoint.h"

namespace parallax {

Status InprocRendezvous::create(const RendezvousOptions& options, const std::string& name,
                                std::unique_ptr<InprocRendezvous>* rendezvous) {
  std::shared_ptr<InprocHub> hub;
  PARALLAX_RETURN_IF_ERROR(InprocHub::join(name, options.rank, options.world, options.host, &hub));
  rendezvous->reset(new InprocRendezvous(options, std::move(hub)));
  return {};
}

Status InprocRendezvous::allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                                   std::vector<std::string>* all) {
  PARALLAX_CHECK(mine.size() <= kEndpointBytesMax);
  return hub_->rendezvous().exchange(
      options_.rank, std::string(reinterpret_cast<const char*>(mine.data()), mine.size()),
      *options_.clock, deadline_ns, all);
}

}  // namespace parallax
