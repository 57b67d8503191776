// SPDX-License-Identifier: Apache-2.0
// CallbackRendezvous: ranks meet by the caller's own allgather (MPI, torch.distributed, ...). Blobs
// travel in cells of one fixed size, as the callback demands. allgather blocks as long as the
// callback does: neither deadline nor lease can be kept here, they are the caller's.
#ifndef PARALLAX_RENDEZVOUS_CALLBACK_RENDEZVOUS_H_
#define PARALLAX_RENDEZVOUS_CALLBACK_RENDEZVOUS_H_

#include "rendezvous/rendezvous.h"

namespace parallax {

class CallbackRendezvous final : public Rendezvous {
 public:
  CallbackRendezvous(const RendezvousOptions& options, parallax_allgather_fn allgather,
                     void* context)
      : options_(options), allgather_(allgather), context_(context) {}

  std::string_view name() const override { return "callback"; }
  Status allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                   std::vector<std::string>* all) override;
  void leave(const Status&) override {}
  Status verdict() override { return {}; }
  void finish_bootstrap() override {}
  Status finish() override { return {}; }

 private:
  const RendezvousOptions options_;
  const parallax_allgather_fn allgather_;
  void* const context_;
  uint32_t round_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_CALLBACK_RENDEZVOUS_H_
