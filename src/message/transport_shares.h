// SPDX-License-Identifier: Apache-2.0
// TransportShares: one transport, shared by the groups of a job that this rank is in: the whole job
// and its parts. Each group has a Transport of its own (a share) that knows its ranks by the
// group's numbers; messages are told apart by the epoch that opens them, since every view of every
// group has its own.
//
// The whole job's share reads for all: its poll() delivers messages and completions to whomever
// they are for. It alone learns of losses, since who is alive is the job's concern, and it gets
// what belongs to no group: a group that has ended, another job, a stranger. A part's share reads
// nothing by itself and forgets nobody. What ranks of a host read of each other where it lies is
// divided as part_memory.h has it.
//
// Owned by who drives the groups; threads and blocking as in transport.h.
#ifndef PARALLAX_MESSAGE_TRANSPORT_SHARES_H_
#define PARALLAX_MESSAGE_TRANSPORT_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "message/part_memory.h"
#include "transport/transport.h"
#include "world/host_map.h"

namespace parallax {

class TransportShares final : private Receiver {
 public:
  // Told of every message that a part sends to a rank of the job, or gets from one: who talks to
  // each other watches each other.
  using Watch = std::function<void(uint32_t rank, bool sent)>;

  // The transport outlives this.
  explicit TransportShares(Transport& transport, Watch watch = {});
  ~TransportShares();
  TransportShares(const TransportShares&) = delete;
  TransportShares& operator=(const TransportShares&) = delete;

  // Of the whole job.
  Transport& whole();
  // Of a part with this epoch, which no other has: `ranks` are its ranks as the whole job numbers
  // them. What comes for it goes to whoever polled it last, who outlives the share; before its
  // first poll nothing may come. Null: the epoch is taken.
  Transport* add(uint32_t epoch, std::span<const uint32_t> ranks);
  // The transport is about to go, and the groups stay for a while: their memory is theirs alone.
  void leave() { left_ = true; }
  // The part has ended: no send of it is under way.
  void remove(uint32_t epoch);

 private:
  class Share;
  class Whole;
  class Part;

  Part* part_of(std::span<const std::byte> message) const;

  void on_message(uint32_t from, std::span<const std::byte> message) override;
  std::byte* place(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) override;
  void on_placed(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) override;
  void on_sent(uint64_t cookie) override;
  void on_lost(uint32_t rank, Loss loss, std::string_view why) override;

  // A cookie of the transport: the place of a part, from 1 on (0: the whole), and its own cookie.
  static constexpr uint32_t kPlaceShift = 40;

  Transport& transport_;
  bool left_ = false;
  const Watch watch_;
  BoardRegions regions_;
  std::unique_ptr<Whole> whole_;
  Receiver* whole_receiver_ = nullptr;                         // during its poll()
  std::unordered_map<uint32_t, std::unique_ptr<Part>> parts_;  // by epoch
  std::vector<Part*> places_;                                  // null: free
};

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_TRANSPORT_SHARES_H_
