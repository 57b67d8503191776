// SPDX-License-Identifier: Apache-2.0
// Scratch memory and conversions of slices. See converted_slices.h.
#include "engine/converted_slices.h"

#include <string>

#include "base/number.h"

namespace parallax {

bool ConvertedSlices::converts(uint32_t from, uint32_t to) {
  const auto taken = [](uint32_t dtype) {
    return dtype == PARALLAX_F32 || dtype == PARALLAX_F16 || dtype == PARALLAX_BF16;
  };
  return taken(from) && taken(to);
}

Status ConvertedSlices::add(const DeviceShare& share, const Variable& variable,
                            const PullSlice& taken, size_t part, parallax_slice_t* host) {
  if (share.scratch == nullptr) {
    return unsupported(
               "as_dtype is converted in scratch memory of the device, and "
               "device_scratch_max_bytes is 0")
        .about_field("as_dtype");
  }
  const Status kernels = share.devices->prepare_kernels(host->device);
  if (!kernels.ok()) {
    return kernels.prefixed("as_dtype is converted on the device: ").about_field("as_dtype");
  }
  const uint64_t count = variable.elements();
  begun_.reserve(all_.size() + 1);
  all_.reserve(all_.size() + 1);  // from here on nothing throws that would leave a block nobody's
  MemoryBlock scratch;
  const Status room =
      share.scratch->take(host->device, count * bytes_of_dtype(variable.dtype), &scratch);
  if (!room.ok()) return room.prefixed("as_dtype needs ").about_field("as_dtype");
  pool_ = share.scratch;
  Converted& made =
      all_.emplace_back(Converted{.part = part, .device = host->device, .scratch = scratch});
  std::byte* const there = scratch.memory;
  made.in = {.from = taken.values,
             .from_dtype = taken.dtype,
             .to = there,
             .to_dtype = variable.dtype,
             .count = count};
  made.out = {.from = there,
              .from_dtype = variable.dtype,
              .to = taken.into,
              .to_dtype = taken.dtype,
              .count = count};
  host->values = there;
  host->into = nullptr;
  host->stream = nullptr;
  host->as_dtype = 0;
  return {};
}

Status ConvertedSlices::begin(Devices& devices, CopyDirection direction, size_t part,
                              DeviceMark mark, DeviceBatch* batch) {
  begun_.clear();
  for (const Converted& each : all_) {
    if (each.part == part) {
      begun_.push_back(direction == CopyDirection::kToHost ? each.in : each.out);
    }
  }
  return begun_.empty() ? Status() : devices.convert(direction, mark, begun_, batch);
}

void ConvertedSlices::release() {
  for (const Converted& each : all_) pool_->give_back(each.device, each.scratch);
  all_.clear();
}

void ConvertedSlices::abandon() {
  for (const Converted& each : all_) pool_->abandon(each.device, each.scratch);
  all_.clear();
}

}  // namespace parallax
