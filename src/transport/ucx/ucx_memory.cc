// SPDX-License-Identifier: Apache-2.0
// Registering areas, and which go when the bound is reached. See ucx_memory.h.
#include "transport/ucx/ucx_memory.h"

#include <iterator>

#include "base/check.h"
#include "transport/ucx/rail_keys.h"

namespace parallax {

namespace {

bool contains(const ByteRange& area, const ByteRange& part) {
  return part.first >= area.first && part.first + part.bytes <= area.first + area.bytes;
}

}  // namespace

bool UcxMemory::know(const ByteRange& area) {
  if (ended_ || area.bytes == 0) return false;
  // The last that begins before the range ends.
  auto at = areas_.lower_bound(area.first + area.bytes);
  if (at != areas_.begin() && (--at)->second.range.overlaps(area)) return false;
  areas_[area.first].range = area;
  return true;
}

void UcxMemory::forget(const ByteRange& area) {
  const auto found = areas_.find(area.first);
  if (found == areas_.end()) return;
  PARALLAX_CHECK(ended_ || found->second.shares == 0);
  deregister(found->second);
  areas_.erase(found);
}

auto* UcxMemory::area_with(auto& areas, const ByteRange& part) {
  const auto behind = areas.upper_bound(part.first);
  auto* const before = behind == areas.begin() ? nullptr : &std::prev(behind)->second;
  const bool is_in = before != nullptr && contains(before->range, part) && !before->refused;
  return is_in ? before : nullptr;
}

bool UcxMemory::has_room(const ByteRange& part) const {
  const Area* const area = ended_ ? nullptr : area_with(areas_, part);
  return area != nullptr &&
         (area->number != 0 || counts_.registered_bytes + area->range.bytes <= bytes_max_);
}

bool UcxMemory::share(const ByteRange& part, SharedPart* shared) {
  Area* const area = ended_ ? nullptr : area_with(areas_, part);
  if (area == nullptr) return false;
  if (area->number == 0 && !register_area(*area)) return false;
  ++area->shares;
  area->used = ++uses_;
  *shared = {.area = area->number, .key = area->key};
  return true;
}

void UcxMemory::unshare(uint32_t number) {
  if (ended_) return;
  const auto found = registered_.find(number);
  PARALLAX_CHECK(found != registered_.end() && found->second->shares > 0);
  --found->second->shares;
}

// Those that were not shared for longest go first.
bool UcxMemory::make_room(uint64_t bytes) {
  while (counts_.registered_bytes + bytes > bytes_max_) {
    Area* oldest = nullptr;
    for (auto& [first, each] : areas_) {
      const bool idle = each.number != 0 && each.shares == 0;
      if (idle && (oldest == nullptr || each.used < oldest->used)) oldest = &each;
    }
    if (oldest == nullptr) return false;
    deregister(*oldest);
    ++counts_.evictions;
  }
  return true;
}

bool UcxMemory::register_area(Area& area) {
  if (area.range.bytes > bytes_max_) {
    refuse(area, UCS_ERR_EXCEEDS_LIMIT);
    return false;
  }
  if (!make_room(area.range.bytes)) {
    ++counts_.too_many;
    return false;
  }
  for (const ucp_context_h context : contexts_) {
    const ucs_status_t status = map_for_rail(area, context);
    if (status == UCS_OK) continue;
    unmap(area);
    refuse(area, status);
    return false;
  }
  area.number = ++last_number_;
  registered_[area.number] = &area;
  counts_.registered_bytes += area.range.bytes;
  ++counts_.registrations;
  return true;
}

ucs_status_t UcxMemory::map_for_rail(Area& area, ucp_context_h context) {
  ucp_mem_map_params_t params = {};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = reinterpret_cast<void*>(area.range.first);
  params.length = area.range.bytes;
  ucp_mem_h handle = nullptr;
  ucs_status_t status = ucp_mem_map(context, &params, &handle);
  if (status != UCS_OK) return status;
  area.handles.push_back(handle);
  void* key = nullptr;
  size_t bytes = 0;
  status = ucp_rkey_pack(context, handle, &key, &bytes);
  if (status != UCS_OK) return status;
  const bool fits = add_rail_key({static_cast<const std::byte*>(key), bytes}, &area.key);
  ucp_rkey_buffer_release(key);
  return fits ? UCS_OK : UCS_ERR_EXCEEDS_LIMIT;
}

void UcxMemory::unmap(Area& area) {
  for (size_t rail = 0; rail < area.handles.size(); ++rail) {
    ucp_mem_unmap(contexts_[rail], area.handles[rail]);
  }
  area.handles.clear();
  area.key.clear();
}

void UcxMemory::refuse(Area& area, ucs_status_t status) {
  area.refused = true;
  ++counts_.refusals;
  const std::string bytes = std::to_string(area.range.bytes) + " bytes";
  refused_why_ =
      area.range.bytes > bytes_max_
          ? bytes + " are more than rdma_memory_mb allows; what comes for them is copied"
          : bytes + " could not be registered (UCX: " + ucs_status_string(status) +
                "): the memory that this process may lock may be spent (ulimit -l unlimited); "
                "what comes for them is copied";
}

void UcxMemory::deregister(Area& area) {
  if (area.number == 0) return;
  unmap(area);
  counts_.registered_bytes -= area.range.bytes;
  registered_.erase(area.number);
  area.number = 0;
}

void UcxMemory::end() {
  ended_ = true;
  for (auto& [first, each] : areas_) deregister(each);
}

}  // namespace parallax
