// SPDX-License-Identifier: Apache-2.0
// Intake: what the transport brings. PeerTraffic says whether a message counts, LayerHandlers have
// each of its sections taken by the part that it is for; a section that nobody takes fails the job.
// And where the rest of a message goes whose head alone is there (Receiver::place): as long as the
// job has not failed, since its callers have their memory back then. Engine's owner only; nothing
// blocks.
#ifndef PARALLAX_ENGINE_INTAKE_H_
#define PARALLAX_ENGINE_INTAKE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/first_failure.h"
#include "engine/layer_handlers.h"
#include "engine/loss_watch.h"
#include "engine/pass_state.h"
#include "engine/peer_traffic.h"
#include "message/outbox.h"
#include "message/section_coding.h"
#include "message/wire.h"
#include "transport/transport.h"
#include "world/host_map.h"

namespace parallax {

// Of a rank that sent what no rank of this version sends.
Status misfit(const HostMap& hosts, uint32_t rank, const std::string& what);

class Intake final : public Receiver {
 public:
  struct Parts {
    const HostMap& hosts;
    PassState& pass;
    FirstFailure& failure;
    PeerTraffic& traffic;
    LossWatch& loss_watch;
    Outbox& outbox;
    const LayerHandlers& handlers;
  };

  // All parts outlive this.
  explicit Intake(const Parts& parts) : parts_(parts) {}

  // Of sections that come coded, which are laid out here.
  void reserve(size_t message_bytes_max) { decoder_.reserve(message_bytes_max); }

  void on_message(uint32_t from, std::span<const std::byte> message) override {
    take(from, SectionReader(message), message.size());
  }
  std::byte* place(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) override;
  void on_placed(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) override {
    take(from, SectionReader(head, rest_bytes), head.size() + rest_bytes);
  }
  void on_sent(uint64_t cookie) override {
    if (parts_.outbox.on_sent(cookie)) parts_.pass.settle(false);
  }
  void on_lost(uint32_t rank, Loss loss, std::string_view why) override {
    parts_.pass.unsettled_by(parts_.loss_watch).on_lost(rank, loss, why);
  }

 private:
  void take(uint32_t from, SectionReader reader, size_t bytes);
  void dispatch(uint32_t from, Section section);

  const Parts parts_;
  SectionDecoder decoder_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_INTAKE_H_
