// SPDX-License-Identifier: Apache-2.0
// InprocRendezvous: ranks that are threads of this process meet by a name ("inproc:NAME"). Holds
// this rank's seat in the hub's rendezvous until it is destroyed; the name is then free for the
// next job. allgather blocks; one thread per rank.
#ifndef PARALLAX_RENDEZVOUS_INPROC_RENDEZVOUS_H_
#define PARALLAX_RENDEZVOUS_INPROC_RENDEZVOUS_H_

#include "rendezvous/rendezvous.h"
#include "transport/inproc/hub.h"

namespace parallax {

class InprocRendezvous final : public Rendezvous {
 public:
  static Status create(const RendezvousOptions& options, const std::string& name,
                       std::unique_ptr<InprocRendezvous>* rendezvous);
  ~InprocRendezvous() override { hub_->rendezvous().leave(options_.rank, {}); }

  std::string_view name() const override { return "inproc"; }
  Status allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                   std::vector<std::string>* all) override;
  void leave(const Status& why) override { hub_->rendezvous().leave(options_.rank, why); }
  Status verdict() override { return hub_->rendezvous().verdict(); }
  void finish_bootstrap() override {}
  Status finish() override { return {}; }
  std::shared_ptr<InprocHub> hub() const override { return hub_; }

 private:
  InprocRendezvous(const RendezvousOptions& options, std::shared_ptr<InprocHub> hub)
      : options_(options), hub_(std::move(hub)) {}

  const RendezvousOptions options_;
  const std::shared_ptr<InprocHub> hub_;  // shared: see hub.h
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_INPROC_RENDEZVOUS_H_
