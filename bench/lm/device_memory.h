// SPDX-License-Identifier: Apache-2.0
// Memory of a CUDA device for what a rank hands over: blocks of parallax_buffer_alloc, which a
// stream of the bench's own writes and reads. The CUDA driver is looked for at run time, so that
// the bench is built without CUDA's headers. One thread, the one that made it.
#ifndef BENCH_LM_DEVICE_MEMORY_H_
#define BENCH_LM_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallax/parallax.h"

namespace lm {

class DeviceMemory {
 public:
  // `device` as the driver counts, modulo how many there are. Throws std::runtime_error, with what
  // is missing, as all of it does.
  DeviceMemory(parallax_job_t* job, uint32_t device, size_t slots);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  uint32_t device() const { return device_; }
  void* stream() const { return stream_; }
  // Room for `bytes` on the device, the same for a slot while it is large enough; what a request
  // borrows must not be asked for anew.
  void* room(size_t slot, size_t bytes);
  // In the order of the stream; `from` stays as it is until a request that follows is complete.
  void* put(size_t slot, const void* from, size_t bytes);
  // At hand when it returns.
  void get(void* to, const void* from, size_t bytes);

 private:
  struct Driver;
  struct Block {
    void* address = nullptr;
    size_t bytes = 0;
  };
  void must(int result, const char* what) const;

  parallax_job_t* job_;
  const Driver& driver_;
  uint32_t device_ = 0;
  void* stream_ = nullptr;
  std::vector<Block> blocks_;
};

}  // namespace lm

#endif  // BENCH_LM_DEVICE_MEMORY_H_
