// SPDX-License-Identifier: Apache-2.0
// UcxMemory: the areas of this rank's memory that its peers may be let write to, and which of them
// are registered with the network devices, all of this rank's rails. An area is registered whole
// when a part of it is first shared, and stays so; what is registered is bounded, and where the
// bound is reached those areas go that were not shared for longest. Where the device, or the limit
// of locked memory, refuses an area it is not asked for again: who wanted to share it copies.
//
// One owner at a time. Registering and its end are the kernel's work, some milliseconds for a large
// area; nothing else here blocks.
#ifndef PARALLAX_TRANSPORT_UCX_UCX_MEMORY_H_
#define PARALLAX_TRANSPORT_UCX_UCX_MEMORY_H_

#include <ucp/api/ucp.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_range.h"
#include "transport/remote_writes.h"

namespace parallax {

struct MemoryCounts {
  uint64_t registrations = 0;  // ever
  uint64_t evictions = 0;
  uint64_t refusals = 0;  // areas that could not be registered
  uint64_t too_many = 0;  // shares refused because all that is registered was in use
  uint64_t registered_bytes = 0;
};

class UcxMemory {
 public:
  // The contexts, of the rank's rails, outlive this.
  UcxMemory(std::vector<ucp_context_h> contexts, uint64_t bytes_max)
      : contexts_(std::move(contexts)), bytes_max_(bytes_max) {}
  ~UcxMemory() { end(); }
  UcxMemory(const UcxMemory&) = delete;
  UcxMemory& operator=(const UcxMemory&) = delete;

  // As RemoteWrites's.
  bool know(const ByteRange& area);
  void forget(const ByteRange& area);
  bool has_room(const ByteRange& part) const;
  bool share(const ByteRange& part, SharedPart* shared);
  void unshare(uint32_t area);

  // For good: nothing is registered any more, and nothing will be.
  void end();

  const MemoryCounts& counts() const { return counts_; }
  const std::string& refused_why() const { return refused_why_; }  // the last; "": none was

 private:
  struct Area {
    ByteRange range;
    uint32_t number = 0;             // 0: not registered
    std::vector<ucp_mem_h> handles;  // by rail
    std::vector<std::byte> key;
    uint32_t shares = 0;
    uint64_t used = 0;  // when it was shared last
    bool refused = false;
  };
  using Areas = std::map<uintptr_t, Area>;  // by their first byte

  // Of `areas` that which can be shared of; null: none.
  static auto* area_with(auto& areas, const ByteRange& part);
  bool make_room(uint64_t bytes);
  bool register_area(Area& area);
  void refuse(Area& area, ucs_status_t status);
  void deregister(Area& area);

  ucs_status_t map_for_rail(Area& area, ucp_context_h context);
  void unmap(Area& area);

  const std::vector<ucp_context_h> contexts_;
  const uint64_t bytes_max_;
  bool ended_ = false;
  Areas areas_;
  std::map<uint32_t, Area*> registered_;  // by number
  uint32_t last_number_ = 0;
  uint64_t uses_ = 0;
  MemoryCounts counts_;
  std::string refused_why_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_UCX_MEMORY_H_
