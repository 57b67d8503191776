// SPDX-License-Identifier: Apache-2.0
// ConvertedSlices: slices of one call whose variable devices sum among themselves
// (Variable::direct) in another dtype than theirs (as_dtype). Kernels convert each into scratch
// memory of its device behind its mark, the sum works there, and its result is converted from there
// to where the slice wants it. Engine's owner only.
#ifndef PARALLAX_ENGINE_CONVERTED_SLICES_H_
#define PARALLAX_ENGINE_CONVERTED_SLICES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/byte_range.h"
#include "base/status.h"
#include "device/device_share.h"
#include "server/pull_exchange.h"
#include "variable/registry.h"

namespace parallax {

class ConvertedSlices {
 public:
  // Whether numbers of either dtype become those of the other.
  static bool converts(uint32_t from, uint32_t to);

  // `taken` says dtype, values and into. Makes `host` one in the variable's dtype that lies in the
  // scratch memory, ready as it is. UNSUPPORTED: its device has no kernels; LIMIT, IO.
  Status add(const DeviceShare& share, const Variable& variable, const PullSlice& taken,
             size_t part, parallax_slice_t* host);
  bool any() const { return !all_.empty(); }
  // Those of a part, behind its mark; *batch is 0 where there is none.
  Status begin(Devices& devices, CopyDirection direction, size_t part, DeviceMark mark,
               DeviceBatch* batch);

  // Nothing of it is under way.
  void release();
  // The device may still use it.
  void abandon();

 private:
  struct Converted {
    size_t part = 0;
    uint32_t device = 0;
    DeviceConversion in = {}, out = {};
    MemoryBlock scratch = {};
  };

  ScratchPool* pool_ = nullptr;
  std::vector<Converted> all_;
  std::vector<DeviceConversion> begun_;  // of one part; with room for all
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_CONVERTED_SLICES_H_
