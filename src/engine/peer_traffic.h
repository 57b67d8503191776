// SPDX-License-Identifier: Apache-2.0
// PeerTraffic: what passes between this rank and every other one, message by message: that its
// sender lives, whether it counts, and how much it was. A message counts if it is of this job's
// epoch and newer than what came from that rank before.
//
// All numbers are totals from the start of the job. Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_PEER_TRAFFIC_H_
#define PARALLAX_ENGINE_PEER_TRAFFIC_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "membership/membership.h"
#include "message/outbox.h"
#include "message/wire.h"
#include "world/host_map.h"

namespace parallax {

// Traffic of one class of peers, in whole messages as handed to the transport.
struct Traffic {
  uint64_t sent_bytes = 0, received_bytes = 0, sent_messages = 0, received_messages = 0;
};

// Sections of one variable with their headers, to and from other hosts.
struct VariableTraffic {
  uint64_t sent_bytes = 0, received_bytes = 0;
  uint64_t placed_bytes = 0;  // of those sent, what the device wrote into memory of the receiver
  uint64_t spared_bytes = 0;  // what those sent would have been more, without coding
};

class PeerTraffic final : public OutboxObserver {
 public:
  struct Options {
    uint32_t rank;
    uint32_t epoch;
  };

  // All outlive this.
  PeerTraffic(Options options, const HostMap& hosts, const Clock& clock, Membership& membership)
      : options_(options),
        hosts_(hosts),
        clock_(clock),
        membership_(membership),
        received_sequence_(hosts.host_of.size()) {}

  // Counts by variable from here on.
  void reserve(uint32_t variables) { variables_.resize(variables); }

  // A message has come from `from`, which the transport names and nobody has checked. False: it is
  // dropped. One without a header of ours is not: what it is must be told.
  [[nodiscard]] bool take(uint32_t from, const SectionReader& reader, size_t bytes);
  // It would not be dropped, and is one of ours.
  bool is_next(uint32_t from, const SectionReader& reader) const;
  // One of its sections, before anybody has checked that.
  void take_section(uint32_t from, const SectionHeader& header);

  void on_section_packed(uint32_t to, const SectionHeader& header, size_t bytes) override;
  void on_section_coded(uint32_t to, const SectionHeader& header, size_t spared_bytes) override;
  void on_message_packed(uint32_t to, size_t bytes) override;

  const Traffic& wire() const { return wire_; }    // with other hosts
  const Traffic& local() const { return local_; }  // with ranks of this one
  const VariableTraffic& variable(uint32_t variable) const { return variables_[variable]; }
  uint64_t dropped_messages() const { return dropped_messages_; }

 private:
  bool is_local(uint32_t rank) const {
    return hosts_.host_of[rank] == hosts_.host_of[options_.rank];
  }
  VariableTraffic* of_wire(uint32_t peer, const SectionHeader& header);

  const Options options_;
  const HostMap& hosts_;
  const Clock& clock_;
  Membership& membership_;
  std::vector<uint32_t> received_sequence_;  // by rank: of its last message
  Traffic wire_, local_;
  std::vector<VariableTraffic> variables_;
  uint64_t dropped_messages_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_PEER_TRAFFIC_H_
