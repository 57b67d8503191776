// SPDX-License-Identifier: Apache-2.0
// DeviceBuffer: memory of a device that a job has allocated, as one block; and who keeps it there
// until the job ends. A plain value, and an interface for any thread.
#ifndef PARALLAX_BASE_DEVICE_BUFFER_H_
#define PARALLAX_BASE_DEVICE_BUFFER_H_

#include <cstdint>
#include <string>

#include "base/byte_range.h"

namespace parallax {

struct DeviceBuffer {
  ByteRange range;
  uint32_t device = 0;
  bool symmetric = false;  // ranks can register it together (Devices::allocate_symmetric)
};

class BufferKeeper {
 public:
  virtual ~BufferKeeper() = default;

  // Keeps the buffer that all of the bytes lie in, for a variable of that name. False: they lie in
  // none.
  virtual bool keep(const ByteRange& bytes, const std::string& variable, DeviceBuffer* buffer) = 0;
  // Once for a keep() whose variable did not come to be.
  virtual void let_go(const ByteRange& bytes) = 0;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_DEVICE_BUFFER_H_
